"""How a run takes its own issue in one statement, and when it does not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from agents import runs
from agents.models import Agent, HeartbeatRun
from companies.models import Activity, Company
from issues import taking, work
from issues.models import Checkout, Issue
from tests import factories

pytestmark = pytest.mark.django_db


def whole(issue: Issue) -> dict[str, Any]:
    """The issue, its checkout and its activity, without what tells two issues apart."""
    (row,) = Issue.objects.filter(pk=issue.pk).values()
    (held,) = Checkout.objects.filter(issue=issue).values()
    (note,) = Activity.objects.filter(entity_id=issue.pk).values()
    own = ("id", "number", "identifier", "title", "issue_id", "run_id", "created_at")
    own = (*own, "entity_id", "entity_name")
    return {
        f"{name} {key}": value
        for name, part in (("issue", row), ("checkout", held), ("activity", note))
        for key, value in part.items()
        if key not in own
    }


@pytest.mark.parametrize("status", ["todo", "in_progress", "blocked", "in_review"])
def test_it_does_what_the_long_way_does(
    acme: Company, ada: Agent, now: datetime, status: str, django_assert_num_queries: Any
) -> None:
    fields: dict[str, Any] = {"assignee": ada, "status": status, "blocked_reason": "Paint."}
    issues = [factories.issue(acme, **fields) for _ in range(2)]
    at_once, step_by_step = (runs.read(factories.running(ada, one).pk) for one in issues)
    assert at_once is not None
    assert step_by_step is not None
    with django_assert_num_queries(1):
        taken = work.begin(run=at_once, now=now)
    checked_out = work.checkout(
        issue=issues[1], agent=ada, run=step_by_step, now=now,
        expected_statuses=(*work.EXPECTED, "in_progress"),
    )  # fmt: skip
    assert whole(issues[0]) == whole(issues[1])
    assert taken is not None
    for known, issue in ((taken, issues[0]), (checked_out, issues[1])):
        (row,) = Issue.objects.filter(pk=issue.pk).values()
        assert {name: getattr(known, name) for name in row} == row
    assert Activity.objects.get(entity_id=issues[0].pk).run_id == at_once.pk


def open_blocker(issue: Issue) -> None:
    factories.blocker(issue, by=factories.issue(issue.company))


def closed_blocker(issue: Issue) -> None:
    factories.blocker(issue, by=factories.issue(issue.company, status="done"))


def another_holder(issue: Issue) -> None:
    bo = factories.agent(issue.company)
    factories.checkout(issue, bo, factories.running(bo))


def change(**fields: Any) -> Callable[[Issue], None]:
    def apply(issue: Issue) -> None:
        Issue.objects.filter(pk=issue.pk).update(**fields)

    return apply


@pytest.mark.parametrize(
    "meanwhile",
    [
        open_blocker,
        another_holder,
        change(version=2),
        change(status="done"),
        change(assignee_agent=None),
    ],
)
def test_what_is_in_the_way_leaves_it_untouched(
    issue: Issue, ada: Agent, now: datetime, meanwhile: Callable[[Issue], None]
) -> None:
    run = runs.read(factories.running(ada, issue).pk)
    assert run is not None
    meanwhile(issue)
    before = [Issue.objects.filter(pk=issue.pk).values().get(), Checkout.objects.count()]
    assert not taking.at_once(run, now)
    after = [Issue.objects.filter(pk=issue.pk).values().get(), Checkout.objects.count()]
    assert (after, Activity.objects.count()) == (before, 0)


def test_what_blocked_it_once_is_not_in_the_way(issue: Issue, ada: Agent, now: datetime) -> None:
    closed_blocker(issue)
    Checkout.objects.create(
        company_id=issue.company_id, issue=issue, agent=ada, created_at=now, released_at=now
    )
    run = runs.read(factories.running(ada, issue).pk)
    assert run is not None
    assert taking.at_once(run, now)


@pytest.mark.parametrize("held", [False, True])
def test_under_a_former_epoch_nothing_is_taken(
    issue: Issue, ada: Agent, now: datetime, held: bool
) -> None:
    """Also where the long way would have found the issue in its own hands."""
    run = runs.read(factories.running(ada, issue).pk)
    assert run is not None
    if held:
        work.begin(run=run, now=now)
        run = runs.read(run.pk)
        assert run is not None
    HeartbeatRun.objects.filter(pk=run.pk).update(epoch=2)
    with pytest.raises(runs.Stale):
        work.begin(run=run, now=now + timedelta(seconds=1))
