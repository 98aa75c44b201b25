"""A run begins while something else happens to it or to its issue."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents import runs
from agents.models import Agent, HeartbeatRun
from companies.activity import Actor
from issues import board, work
from issues.models import Blocker, Checkout, Issue
from paperclip.engine import recover
from paperclip.engine.opening import open_run
from tests import factories
from tests.races.threads import one_inside_the_other

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(ada: Agent, issue: Issue) -> HeartbeatRun:
    """Claimed by a worker whose lease is over."""
    dead = factories.worker(lease_expires_at=timezone.now() - timedelta(seconds=60))
    return factories.running(ada, issue, worker=dead)


def opening(run: HeartbeatRun) -> Callable[[], Any]:
    claimed = runs.Claimed(
        run.pk, 1, run.company_id, run.agent_id, run.issue_id, run.created_at, "demo", 1
    )
    return lambda: open_run(claimed)


@pytest.mark.parametrize("opens_first", [True, False])
def test_a_run_that_is_rescued_while_it_begins_holds_nothing(
    run: HeartbeatRun, opens_first: bool
) -> None:
    verbs = [
        opening(run),
        lambda: recover.give_up(run_id=run.pk, epoch=1, now=timezone.now()),
    ]
    answers = one_inside_the_other(*(verbs if opens_first else verbs[::-1]))
    (rescued,) = (one for one in answers if isinstance(one, runs.Lost))
    assert rescued.run_id == run.pk
    assert not Checkout.objects.filter(released_at=None).exists()
    assert Issue.objects.get().status == "todo"
    if not opens_first:
        assert isinstance(answers[1], Exception)
        assert not Checkout.objects.exists()


@pytest.mark.parametrize("opens_first", [True, False])
def test_a_run_does_not_begin_on_what_is_being_blocked(
    run: HeartbeatRun, issue: Issue, opens_first: bool
) -> None:
    other = factories.issue(issue.company)
    olga = Actor("user", None, "Olga")
    verbs = [
        opening(run),
        lambda: board.set_blockers(issue=issue, blocked_by=[other], actor=olga),
    ]
    answers = one_inside_the_other(*(verbs if opens_first else verbs[::-1]))
    assert not [one for one in answers if isinstance(one, Exception)], answers
    assert Blocker.objects.count() == 1
    assert not Checkout.objects.filter(released_at=None).exists()
    assert Issue.objects.get(pk=issue.pk).status != "in_progress"
    assert Checkout.objects.exists() == opens_first


@pytest.mark.parametrize("opens_first", [True, False])
def test_an_issue_is_not_taken_twice(
    run: HeartbeatRun, issue: Issue, ada: Agent, opens_first: bool
) -> None:
    """By the run, and by the same agent working elsewhere."""
    verbs = [opening(run), lambda: work.checkout(issue=issue, agent=ada)]
    one_inside_the_other(*(verbs if opens_first else verbs[::-1]))
    assert Checkout.objects.filter(released_at=None).count() == 1
    assert Issue.objects.get().status == "in_progress"
