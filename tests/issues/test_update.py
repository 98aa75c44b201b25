"""Changing issues: the status machine, assignees, versions."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta

import pytest

from agents.models import Agent, HeartbeatRun
from companies.activity import Actor
from companies.errors import Conflict, Forbidden, Invalid, NotFound
from companies.models import Activity, Company, User
from issues import board, transitions
from issues.models import Checkout, Interaction, Issue
from tests import factories

pytestmark = pytest.mark.django_db

S = Issue.Status
ALL = [(a, b) for a in S.values for b in S.values if a != b]


def change(issue: Issue, actor: Actor, **changes: object) -> Issue:
    return board.update(issue=issue, changes=changes, actor=actor)


@pytest.mark.parametrize(("status", "to"), ALL)
def test_an_agent_keeps_to_the_table(
    status: str, to: str, acme: Company, ada: Agent, by_ada: Actor
) -> None:
    issue = factories.issue(acme, status=status, assignee=ada)
    factories.checkout(issue, ada)
    extra = {"blocked_reason": "Olga must buy iron."} if to == "blocked" else {}
    step = {"changes": {"status": to, **extra}, "actor": by_ada, "comment": "Because."}
    if to in transitions.TABLE[status]:
        assert board.update(issue=issue, **step).status == to
    else:
        with pytest.raises(transitions.Unprocessable) as refusal:
            board.update(issue=issue, **step)
        assert refusal.value.details["allowed"] == transitions.targets(status, person=False)
        issue.refresh_from_db()
        assert issue.status == status


@pytest.mark.parametrize("status", ["backlog", "todo", "blocked", "in_review"])
def test_a_person_closes_by_hand(status: str, acme: Company, ada: Agent, by_olga: Actor) -> None:
    issue = factories.issue(acme, status=status, assignee=ada)
    done = change(issue, by_olga, status="done")
    assert done.status == "done"
    assert done.completed_at is not None


def test_a_refusal_names_what_is_missing(acme: Company, by_olga: Actor) -> None:
    with pytest.raises(transitions.Unprocessable) as refusal:
        change(factories.issue(acme), by_olga, status="in_progress")
    assert refusal.value.code == "assignee_needed"
    assert "assignee" in refusal.value.details["needs"]


def test_an_agents_issue_needs_its_checkout_to_be_in_progress(issue: Issue, by_olga: Actor) -> None:
    with pytest.raises(transitions.Unprocessable) as refusal:
        change(issue, by_olga, status="in_progress")
    assert refusal.value.code == "checkout_needed"


def test_a_persons_issue_needs_none(
    acme: Company, olga: User, by_olga: Actor, now: datetime
) -> None:
    issue = factories.issue(acme, assignee=olga)
    started = board.update(issue=issue, changes={"status": "in_progress"}, actor=by_olga, now=now)
    assert started.started_at == now


def test_nothing_starts_while_it_is_blocked(acme: Company, olga: User, by_olga: Actor) -> None:
    issue = factories.issue(acme, assignee=olga)
    factories.blocker(issue, by=factories.issue(acme))
    with pytest.raises(transitions.Unprocessable) as refusal:
        change(issue, by_olga, status="in_progress")
    assert refusal.value.details["blockedBy"] == ["ACM-2"]


def test_blocked_needs_a_blocker_or_a_reason(issue: Issue, by_olga: Actor) -> None:
    with pytest.raises(transitions.Unprocessable) as refusal:
        change(issue, by_olga, status="blocked")
    assert refusal.value.code == "blocker_needed"
    assert change(issue, by_olga, status="blocked", blocked_reason="Olga buys iron").blocked_reason


def test_the_reason_goes_with_the_status(issue: Issue, by_olga: Actor) -> None:
    change(issue, by_olga, status="blocked", blocked_reason="Olga buys iron")
    assert change(issue, by_olga, status="todo").blocked_reason == ""


def test_reopening_needs_a_comment(acme: Company, ada: Agent, by_olga: Actor) -> None:
    issue = factories.issue(acme, status="done", assignee=ada)
    with pytest.raises(transitions.Unprocessable) as refusal:
        change(issue, by_olga, status="todo")
    assert refusal.value.code == "reopen_needs_comment"
    reopened = board.update(
        issue=issue, changes={"status": "todo"}, actor=by_olga, comment="It broke again."
    )
    assert (reopened.status, reopened.completed_at) == ("todo", None)
    assert HeartbeatRun.objects.get().reason == "issue_reopened_via_comment"


def test_an_agents_review_needs_a_person(acme: Company, ada: Agent, by_ada: Actor) -> None:
    issue = factories.issue(acme, status="in_progress", assignee=ada)
    acme.memberships.all().delete()
    with pytest.raises(transitions.Unprocessable) as refusal:
        change(issue, by_ada, status="in_review")
    assert refusal.value.code == "reviewer_needed"
    factories.interaction(issue, asked_by=ada)
    assert change(issue, by_ada, status="in_review").status == "in_review"


def test_an_agent_cannot_finish_over_open_blockers(
    acme: Company, ada: Agent, by_ada: Actor
) -> None:
    issue = factories.issue(acme, status="in_progress", assignee=ada)
    factories.blocker(issue, by=factories.issue(acme))
    with pytest.raises(transitions.Unprocessable) as refusal:
        change(issue, by_ada, status="done")
    assert refusal.value.code == "open_blockers"


def test_a_person_can_and_it_is_written_down(issue: Issue, by_olga: Actor) -> None:
    factories.blocker(issue, by=factories.issue(issue.company))
    change(issue, by_olga, status="done")
    assert Activity.objects.get(action="issue.updated").details["overridden"] == ["open_blockers"]


def test_the_version_counts_changes_and_guards_them(issue: Issue, by_olga: Actor) -> None:
    assert change(issue, by_olga, title="Forge two").version == 2
    with pytest.raises(Conflict) as refusal:
        board.update(issue=issue, changes={"title": "Three"}, actor=by_olga, if_version=1)
    assert refusal.value.details["version"] == 2


def test_no_change_is_no_version_and_no_activity(issue: Issue, by_olga: Actor) -> None:
    assert change(issue, by_olga, title=issue.title, status=issue.status).version == 1
    assert not Activity.objects.exists()


def test_activity_tells_before_and_after(issue: Issue, bo: Agent, by_olga: Actor) -> None:
    change(issue, by_olga, priority="low", assignee_agent=bo)
    details = Activity.objects.get(action="issue.updated").details
    assert details["before"] == {"priority": "medium", "assignee": "Ada"}
    assert details["after"] == {"priority": "low", "assignee": "Bo"}


def test_an_unknown_field_is_refused(issue: Issue, by_olga: Actor) -> None:
    with pytest.raises(Invalid) as refusal:
        change(issue, by_olga, number=7)
    assert refusal.value.field == "number"


def test_a_failed_update_writes_nothing(issue: Issue, by_olga: Actor) -> None:
    with pytest.raises(transitions.Unprocessable):
        board.update(
            issue=issue, changes={"status": "in_review"}, actor=by_olga, comment="Look at this"
        )
    assert not issue.comments.exists()
    assert not Activity.objects.exists()


# --- who may ---------------------------------------------------------------------------------


def test_an_agent_leaves_a_persons_issue_alone(acme: Company, olga: User, by_ada: Actor) -> None:
    with pytest.raises(Forbidden) as refusal:
        change(factories.issue(acme, assignee=olga), by_ada, title="Mine now")
    assert refusal.value.code == "persons_issue"


def test_an_agent_leaves_anothers_issue_alone(issue: Issue, by_bo: Actor) -> None:
    with pytest.raises(Conflict) as refusal:
        change(issue, by_bo, status="cancelled")
    assert refusal.value.details["assigneeAgentId"] == str(issue.assignee_agent_id)


def test_who_asked_for_it_may_change_it(acme: Company, ada: Agent, bo: Agent, by_bo: Actor) -> None:
    issue = factories.issue(acme, assignee=ada, created_by_agent=bo)
    assert change(issue, by_bo, status="cancelled").status == "cancelled"


def test_a_manager_may_change_what_reports_work_on(
    acme: Company, ada: Agent, by_ada: Actor
) -> None:
    lead = factories.agent(acme, "Lead", reports_to=ada)
    worker = factories.agent(acme, "Worker", reports_to=lead)
    issue = factories.issue(acme, assignee=worker)
    assert change(issue, by_ada, priority="critical").priority == 0


# --- who hears of it -------------------------------------------------------------------------


def test_a_new_assignee_is_woken_and_the_old_one_stops(
    issue: Issue, ada: Agent, bo: Agent, by_olga: Actor
) -> None:
    queued = factories.run(ada, issue)
    moved = change(issue, by_olga, assignee_agent=bo)
    queued.refresh_from_db()
    assert moved.assignee_agent == bo
    assert queued.status == "cancelled"
    assert HeartbeatRun.objects.live().get().agent == bo


def test_the_old_agents_running_run_is_asked_to_stop(
    acme: Company, ada: Agent, bo: Agent, by_olga: Actor
) -> None:
    issue = factories.issue(acme, status="in_progress", assignee=ada)
    run = factories.running(ada, issue)
    factories.checkout(issue, ada, run)
    moved = change(issue, by_olga, assignee_agent=bo)
    run.refresh_from_db()
    assert run.cancel_requested_at is not None
    assert moved.status == "todo"
    assert not Checkout.objects.filter(released_at=None).exists()


def test_an_agent_that_hands_its_issue_on_keeps_its_own_run(
    acme: Company, ada: Agent, bo: Agent
) -> None:
    issue = factories.issue(acme, status="in_progress", assignee=ada)
    run = factories.running(ada, issue)
    factories.checkout(issue, ada, run)
    change(issue, Actor("agent", ada.id, "Ada", run.id), assignee_agent=bo)
    run.refresh_from_db()
    assert (run.status, run.cancel_requested_at) == ("running", None)
    assert HeartbeatRun.objects.filter(agent=bo, status="queued").count() == 1


def test_assigning_a_person_takes_it_from_the_agent(
    issue: Issue, olga: User, by_olga: Actor
) -> None:
    moved = change(issue, by_olga, assignee_user=olga)
    assert (moved.assignee_agent, moved.assignee_user) == (None, olga)


def test_planning_an_issue_wakes_its_agent(acme: Company, ada: Agent, by_olga: Actor) -> None:
    issue = factories.issue(acme, status="backlog", assignee=ada)
    change(issue, by_olga, status="todo")
    assert HeartbeatRun.objects.get().reason == "issue_status_changed"


def test_an_agents_own_change_does_not_wake_it(acme: Company, ada: Agent, by_ada: Actor) -> None:
    issue = factories.issue(acme, status="blocked", assignee=ada, blocked_reason="x")
    change(issue, by_ada, status="todo")
    assert not HeartbeatRun.objects.exists()


def test_closing_stops_what_is_queued_and_running(
    acme: Company, ada: Agent, bo: Agent, by_olga: Actor
) -> None:
    issue = factories.issue(acme, status="in_progress", assignee=ada)
    run = factories.running(ada, issue)
    factories.checkout(issue, ada, run)
    waiting = factories.run(bo, issue)
    asked = factories.interaction(issue, asked_by=ada)
    change(issue, by_olga, status="cancelled")
    for row in (run, waiting, asked):
        row.refresh_from_db()
    assert run.cancel_requested_at is not None
    assert waiting.status == "cancelled"
    assert asked.status == Interaction.Status.CANCELLED
    assert Checkout.objects.get().release_reason == "cancelled"


def test_what_people_asked_meanwhile_survives_an_agents_closing(
    acme: Company, ada: Agent, by_olga: Actor
) -> None:
    issue = factories.issue(acme, status="in_progress", assignee=ada)
    run = factories.running(ada, issue)
    factories.checkout(issue, ada, run)
    board.comment(issue=issue, body="And in blue, please.", actor=by_olga)
    change(issue, Actor("agent", ada.id, "Ada", run.id), status="done")
    assert HeartbeatRun.objects.get(status="queued").reason == "issue_commented"


# --- blockers and children -------------------------------------------------------------------


def test_the_last_blocker_frees_and_wakes_once(
    acme: Company, ada: Agent, bo: Agent, by_olga: Actor
) -> None:
    first, second = factories.issues(acme, 2, assignee=bo)
    waiting = factories.issue(acme, status="blocked", assignee=ada)
    for one in (first, second):
        factories.blocker(waiting, by=one)
    change(first, by_olga, status="done")
    waiting.refresh_from_db()
    assert (waiting.status, HeartbeatRun.objects.count()) == ("blocked", 0)
    change(second, by_olga, status="done")
    waiting.refresh_from_db()
    run = HeartbeatRun.objects.get()
    assert (waiting.status, run.agent, run.reason) == ("todo", ada, "issue_blockers_resolved")
    assert run.payload["resolvedBy"] == second.identifier


def test_a_cancelled_blocker_frees_as_well(acme: Company, ada: Agent, by_olga: Actor) -> None:
    first = factories.issue(acme)
    waiting = factories.issue(acme, status="blocked", assignee=ada)
    factories.blocker(waiting, by=first)
    change(first, by_olga, status="cancelled")
    assert HeartbeatRun.objects.get().payload["resolvedAs"] == "cancelled"


def test_what_waits_for_a_person_stays_blocked(acme: Company, ada: Agent, by_olga: Actor) -> None:
    first = factories.issue(acme)
    waiting = factories.issue(acme, status="blocked", assignee=ada, blocked_reason="Olga decides")
    factories.blocker(waiting, by=first)
    change(first, by_olga, status="done")
    waiting.refresh_from_db()
    assert waiting.status == "blocked"
    assert not HeartbeatRun.objects.exists()


def test_a_new_blocker_stops_work_in_progress(acme: Company, ada: Agent, by_ada: Actor) -> None:
    issue = factories.issue(acme, status="in_progress", assignee=ada)
    factories.checkout(issue, ada)
    board.set_blockers(issue=issue, blocked_by=[factories.issue(acme)], actor=by_ada)
    issue.refresh_from_db()
    assert issue.status == "blocked"
    assert not Checkout.objects.filter(released_at=None).exists()


def test_taking_the_last_blocker_away_wakes(acme: Company, ada: Agent, by_olga: Actor) -> None:
    waiting = factories.issue(acme, status="blocked", assignee=ada)
    factories.blocker(waiting, by=factories.issue(acme))
    assert change(waiting, by_olga, blocked_by=[]).status == "todo"
    assert HeartbeatRun.objects.get().reason == "issue_blockers_resolved"


def test_a_circle_of_blockers_is_refused_with_its_way(acme: Company, by_olga: Actor) -> None:
    a, b, c = factories.issues(acme, 3)
    change(b, by_olga, blocked_by=[a])
    change(c, by_olga, blocked_by=[b])
    with pytest.raises(Invalid) as refusal:
        change(a, by_olga, blocked_by=[c])
    assert refusal.value.code == "blocker_cycle"
    assert refusal.value.details["path"] == ["ACM-1", "ACM-3", "ACM-2", "ACM-1"]


def test_a_wide_net_of_blockers_is_checked_in_time(acme: Company, by_olga: Actor) -> None:
    layers = [factories.issues(acme, 3) for _ in range(25)]  # 3^25 paths
    for upper, lower in itertools.pairwise(layers):
        for issue in lower:
            for one in upper:
                factories.blocker(issue, by=one)
    fresh = factories.issue(acme)
    assert change(fresh, by_olga, blocked_by=layers[-1]).version == 2
    with pytest.raises(Invalid):
        change(layers[0][0], by_olga, blocked_by=[fresh])


def test_a_circle_of_parents_is_refused(acme: Company, by_olga: Actor) -> None:
    top = factories.issue(acme)
    middle = factories.issue(acme, parent=top)
    low = factories.issue(acme, parent=middle)
    for parent in (low, middle):
        with pytest.raises(Invalid) as refusal:
            change(top, by_olga, parent=parent)
        assert refusal.value.field == "parent"


def test_an_issue_is_not_its_own_blocker(issue: Issue, by_olga: Actor) -> None:
    with pytest.raises(Invalid):
        change(issue, by_olga, blocked_by=[issue])


def test_the_last_child_wakes_the_parents_agent_with_the_results(
    acme: Company, ada: Agent, by_olga: Actor
) -> None:
    parent = factories.issue(
        acme, assignee=ada, status="blocked", blocked_reason="Waits for its sub-issues."
    )
    one, two = factories.issues(acme, 2, parent=parent)
    change(one, by_olga, status="done")
    assert not HeartbeatRun.objects.exists()
    change(two, by_olga, status="cancelled")
    parent.refresh_from_db()
    run = HeartbeatRun.objects.get()
    assert (run.reason, parent.status) == ("issue_children_completed", "todo")
    assert [child["status"] for child in run.payload["children"]] == ["done", "cancelled"]


def test_archiving_needs_a_closed_issue(issue: Issue, by_olga: Actor, now: datetime) -> None:
    with pytest.raises(Conflict):
        board.archive(issue=issue, actor=by_olga)
    change(issue, by_olga, status="done")
    later = now + timedelta(minutes=1)
    assert board.archive(issue=issue, actor=by_olga, now=later).archived_at == later
    assert not Issue.objects.listed().exists()
    assert board.unarchive(issue=issue, actor=by_olga).archived_at is None


def test_a_foreign_parent_does_not_exist(issue: Issue, globex: Company, by_olga: Actor) -> None:
    with pytest.raises(NotFound):
        change(issue, by_olga, parent=factories.issue(globex))
