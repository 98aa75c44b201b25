"""Why nobody is working on an issue."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from agents.models import Agent
from companies.models import Company, User
from issues import lines, why
from issues.models import Issue
from tests import factories

pytestmark = pytest.mark.django_db


def codes(issue: Issue) -> list[str]:
    return [chip.code for chip in why.not_running(issue)]


def test_what_runs_or_is_closed_needs_no_reason(acme: Company, ada: Agent) -> None:
    running = factories.issue(acme, status="in_progress", assignee=ada)
    factories.running(ada, running)
    assert codes(running) == []
    assert codes(factories.issue(acme, status="done", assignee=ada)) == []


def test_nobody_is_assigned(acme: Company) -> None:
    assert codes(factories.issue(acme)) == ["no_assignee"]


def test_it_waits_for_other_issues(issue: Issue) -> None:
    for blocking in factories.issues(issue.company, 4):
        factories.blocker(issue, by=blocking)
    chip = why.not_running(issue)[0]
    assert (chip.code, chip.text) == ("blocked_by", "Blocked by ACM-2, ACM-3, ACM-4 and 1 more")


def test_somebody_must_do_something(acme: Company, ada: Agent) -> None:
    issue = factories.issue(acme, status="blocked", assignee=ada, blocked_reason="Buy iron.")
    assert [(c.code, c.text) for c in why.not_running(issue)] == [("blocked", "Buy iron.")]


@pytest.mark.parametrize(
    ("reason", "code", "action"),
    [
        ("operator", "agent_paused", "resume"),
        ("quota", "agent_paused", "resume"),
        ("loop", "agent_paused", "resume"),
        ("agent_budget", "budget_hold", "raise_budget"),
        ("company_budget", "budget_hold", "raise_budget"),
        ("project_budget", "budget_hold", "raise_budget"),
    ],
)
def test_each_hold_has_its_words(
    reason: str, code: str, action: str, issue: Issue, ada: Agent
) -> None:
    factories.run(ada, issue)
    factories.hold(ada, reason)
    chip = why.not_running(issue)[0]
    assert (chip.code, chip.action) == (code, action)
    assert chip.text.startswith("Ada is ") or chip.text.startswith("Ada has ")


def test_the_company_is_paused(issue: Issue, acme: Company, ada: Agent) -> None:
    acme.status = "paused"
    factories.run(ada, issue)
    assert codes(issue) == ["company_paused", "queued"]


def test_the_agent_is_busy_elsewhere(acme: Company, issue: Issue, ada: Agent) -> None:
    other = factories.issue(acme, status="in_progress", assignee=ada)
    factories.running(ada, other)
    factories.run(ada, issue)
    assert [(c.code, c.text) for c in why.not_running(issue)] == [
        ("cap_full", "Ada is busy with ACM-2")
    ]


def test_with_room_left_it_is_only_queued(acme: Company, issue: Issue, ada: Agent) -> None:
    Agent.objects.filter(id=ada.id).update(max_concurrent_runs=2)
    factories.running(ada, factories.issue(acme, assignee=ada))
    factories.run(ada, issue)
    assert codes(issue) == ["queued"]


def test_it_tries_again_later(issue: Issue, ada: Agent, now: datetime) -> None:
    later = now + timedelta(minutes=10)
    factories.run(ada, issue, not_before=later, attempt=2)
    chip = why.not_running(issue)[0]
    assert (chip.code, chip.at) == ("retry_at", later)


def test_nothing_is_planned(issue: Issue) -> None:
    assert [(c.code, c.action) for c in why.not_running(issue)] == [("no_run", "wake")]


def test_the_last_run_failed(issue: Issue, ada: Agent) -> None:
    Agent.objects.filter(id=ada.id).update(error_code="auth_failed")
    assert why.not_running(issue)[0].text == "Ada's last run failed: Key not accepted"


def test_it_waits_for_people(acme: Company, ada: Agent) -> None:
    review = factories.issue(acme, status="in_review", assignee=ada)
    assert codes(review) == ["in_review"]
    asked = factories.interaction(review, asked_by=ada)
    chip = why.not_running(review)[0]
    assert (chip.code, chip.action, chip.ref) == ("waiting_for_you", "answer", asked.id)


def test_a_persons_issue_is_theirs(acme: Company, olga: User) -> None:
    assert codes(factories.issue(acme, assignee=olga)) == ["with_person"]
    blocked = factories.issue(acme, assignee=olga)
    factories.blocker(blocked, by=factories.issue(acme))
    assert codes(blocked) == ["blocked_by"]


def test_a_terminated_agent_does_nothing(issue: Issue, ada: Agent) -> None:
    Agent.objects.filter(id=ada.id).update(status="terminated")
    assert codes(issue) == ["agent_terminated"]


def test_a_long_list_costs_as_many_queries_as_a_short_one(
    acme: Company, ada: Agent, django_assert_num_queries
) -> None:
    issues = factories.issues(acme, 30, assignee=ada)
    for one in issues[:10]:
        factories.run(ada, one)
        factories.blocker(one, by=issues[20])
        factories.interaction(one)
    factories.hold(ada)
    for size in (2, 30):
        with django_assert_num_queries(4):
            why.reasons(issues[:size], company=acme)


def test_every_open_issue_that_is_not_running_carries_a_reason(
    acme: Company, ada: Agent, olga: User
) -> None:
    """Whatever its status, whoever has it; a list shows the first, without saying it twice."""
    made = [
        factories.issue(acme, status=status, assignee=who)
        for status in Issue.Status
        if status not in Issue.CLOSED
        for who in (None, ada, olga)
        if who is not None or status != "in_progress"
    ]
    found = why.reasons(made, company=acme)
    shown = lines.by_id([one.id for one in made], company=acme, now=timezone.now())
    assert len(shown) == len(made)
    for issue, row in zip(made, shown, strict=True):
        assert found[issue.id], issue
        assert row.chip == found[issue.id][0], issue


def test_lists_get_the_weightiest_reason(acme: Company, issue: Issue, spy: Agent) -> None:
    foreign = factories.issue(spy.company)
    found = why.chips(company_id=acme.id, issue_ids=[issue.id, foreign.id])
    assert found == {issue.id: ("no_run", "No run is planned")}
