"""Issues that are deleted while somebody points at them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from companies.activity import Actor
from companies.errors import NotFound
from companies.models import Company, User
from issues import board, deletion
from issues.models import Blocker, Issue
from tests import factories
from tests.api.conftest import operator
from tests.races.threads import one_inside_the_other

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def olgas(olga: User) -> Actor:
    return Actor("user", olga.pk, "Olga")


@pytest.mark.parametrize("field", ["blocked_by", "parent"])
def test_an_issue_that_was_just_deleted_is_not_found(
    acme: Company, olgas: Actor, now: datetime, field: str
) -> None:
    gone, left = factories.issue(acme, "Gone"), factories.issue(acme, "Left")
    value: Any = [gone] if field == "blocked_by" else gone

    _, answer = one_inside_the_other(
        lambda: deletion.delete_issue(issue=gone, actor=olgas, now=now),
        lambda: board.update(issue=left, changes={field: value}, actor=olgas, now=now),
    )

    assert isinstance(answer, NotFound), answer
    assert answer.code == "unknown_reference"
    assert not Blocker.objects.exists()


def test_a_new_issue_does_not_wait_for_one_that_was_just_deleted(
    acme: Company, olgas: Actor, now: datetime
) -> None:
    gone = factories.issue(acme, "Gone")

    _, answer = one_inside_the_other(
        lambda: deletion.delete_issue(issue=gone, actor=olgas, now=now),
        lambda: board.create(company=acme, title="New", blocked_by=[gone], actor=olgas, now=now),
    )

    assert isinstance(answer, NotFound), answer
    assert not Issue.objects.exists()


@pytest.mark.parametrize("field", ["blocked_by", "parent"])
def test_who_points_at_it_first_lets_it_go_with_it(
    acme: Company, olgas: Actor, now: datetime, field: str
) -> None:
    gone, left = factories.issue(acme, "Gone"), factories.issue(acme, "Left")
    value: Any = [gone] if field == "blocked_by" else gone

    _, answer = one_inside_the_other(
        lambda: board.update(issue=left, changes={field: value}, actor=olgas, now=now),
        lambda: deletion.delete_issue(issue=gone, actor=olgas, now=now),
    )

    assert answer is None
    left.refresh_from_db()
    assert (left.parent_id, Issue.objects.count(), Blocker.objects.count()) == (None, 1, 0)


def test_a_reference_that_goes_while_a_call_is_carried_out_is_a_conflict(
    acme: Company, olga: User, olgas: Actor, now: datetime
) -> None:
    gone, caller = factories.issue(acme, "Gone"), operator(olga)
    path, body = f"/api/companies/{acme.id}/issues", {"title": "New", "parentId": str(gone.id)}

    _, answer = one_inside_the_other(
        lambda: deletion.delete_issue(issue=gone, actor=olgas, now=now),
        lambda: caller.send("POST", path, body),
    )

    assert (answer.status_code, answer.json()["code"]) == (409, "reference_gone")
    assert not Issue.objects.exists()
