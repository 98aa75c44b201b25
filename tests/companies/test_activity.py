"""What is recorded together: one statement, and nothing of what failed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.db import DataError, transaction

from companies import activity
from companies.models import Activity, Company

pytestmark = pytest.mark.django_db


def note(acme: Company, now: datetime, action: str, **details: Any) -> None:
    activity.record(
        company_id=acme.id,
        actor=activity.Actor("agent", acme.id, "Ada", acme.id),
        action=action,
        entity_type="company",
        entity_id=acme.id,
        entity_name="Acme",
        details=details,
        now=now,
    )


def actions() -> list[str]:
    return list(Activity.objects.order_by("id").values_list("action", flat=True))


def test_a_row_holds_what_was_said(acme: Company, now: datetime) -> None:
    note(acme, now, "company.renamed", before={"name": "Ach\u00e9"}, count=2**70, flag=None)
    row = Activity.objects.get()
    assert (row.occurred_at, row.actor_type, row.actor_name) == (now, "agent", "Ada")
    assert (row.actor_id, row.run_id, row.entity_id) == (acme.id, acme.id, acme.id)
    assert row.details == {"before": {"name": "Ach\u00e9"}, "count": 2**70, "flag": None}


def test_rows_recorded_together_are_one_statement_in_their_order(
    acme: Company, now: datetime, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(1), activity.together():
        note(acme, now, "first")
        with activity.together():
            note(acme, now, "second")
        note(acme, now, "third")
    assert actions() == ["first", "second", "third"]
    note(acme, now, "alone")
    assert actions()[-1] == "alone"


def test_rows_that_another_statement_has_written_are_not_written_again(
    acme: Company, now: datetime
) -> None:
    with activity.together():
        note(acme, now, "written")
        rows = activity.kept()
        note(acme, now, "left")
        assert [row["action"] for row in rows] == ["written"]
        activity.written(rows)
    assert actions() == ["left"]
    assert activity.kept() == []


def test_who_reads_inside_flushes_first(acme: Company, now: datetime) -> None:
    with activity.together():
        note(acme, now, "first")
        assert actions() == []
        activity.flush()
        assert actions() == ["first"]
        note(acme, now, "second")
    assert actions() == ["first", "second"]
    activity.flush()


def test_what_raises_leaves_nothing(acme: Company, now: datetime) -> None:
    with pytest.raises(RuntimeError), transaction.atomic(), activity.together():
        note(acme, now, "first")
        raise RuntimeError
    note(acme, now, "later")
    assert actions() == ["later"]


@pytest.mark.parametrize("text", ["\x00", "\ud800"])
def test_what_cannot_be_kept_is_refused_by_the_database(
    acme: Company, now: datetime, text: str
) -> None:
    with pytest.raises(DataError), transaction.atomic():
        note(acme, now, "company.renamed", name=text)
