"""Putting issues on the board."""

from __future__ import annotations

from datetime import datetime

import pytest

from agents.models import Agent, HeartbeatRun
from companies.activity import Actor
from companies.errors import Conflict, Invalid, NotFound, RateLimited
from companies.models import Activity, Company, User
from issues import board, ownership, transitions
from issues.models import Issue
from tests import factories

pytestmark = pytest.mark.django_db


def test_numbers_count_up_in_each_company(
    acme: Company, globex: Company, by_olga: Actor, oscar: User
) -> None:
    made = [board.create(company=acme, actor=by_olga, title=f"T{n}").identifier for n in range(2)]
    other = board.create(company=globex, actor=Actor("user", oscar.id), title="T").identifier
    assert (made, other) == (["ACM-1", "ACM-2"], "GLO-1")


def test_an_issue_without_anybody_lies_in_the_backlog(acme: Company, by_olga: Actor) -> None:
    issue = board.create(company=acme, actor=by_olga, title="Later")
    assert issue.status == "backlog"
    assert issue.created_by_user_id == by_olga.id


def test_an_assigned_issue_is_to_do_and_wakes_its_agent(
    acme: Company, ada: Agent, by_olga: Actor, now: datetime
) -> None:
    issue = board.create(
        company=acme, actor=by_olga, title="Now", assignee_agent=ada, priority="high", now=now
    )
    run = HeartbeatRun.objects.get()
    assert issue.status == "todo"
    assert (run.agent, run.issue, run.reason, run.source) == (
        ada,
        issue,
        "issue_assigned",
        "assignment",
    )
    assert run.priority == issue.priority == 1


def test_creation_is_in_the_activity_with_its_values(
    acme: Company, ada: Agent, by_olga: Actor
) -> None:
    issue = board.create(company=acme, actor=by_olga, title="Now", assignee_agent=ada)
    row = Activity.objects.get(action="issue.created")
    assert (row.entity_id, row.actor_id) == (issue.id, by_olga.id)
    assert row.details["after"] == {"status": "todo", "priority": "medium", "assignee": "Ada"}


def test_a_blocked_issue_waits_without_a_run(acme: Company, ada: Agent, by_olga: Actor) -> None:
    first = factories.issue(acme)
    issue = board.create(
        company=acme, actor=by_olga, title="After", assignee_agent=ada, blocked_by=[first]
    )
    assert issue.status == "blocked"
    assert not HeartbeatRun.objects.exists()


def test_what_is_done_blocks_nothing(acme: Company, ada: Agent, by_olga: Actor) -> None:
    first = factories.issue(acme, status="done")
    issue = board.create(
        company=acme, actor=by_olga, title="After", assignee_agent=ada, blocked_by=[first]
    )
    assert issue.status == "todo"
    assert HeartbeatRun.objects.filter(issue=issue).exists()


def test_a_child_inherits_project_goal_and_billing_code(acme: Company, by_olga: Actor) -> None:
    parent = factories.issue(
        acme,
        project=factories.project(acme),
        goal=factories.goal(acme),
        billing_code="R&D",
    )
    child = board.create(company=acme, actor=by_olga, title="Part", parent=parent)
    assert (child.project, child.goal, child.billing_code) == (parent.project, parent.goal, "R&D")


def test_an_agent_that_gives_itself_work_is_woken(acme: Company, ada: Agent, by_ada: Actor) -> None:
    issue = board.create(company=acme, actor=by_ada, title="Mine", assignee_agent=ada)
    assert HeartbeatRun.objects.get().issue == issue
    assert issue.request_depth == 1


def test_agents_cannot_pass_work_on_for_ever(acme: Company, bo: Agent, by_ada: Actor) -> None:
    deep = factories.issue(acme, request_depth=ownership.MAX_REQUEST_DEPTH)
    with pytest.raises(transitions.Unprocessable) as refusal:
        board.create(company=acme, actor=by_ada, title="Again", assignee_agent=bo, parent=deep)
    assert refusal.value.code == "request_too_deep"


def test_depth_counts_through_the_run_without_a_parent(
    acme: Company, ada: Agent, bo: Agent
) -> None:
    run = factories.running(ada, factories.issue(acme, assignee=ada, request_depth=4))
    actor = Actor("agent", ada.id, "Ada", run.id)
    made = board.create(company=acme, actor=actor, title="Passed on", assignee_agent=bo)
    assert made.request_depth == 5


