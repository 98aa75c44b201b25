"""What a run is told, and what an agent can ask for."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from agents import sessions
from agents.models import Agent
from companies import activity
from companies.models import Company, User
from issues import briefing, inbox
from issues.models import Issue
from tests import factories

pytestmark = pytest.mark.django_db


def test_the_issue_with_its_surroundings(acme: Company, ada: Agent) -> None:
    top = factories.issue(acme, "Top")
    project = factories.project(acme, workspace="/srv/anvils")
    issue = factories.issue(
        acme,
        "Forge",
        description="Hot.",
        assignee=ada,
        parent=top,
        project=project,
        goal=factories.goal(acme),
        billing_code="R&D",
    )
    factories.issue(acme, "Part", parent=issue)
    run = factories.running(ada, issue)
    brief = briefing.write(run_id=run.id, epoch=1)
    task = brief.task
    assert task is not None
    assert (task.identifier, task.title, task.description) == ("ACM-2", "Forge", "Hot.")
    assert (task.project, task.goal) == ("Anvils", "Sell more anvils")
    assert (task.ancestors, task.children) == (["ACM-1 Top"], ["ACM-3 todo Part"])
    assert (brief.project_id, brief.billing_code, brief.workspace) == (
        project.id,
        "R&D",
        "/srv/anvils",
    )
    assert brief.is_assignee
    assert brief.env["PAPERCLIP_TASK_ID"] == str(issue.id)
    assert brief.env["PAPERCLIP_WORKSPACE_CWD"] == "/srv/anvils"
    assert "PAPERCLIP_API_KEY" not in brief.env


def test_a_run_that_has_changed_hands_is_not_briefed(issue: Issue, ada: Agent) -> None:
    run = factories.running(ada, issue)
    with pytest.raises(briefing.Gone):
        briefing.write(run_id=run.id, epoch=2)


def test_the_thread_in_order_with_its_roles(
    issue: Issue, ada: Agent, bo: Agent, olga: User, now: datetime
) -> None:
    for second, (author, body) in enumerate([(olga, "a"), (bo, "b"), (ada, "c"), (None, "d")]):
        factories.comment(issue, body, author=author, now=now + timedelta(seconds=second))
    brief = briefing.write(run_id=factories.running(ada, issue).id, epoch=1)
    assert [(m.role, m.author, m.body) for m in brief.thread] == [
        ("operator", "Olga", "a"),
        ("agent", "Bo", "b"),
        ("self", "Ada", "c"),
        ("system", "Paperclip", "d"),
    ]


def test_the_thread_is_bounded_and_keeps_the_newest(issue: Issue, ada: Agent, olga: User) -> None:
    for n in range(40):
        factories.comment(issue, f"{n} " + "x" * 2_000, author=olga)
    brief = briefing.write(run_id=factories.running(ada, issue).id, epoch=1)
    assert sum(len(m.body) for m in brief.thread) <= briefing.THREAD_CHARS
    assert brief.thread[-1].body.startswith("39 ")


def test_one_huge_comment_is_cut(issue: Issue, ada: Agent, olga: User) -> None:
    factories.comment(issue, "x" * 100_000, author=olga)
    brief = briefing.write(run_id=factories.running(ada, issue).id, epoch=1)
    assert len(brief.thread[0].body) < briefing.COMMENT_CHARS + 10


def test_the_payload_carries_the_new_comments_in_order(
    issue: Issue, ada: Agent, olga: User
) -> None:
    said = [factories.comment(issue, body, author=olga) for body in ("one", "two")]
    run = factories.running(ada, issue, comment_ids=[c.id for c in said], reason="issue_commented")
    brief = briefing.write(run_id=run.id, epoch=1)
    payload = json.loads(brief.env["PAPERCLIP_WAKE_PAYLOAD_JSON"])
    assert [c["body"] for c in payload["comments"]] == ["one", "two"]
    assert payload["issue"]["identifier"] == "ACM-1"
    assert payload["reason"] == brief.env["PAPERCLIP_WAKE_REASON"] == "issue_commented"
    assert payload["fallbackFetchNeeded"] is False
    assert brief.env["PAPERCLIP_WAKE_COMMENT_ID"] == str(said[-1].id)


def test_the_payload_is_bounded_and_says_so(issue: Issue, ada: Agent, olga: User) -> None:
    said = [factories.comment(issue, "x" * 5_000, author=olga) for _ in range(12)]
    run = factories.running(ada, issue, comment_ids=[c.id for c in said])
    payload = briefing.write(run_id=run.id, epoch=1).payload
    assert sum(len(c["body"]) for c in payload["comments"]) <= briefing.PAYLOAD_CHARS
    assert payload["comments"][-1]["id"] == str(said[-1].id)
    assert payload["commentWindow"] == {
        "requestedCount": 12,
        "includedCount": 3,
        "missingCount": 9,
    }
    assert payload["fallbackFetchNeeded"] is True


def test_a_timer_run_is_told_of_its_own_issues_only(acme: Company, ada: Agent, bo: Agent) -> None:
    mine = factories.issue(acme, assignee=ada)
    factories.issue(acme, assignee=bo)
    brief = briefing.write(run_id=factories.running(ada).id, epoch=1)
    assert brief.task is None
    assert [row["identifier"] for row in brief.payload["inbox"]] == [mine.identifier]
    assert "PAPERCLIP_TASK_ID" not in brief.env


def test_a_retry_keeps_its_first_reason(issue: Issue, ada: Agent) -> None:
    run = factories.running(
        ada,
        issue,
        reason="transient_failure_retry",
        payload={"originalReason": "issue_commented"},
        attempt=2,
    )
    brief = briefing.write(run_id=run.id, epoch=1)
    assert (brief.reason, brief.attempt) == ("issue_commented", 2)
    assert "originalReason" not in brief.payload


def test_the_last_session_goes_on(issue: Issue, ada: Agent) -> None:
    factories.run(ada, issue, status="succeeded", session={"id": "s-1"})
    brief = briefing.write(run_id=factories.running(ada, issue).id, epoch=1)
    assert brief.session == {"id": "s-1"}


@pytest.mark.parametrize("status", ["failed", "timed_out", "cancelled", "lost", "unknown"])
def test_a_session_that_was_not_given_back_is_left_to_whoever_may_still_be_at_it(
    issue: Issue, ada: Agent, status: str
) -> None:
    factories.run(ada, issue, status="succeeded", session={"id": "s-1"})
    factories.run(ada, issue, status=status, session={"id": "s-1"})

    brief = briefing.write(run_id=factories.running(ada, issue).id, epoch=1)

    assert brief.session == {}


def test_after_a_passing_failure_it_goes_on_with_what_was_booked_by_then(
    issue: Issue, ada: Agent
) -> None:
    kept = {"id": "s-1", "usage": {"input": 2300}}
    factories.run(ada, issue, status="succeeded", session={"id": "s-1", "usage": {"input": 1150}})
    factories.run(
        ada, issue, status="failed", session={"id": "s-1"}, result={"detail": {"session": kept}}
    )

    brief = briefing.write(run_id=factories.running(ada, issue).id, epoch=1)

    assert brief.session == kept  # and the 1,150 of the run that failed are not booked again


def test_a_run_that_came_to_no_session_leaves_the_one_before(issue: Issue, ada: Agent) -> None:
    factories.run(ada, issue, status="succeeded", session={"id": "s-1"})
    factories.run(ada, issue, status="failed", code="setup_failed")
    factories.run(ada, issue, status="cancelled", started_at=None)

    brief = briefing.write(run_id=factories.running(ada, issue).id, epoch=1)

    assert brief.session == {"id": "s-1"}


@pytest.mark.parametrize("code", ["budget_exhausted", "rate_limited", "issue_closed"])
def test_a_run_that_could_not_begin_leaves_the_session_before(
    issue: Issue, ada: Agent, code: str
) -> None:
    """It was claimed and then refused, and waits for room or for its provider."""
    factories.run(ada, issue, status="succeeded", session={"id": "s-1"})
    factories.run(ada, issue, status="cancelled", code=code)

    brief = briefing.write(run_id=factories.running(ada, issue).id, epoch=1)

    assert brief.session == {"id": "s-1"}


def test_who_was_stopped_before_it_named_its_session_may_have_the_one_before(
    issue: Issue, ada: Agent
) -> None:
    factories.run(ada, issue, status="succeeded", session={"id": "s-1"})
    factories.run(ada, issue, status="cancelled")

    brief = briefing.write(run_id=factories.running(ada, issue).id, epoch=1)

    assert brief.session == {}


def test_a_session_that_was_forgotten_does_not_come_back(
    issue: Issue, ada: Agent, now: datetime
) -> None:
    factories.run(ada, issue, status="succeeded", session={"id": "s-1"})
    failed = {"session": {"id": "s-1"}, "result": {"detail": {"session": {"id": "s-1"}}}}
    factories.run(ada, issue, status="failed", **failed)
    sessions.forget(agent=ada, issue_id=issue.id, actor=activity.SYSTEM, now=now)

    brief = briefing.write(run_id=factories.running(ada, issue).id, epoch=1)

    assert brief.session == {}


def test_a_broken_configuration_does_not_stop_the_briefing(acme: Company) -> None:
    agent = factories.agent(acme, adapter_type="gone", adapter_config={"x": 1})
    brief = briefing.write(run_id=factories.running(agent).id, epoch=1)
    assert brief.secret_names == frozenset()


def test_a_briefing_costs_few_queries(
    acme: Company, ada: Agent, olga: User, django_assert_max_num_queries
) -> None:
    issue = factories.issue(acme, assignee=ada, project=factories.project(acme))
    said = [factories.comment(issue, author=olga) for _ in range(10)]
    for _ in range(10):
        factories.issue(acme, parent=issue)
    run = factories.running(ada, issue, comment_ids=[c.id for c in said])
    with django_assert_max_num_queries(6):
        briefing.write(run_id=run.id, epoch=1)


# --- over HTTP -------------------------------------------------------------------------------


def test_the_context_has_the_agreed_shape(acme: Company, ada: Agent, olga: User) -> None:
    parent = factories.issue(acme, "Top")
    issue = factories.issue(acme, assignee=ada, parent=parent, goal=factories.goal(acme))
    blocking = factories.issue(acme)
    factories.blocker(issue, by=blocking)
    said = factories.comment(issue, "Hello", author=olga)
    context = briefing.context(issue=issue, comment_id=said.id)
    assert context["issue"]["identifier"] == "ACM-2"
    assert [one["identifier"] for one in context["issue"]["blockedBy"]] == ["ACM-3"]
    assert [one["identifier"] for one in context["ancestors"]] == ["ACM-1"]
    assert context["goal"]["title"] == "Sell more anvils"
    assert context["project"] is None
    assert context["commentCursor"]["totalComments"] == 1
    assert context["wakeComment"]["authorName"] == "Olga"
    assert context["issue"]["updatedAt"].endswith("Z")
    json.dumps(context)


def test_a_foreign_comment_is_not_shown(issue: Issue, acme: Company, olga: User) -> None:
    elsewhere = factories.comment(factories.issue(acme), author=olga)
    assert briefing.context(issue=issue, comment_id=elsewhere.id)["wakeComment"] is None


def test_the_inbox_begins_with_what_can_be_done(
    acme: Company, ada: Agent, django_assert_num_queries
) -> None:
    waiting = factories.issue(acme, status="blocked", assignee=ada, priority=0)
    factories.blocker(waiting, by=factories.issue(acme))
    low = factories.issue(acme, assignee=ada, priority=3)
    high = factories.issue(acme, assignee=ada, priority=1)
    running = factories.issue(acme, status="in_progress", assignee=ada)
    factories.running(ada, running)
    for status in ("done", "backlog"):
        factories.issue(acme, status=status, assignee=ada)
    with django_assert_num_queries(1):
        rows = inbox.for_agent(ada)
    expected = [running, high, low, waiting]
    assert [row["identifier"] for row in rows] == [issue.identifier for issue in expected]
    assert rows[0]["activeRun"]["status"] == "running"
    assert (rows[-1]["dependencyReady"], rows[-1]["unresolvedBlockerCount"]) == (False, 1)


def test_what_waits_for_people(
    acme: Company, globex: Company, ada: Agent, bo: Agent, now: datetime
) -> None:
    factories.interaction(factories.issue(acme, status="in_review", assignee=ada), asked_by=ada)
    factories.issue(acme, status="in_review", assignee=ada)
    factories.issue(globex, status="in_review")
    factories.run(bo, status="failed", code="auth_failed")
    Agent.objects.filter(id=bo.id).update(error_code="auth_failed")
    factories.hold(ada, "agent_budget", "5.00 USD are spent.")
    factories.hold(bo, "operator")
    items = inbox.for_operators(acme.id, now=now)
    assert sorted(item.kind for item in items) == ["failed", "hold", "question", "review"]
    assert inbox.count(acme.id) == 2
    failed = next(item for item in items if item.kind == "failed")
    assert failed.title == "Bo: Key not accepted"


def test_an_agent_that_has_recovered_is_no_news(acme: Company, bo: Agent, now: datetime) -> None:
    factories.run(bo, status="failed", code="auth_failed")
    assert inbox.for_operators(acme.id, now=now) == []
