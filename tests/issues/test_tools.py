"""The tools of a chat model over its issue."""

from __future__ import annotations

from datetime import datetime

import pytest

from agents.adapters.base import ToolResult
from agents.models import Agent, HeartbeatRun
from companies.access import Principal
from companies.models import Company
from issues import ownership, tools, work
from issues.models import Comment, Interaction, Issue
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(issue: Issue, ada: Agent) -> HeartbeatRun:
    run = factories.running(ada, issue)
    work.checkout(issue=issue, agent=ada, run=run)
    return run


def use(run: HeartbeatRun, now: datetime, name: str, **arguments: object) -> ToolResult:
    assert run.issue is not None
    principal = Principal(
        kind="run",
        name=run.agent.name,
        agent_id=run.agent_id,
        company_id=run.company_id,
        run_id=run.id,
    )
    return tools.call(principal=principal, issue=run.issue, name=name, arguments=arguments, now=now)


def test_a_comment_is_the_agents_and_the_runs(run: HeartbeatRun, now: datetime) -> None:
    assert not use(run, now, "comment", body="Half way.").is_error
    comment = Comment.objects.get()
    assert (comment.author_agent, comment.run) == (run.agent, run)


def test_set_status_reports_and_closes(run: HeartbeatRun, now: datetime) -> None:
    result = use(run, now, "set_status", status="done", result="An anvil of 40 kg.")
    run.issue.refresh_from_db()
    assert (result.is_error, result.closes, run.issue.status) == (False, True, "done")
    assert Comment.objects.get().body == "An anvil of 40 kg."


def test_blocked_keeps_its_reason(run: HeartbeatRun, now: datetime) -> None:
    use(run, now, "set_status", status="blocked", result="I need\niron.")
    run.issue.refresh_from_db()
    assert run.issue.blocked_reason == "I need iron."


def test_a_sub_issue_goes_to_a_named_agent(run: HeartbeatRun, bo: Agent, now: datetime) -> None:
    result = use(run, now, "create_sub_issue", title="Cast", assignee="@Bo", priority="high")
    child = Issue.objects.get(parent=run.issue)
    assert result.text.startswith("ACM-2")
    assert (child.assignee_agent, child.status, child.created_by_agent) == (bo, "todo", run.agent)
    assert HeartbeatRun.objects.get(agent=bo).issue == child


def test_an_unknown_name_is_answered_with_the_known_ones(
    run: HeartbeatRun, bo: Agent, spy: Agent, now: datetime
) -> None:
    result = use(run, now, "create_sub_issue", title="Cast", assignee="Spy")
    assert result.is_error
    assert "Ada, Bo" in result.text
    assert not Issue.objects.filter(parent=run.issue).exists()


def test_a_question_waits_for_people(run: HeartbeatRun, now: datetime) -> None:
    result = use(run, now, "ask_operator", question="Round?", options=["Yes", " ", "No"])
    run.issue.refresh_from_db()
    asked = Interaction.objects.get()
    assert (result.closes, run.issue.status) == (True, "in_review")
    assert asked.payload == {"question": "Round?", "options": ["Yes", "No"]}
    assert asked.run == run


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("drop_tables", {}),
        ("comment", {}),
        ("comment", {"body": ""}),
        ("comment", {"body": "   "}),
        ("comment", {"body": 7}),
        ("comment", {"body": "a\x00b"}),
        ("comment", {"body": "\ud800"}),
        ("comment", {"body": "x" * 200_000}),
        ("comment", {"body": "x", "author": "olga"}),
        ("set_status", {"status": "done"}),
        ("set_status", {"status": "in_progress", "result": "x"}),
        ("set_status", {"status": ["done"], "result": "x"}),
        ("set_status", {"status": "done", "result": {"a": 1}}),
        ("create_sub_issue", {"title": "x" * 301}),
        ("create_sub_issue", {"title": "T", "priority": "urgent"}),
        ("create_sub_issue", {"title": "T", "assignee": {"id": 1}}),
        ("create_sub_issue", {"title": None}),
        ("ask_operator", {"question": "?", "options": "yes"}),
        ("ask_operator", {"question": "?", "options": [1]}),
        ("ask_operator", {"question": "a\x00"}),
    ],
)
def test_what_is_wrong_is_told_to_the_model(
    name: str, arguments: dict, run: HeartbeatRun, now: datetime
) -> None:
    result = use(run, now, name, **arguments)
    assert result.is_error
    assert result.text
    assert not Comment.objects.exists()
    assert Issue.objects.count() == 1


def test_arguments_that_are_no_object_are_refused(run: HeartbeatRun, now: datetime) -> None:
    principal = Principal(kind="run", agent_id=run.agent_id, company_id=run.company_id)
    result = tools.call(
        principal=principal,
        issue=run.issue,
        name="comment",
        arguments=["body"],  # type: ignore[arg-type]
        now=now,
    )
    assert result.is_error


def test_a_refused_step_tells_the_open_ones(acme: Company, ada: Agent, now: datetime) -> None:
    run = factories.running(ada, factories.issue(acme, status="done", assignee=ada))
    result = use(run, now, "set_status", status="in_review", result="Look.")
    assert result.is_error
    assert "Possible now: todo" in result.text


def test_too_many_sub_issues_are_refused(run: HeartbeatRun, acme: Company, now: datetime) -> None:
    factories.issues(acme, ownership.MAX_CHILDREN_A_RUN, created_by_agent=run.agent)
    assert use(run, now, "create_sub_issue", title="One more").is_error


def test_every_tool_is_described_and_carried_out() -> None:
    assert {spec.name for spec in tools.TOOLS} == set(tools._TOOLS)
    for spec in tools.TOOLS:
        assert spec.parameters["additionalProperties"] is False
        assert spec.description