def test_one_run_cannot_flood_the_board(acme: Company, ada: Agent, by_ada: Actor) -> None:
    factories.issues(acme, ownership.MAX_CHILDREN_A_RUN, created_by_agent=ada)
    with pytest.raises(RateLimited):
        board.create(company=acme, actor=by_ada, title="One more")


def test_people_are_not_limited(acme: Company, ada: Agent, by_olga: Actor) -> None:
    factories.issues(acme, ownership.MAX_CHILDREN_A_RUN, created_by_agent=ada)
    assert board.create(company=acme, actor=by_olga, title="One more").number == 51


@pytest.mark.parametrize("what", ["assignee_agent", "project", "goal", "parent"])
def test_a_reference_of_another_company_does_not_exist(
    what: str, acme: Company, globex: Company, spy: Agent, by_olga: Actor
) -> None:
    foreign = {
        "assignee_agent": spy,
        "project": factories.project(globex),
        "goal": factories.goal(globex),
        "parent": factories.issue(globex),
    }[what]
    with pytest.raises(NotFound):
        board.create(company=acme, actor=by_olga, title="Theft", **{what: foreign})
    assert not Issue.objects.for_company(acme.id).exists()


def test_a_foreign_blocker_does_not_exist(acme: Company, globex: Company, by_olga: Actor) -> None:
    with pytest.raises(NotFound):
        board.create(company=acme, actor=by_olga, title="T", blocked_by=[factories.issue(globex)])


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"title": ""}, "title"),
        ({"title": "   "}, "title"),
        ({"title": "x" * 301}, "title"),
        ({"title": "a\x00b"}, "title"),
        ({"title": "half \ud83d"}, "title"),
        ({"title": 7}, "title"),
        ({"title": "T", "description": "x" * 100_001}, "description"),
        ({"title": "T", "priority": "urgent"}, "priority"),
        ({"title": "T", "priority": 9}, "priority"),
        ({"title": "T", "priority": True}, "priority"),
        ({"title": "T", "status": "done"}, "status"),
        ({"title": "T", "status": "in_progress"}, "status"),
        ({"title": "T", "status": "nonsense"}, "status"),
        ({"title": "T", "status": ["todo"]}, "status"),
        ({"title": "T", "billing_code": "x" * 81}, "billing_code"),
    ],
)
def test_bad_input_names_its_field(fields: dict, field: str, acme: Company, by_olga: Actor) -> None:
    with pytest.raises(Invalid) as refusal:
        board.create(company=acme, actor=by_olga, **fields)
    assert refusal.value.field == field


def test_a_person_and_an_agent_cannot_both_have_it(
    acme: Company, ada: Agent, olga: User, by_olga: Actor
) -> None:
    with pytest.raises(Invalid) as refusal:
        board.create(company=acme, actor=by_olga, title="T", assignee_agent=ada, assignee_user=olga)
    assert refusal.value.code == "two_assignees"


def test_a_stranger_cannot_be_assigned(acme: Company, oscar: User, by_olga: Actor) -> None:
    with pytest.raises(Invalid) as refusal:
        board.create(company=acme, actor=by_olga, title="T", assignee_user=oscar)
    assert refusal.value.code == "not_a_member"


def test_a_terminated_agent_gets_no_work(acme: Company, ada: Agent, by_olga: Actor) -> None:
    Agent.objects.filter(id=ada.id).update(status="terminated")
    ada.refresh_from_db()
    with pytest.raises(transitions.Unprocessable):
        board.create(company=acme, actor=by_olga, title="T", assignee_agent=ada)


def test_an_agent_cannot_leave_work_with_a_paused_one(
    acme: Company, ada: Agent, bo: Agent, by_ada: Actor
) -> None:
    factories.hold(bo)
    with pytest.raises(Conflict) as refusal:
        board.create(company=acme, actor=by_ada, title="T", assignee_agent=bo)
    assert [one["name"] for one in refusal.value.details["alternatives"]] == ["Ada"]


def test_a_person_can(acme: Company, bo: Agent, by_olga: Actor) -> None:
    factories.hold(bo)
    issue = board.create(company=acme, actor=by_olga, title="T", assignee_agent=bo)
    assert HeartbeatRun.objects.filter(issue=issue, status="queued").exists()
