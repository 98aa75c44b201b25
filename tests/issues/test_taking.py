"""How an issue is taken in one statement, and when it is not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from agents import runs
from agents.models import Agent, HeartbeatRun
from companies.errors import Conflict, NotFound
from companies.models import Activity, Company, User
from issues import taking, transitions, work
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


@pytest.mark.parametrize("status", ["todo", "backlog", "blocked", "in_review"])
@pytest.mark.parametrize("mine", [True, False])
def test_an_agent_with_its_own_key_takes_an_issue_in_one_statement(
    acme: Company, ada: Agent, now: datetime, status: str, mine: bool,
    django_assert_num_queries: Any,
) -> None:  # fmt: skip
    fields: dict[str, Any] = {"assignee": ada if mine else None, "status": status}
    issues = [factories.issue(acme, blocked_reason="Paint.", **fields) for _ in range(2)]
    with django_assert_num_queries(1):
        at_once = work.checkout(issue=issues[0], agent=ada, now=now)
    issues[1].status = "in_progress"  # as somebody sees it who has looked long ago
    step_by_step = work.checkout(issue=issues[1], agent=ada, now=now)
    assert whole(issues[0]) == whole(issues[1])
    for known, issue in ((at_once, issues[0]), (step_by_step, issues[1])):
        (row,) = Issue.objects.filter(pk=issue.pk).values()
        assert {name: getattr(known, name) for name in row} == row


@pytest.mark.parametrize(
    ("meanwhile", "refusal"),
    [
        (open_blocker, transitions.Unprocessable),
        (another_holder, Conflict),
        (change(status="done", version=2), Conflict),
        (change(archived_at=None, version=2), None),
    ],
)
def test_what_is_in_the_way_of_an_agent_is_told(
    issue: Issue, ada: Agent, now: datetime, meanwhile: Callable[[Issue], None],
    refusal: type[Exception] | None,
) -> None:  # fmt: skip
    meanwhile(issue)
    if refusal is None:
        assert work.checkout(issue=issue, agent=ada, now=now).version == 3
        return
    before = Checkout.objects.count()
    with pytest.raises(refusal):
        work.checkout(issue=issue, agent=ada, now=now)
    assert (Checkout.objects.count(), Activity.objects.count()) == (before, 0)


def test_an_agent_takes_no_issue_of_another_company(
    ada: Agent, globex: Company, now: datetime
) -> None:
    foreign = factories.issue(globex)
    with pytest.raises(NotFound):
        work.checkout(issue=foreign, agent=ada, now=now)
    assert not Checkout.objects.exists()


def test_a_person_keeps_an_issue_that_became_theirs_meanwhile(
    issue: Issue, ada: Agent, olga: User, now: datetime
) -> None:
    Issue.objects.filter(pk=issue.pk).update(assignee_user=olga, assignee_agent=None)
    with pytest.raises(Conflict) as refused:
        work.checkout(issue=issue, agent=ada, now=now)
    assert refused.value.code == "assigned_to_person"
