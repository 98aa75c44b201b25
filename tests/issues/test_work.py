"""Agents take issues, give them back, and their runs end."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from agents.models import Agent, HeartbeatRun
from companies.activity import Actor
from companies.errors import Conflict, Forbidden, Invalid, NotFound
from companies.models import Activity, Company, User
from issues import board, transitions, work
from issues.models import Checkout, Comment, Issue
from tests import factories

pytestmark = pytest.mark.django_db

S = Issue.Status


# --- checkout --------------------------------------------------------------------------------


def test_a_checkout_makes_it_the_agents_and_in_progress(
    acme: Company, ada: Agent, now: datetime
) -> None:
    issue = factories.issue(acme)
    taken = work.checkout(issue=issue, agent=ada, now=now)
    assert (taken.status, taken.assignee_agent, taken.started_at) == ("in_progress", ada, now)
    assert Checkout.objects.get().agent == ada
    assert Activity.objects.get().action == "issue.checked_out"


@pytest.mark.parametrize("status", ["backlog", "todo", "in_review", "blocked"])
def test_every_waiting_status_can_be_taken(status: str, acme: Company, ada: Agent) -> None:
    issue = factories.issue(acme, status=status, assignee=ada)
    assert work.checkout(issue=issue, agent=ada).status == "in_progress"


def test_again_by_the_owner_changes_nothing(issue: Issue, ada: Agent) -> None:
    run = factories.running(ada, issue)
    first = work.checkout(issue=issue, agent=ada, run=run)
    again = work.checkout(issue=issue, agent=ada, run=run, expected_statuses=["todo"])
    assert again.version == first.version
    assert Checkout.objects.count() == 1


def test_the_409_says_who_has_it(issue: Issue, ada: Agent, bo: Agent) -> None:
    run = factories.running(ada, issue)
    work.checkout(issue=issue, agent=ada, run=run)
    with pytest.raises(Conflict) as refusal:
        work.checkout(issue=issue, agent=bo)
    details = refusal.value.details
    assert details["status"] == "in_progress"
    assert details["assigneeAgentId"] == details["checkoutAgentId"] == str(ada.id)
    assert details["checkoutRunId"] == str(run.id)
    assert details["holderLive"] is True


def test_an_unexpected_status_is_a_conflict(acme: Company, ada: Agent) -> None:
    issue = factories.issue(acme, status="in_review", assignee=ada)
    with pytest.raises(Conflict) as refusal:
        work.checkout(issue=issue, agent=ada, expected_statuses=["todo"])
    assert refusal.value.code == "unexpected_status"


def test_a_closed_issue_cannot_be_taken(acme: Company, ada: Agent) -> None:
    issue = factories.issue(acme, status="done", assignee=ada)
    for expected in (["todo"], ["done"]):
        with pytest.raises(Conflict):
            work.checkout(issue=issue, agent=ada, expected_statuses=expected)


@pytest.mark.parametrize("expected", [[], ["nonsense"], [None]])
def test_expected_statuses_are_statuses(expected: list, issue: Issue, ada: Agent) -> None:
    with pytest.raises(Invalid):
        work.checkout(issue=issue, agent=ada, expected_statuses=expected)


def test_a_persons_issue_is_not_taken(acme: Company, olga: User, ada: Agent) -> None:
    with pytest.raises(Conflict) as refusal:
        work.checkout(issue=factories.issue(acme, assignee=olga), agent=ada)
    assert refusal.value.code == "assigned_to_person"


def test_another_agents_issue_is_not_taken(issue: Issue, bo: Agent) -> None:
    with pytest.raises(Conflict):
        work.checkout(issue=issue, agent=bo)


def test_a_blocked_issue_is_not_started(issue: Issue, ada: Agent) -> None:
    factories.blocker(issue, by=factories.issue(issue.company))
    with pytest.raises(transitions.Unprocessable) as refusal:
        work.checkout(issue=issue, agent=ada)
    assert refusal.value.details["blockedBy"] == ["ACM-2"]


def test_another_companys_issue_does_not_exist(issue: Issue, spy: Agent) -> None:
    with pytest.raises(NotFound):
        work.checkout(issue=issue, agent=spy)


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled", "timed_out", "lost"])
def test_the_lock_of_a_dead_run_is_adopted(end: str, issue: Issue, ada: Agent) -> None:
    old = factories.running(ada, issue)
    work.checkout(issue=issue, agent=ada, run=old)
    HeartbeatRun.objects.filter(id=old.id).update(status=end, finished_at=old.created_at)
    new = factories.running(ada, issue)
    assert work.checkout(issue=issue, agent=ada, run=new).status == "in_progress"
    assert Checkout.objects.get(released_at=None).run == new


def test_a_live_run_of_the_same_agent_keeps_its_lock(acme: Company, issue: Issue) -> None:
    ada = issue.assignee_agent
    work.checkout(issue=issue, agent=ada, run=factories.running(ada, issue))
    with pytest.raises(Conflict):
        work.checkout(issue=issue, agent=ada, run=factories.running(ada))


def test_a_dead_run_of_another_agent_does_not_keep_it(issue: Issue, ada: Agent, bo: Agent) -> None:
    old = factories.running(ada, issue)
    work.checkout(issue=issue, agent=ada, run=old)
    HeartbeatRun.objects.filter(id=old.id).update(status="lost", finished_at=old.created_at)
    Issue.objects.filter(id=issue.id).update(assignee_agent=bo, status="todo")
    assert work.checkout(issue=issue, agent=bo).assignee_agent == bo
    assert Checkout.objects.get(agent=ada).release_reason == "holder_gone"


# --- release ---------------------------------------------------------------------------------


def test_releasing_puts_it_back_and_twice_is_once(issue: Issue, ada: Agent) -> None:
    work.checkout(issue=issue, agent=ada)
    freed = work.release(issue=issue, agent=ada)
    again = work.release(issue=issue, agent=ada)
    assert (freed.status, freed.assignee_agent) == ("todo", ada)
    assert again.version == freed.version


def test_only_the_holder_releases(issue: Issue, ada: Agent, bo: Agent) -> None:
    work.checkout(issue=issue, agent=ada)
    with pytest.raises(Forbidden):
        work.release(issue=issue, agent=bo)


def test_unassigned_it_is_free_for_others(issue: Issue, ada: Agent, bo: Agent) -> None:
    work.checkout(issue=issue, agent=ada)
    work.release(issue=issue, agent=ada, unassign=True)
    assert work.checkout(issue=issue, agent=bo).assignee_agent == bo


def test_an_old_run_cannot_release_its_successors_lock(issue: Issue, ada: Agent) -> None:
    old = factories.run(ada, status="lost")
    new = factories.running(ada, issue)
    work.checkout(issue=issue, agent=ada, run=new)
    work.release(issue=issue, agent=ada, run=old)
    assert Checkout.objects.get(released_at=None).run == new


def test_a_person_takes_it_out_of_an_agents_hands(issue: Issue, ada: Agent, by_olga: Actor) -> None:
    run = factories.running(ada, issue)
    work.checkout(issue=issue, agent=ada, run=run)
    freed = work.force_release(issue=issue, actor=by_olga)
    run.refresh_from_db()
    assert freed.status == "todo"
    assert run.cancel_requested_at is not None
    assert not Checkout.objects.filter(released_at=None).exists()


# --- the end of a run ------------------------------------------------------------------------


@pytest.fixture
def run(issue: Issue, ada: Agent) -> HeartbeatRun:
    """Ada at work on ACM-1."""
    run = factories.running(ada, issue)
    work.checkout(issue=issue, agent=ada, run=run)
    return run


def end(run: HeartbeatRun, status: str = "succeeded", **outcome: object) -> Issue:
    ended = work.report(run=run, status=status, **outcome)  # type: ignore[arg-type]
    assert ended is not None
    return ended


def test_an_answer_without_a_word_on_the_status_goes_to_review(run: HeartbeatRun) -> None:
    assert end(run, summary="Here it is.").status == "in_review"
    comment = Comment.objects.get()
    assert (comment.body, comment.author_agent, comment.run) == ("Here it is.", run.agent, run)
    assert Checkout.objects.get().release_reason == "run_succeeded"


def test_or_to_done_by_the_agents_policy(run: HeartbeatRun) -> None:
    run.agent.on_finish = "done"
    ended = end(run)
    assert (ended.status, ended.completed_at is not None) == ("done", True)


@pytest.mark.parametrize("wish", ["done", "in_review", "blocked", "cancelled"])
def test_the_wish_goes_before_the_policy(wish: str, run: HeartbeatRun) -> None:
    assert end(run, wish=wish, summary="So.").status == wish


def test_the_summary_is_not_said_twice(run: HeartbeatRun) -> None:
    actor = Actor("agent", run.agent_id, "Ada", run.id)
    board.comment(issue=run.issue, body="My own words.", actor=actor)
    end(run, summary="A summary.")
    assert Comment.objects.get().body == "My own words."


def test_a_question_is_the_runs_word(run: HeartbeatRun) -> None:
    factories.interaction(run.issue, asked_by=run.agent, run=run)
    end(run, summary="I have asked.")
    assert not Comment.objects.exists()


def test_a_status_that_the_agent_set_itself_stays(run: HeartbeatRun) -> None:
    actor = Actor("agent", run.agent_id, "Ada", run.id)
    board.update(
        issue=run.issue,
        changes={"status": "blocked", "blocked_reason": "Iron is missing."},
        actor=actor,
    )
    assert end(run, wish="done").status == "blocked"


def test_reporting_twice_is_reporting_once(run: HeartbeatRun) -> None:
    first = end(run, summary="Once.")
    second = end(run, summary="Once.")
    assert Comment.objects.count() == 1
    assert first.version == second.version


def test_done_frees_what_waited(run: HeartbeatRun, acme: Company, bo: Agent) -> None:
    waiting = factories.issue(acme, status="blocked", assignee=bo)
    factories.blocker(waiting, by=run.issue)
    end(run, wish="done")
    waiting.refresh_from_db()
    assert waiting.status == "todo"
    assert HeartbeatRun.objects.get(agent=bo).reason == "issue_blockers_resolved"


def test_who_has_delegated_waits_for_the_parts(
    run: HeartbeatRun, acme: Company, by_olga: Actor
) -> None:
    part = factories.issue(acme, parent=run.issue)
    waiting = end(run, summary="Delegated.")
    assert (waiting.status, waiting.blocked_reason) == ("blocked", "Waits for its sub-issues.")
    HeartbeatRun.objects.filter(id=run.id).update(status="succeeded", finished_at=run.created_at)
    board.update(issue=part, changes={"status": "done"}, actor=by_olga)
    waiting.refresh_from_db()
    assert waiting.status == "todo"
    assert HeartbeatRun.objects.get(status="queued").reason == "issue_children_completed"


def test_people_who_wrote_meanwhile_are_heard(run: HeartbeatRun, by_olga: Actor) -> None:
    run.agent.on_finish = "done"
    board.comment(issue=run.issue, body="In blue, please.", actor=by_olga)
    assert end(run, summary="Red.").status == "todo"
    assert HeartbeatRun.objects.filter(status="queued").count() == 1


def test_a_pending_question_keeps_it_in_review(run: HeartbeatRun) -> None:
    run.agent.on_finish = "done"
    factories.interaction(run.issue, asked_by=run.agent)
    assert end(run).status == "in_review"


def test_an_agent_that_goes_on_is_woken_again_but_not_for_ever(
    issue: Issue, ada: Agent, now: datetime
) -> None:
    seen = []
    for minute in range(4):
        at = now + timedelta(minutes=minute)
        HeartbeatRun.objects.live().delete()
        run = factories.running(ada, issue, now=at)
        work.checkout(issue=issue, agent=ada, run=run)
        issue.refresh_from_db()
        seen.append(end(run, wish="in_progress", now=at).status)
        HeartbeatRun.objects.filter(id=run.id).update(status="succeeded", finished_at=at)
        if seen[-1] == "blocked":
            break
        following = HeartbeatRun.objects.get(status="queued")
        assert following.not_before == at + timedelta(seconds=work.FOLLOW_UP_SECONDS)
    assert seen == ["todo", "todo", "blocked"]


def test_a_failure_that_is_tried_again_says_nothing(run: HeartbeatRun, now: datetime) -> None:
    ended = end(run, "failed", code="rate_limited", message="429", retry_at=now)
    assert ended.status == "todo"
    assert not Comment.objects.exists()


def test_the_last_failure_says_what_to_do(run: HeartbeatRun) -> None:
    ended = end(run, "failed", code="auth_failed", message="401 \x00 invalid key")
    comment = Comment.objects.get()
    assert ended.status == "blocked"
    assert ended.blocked_reason.startswith("Ada could not finish: Key not accepted.")
    assert "401  invalid key" in comment.body
    assert (comment.author_agent, comment.author_user) == (None, None)


def test_a_code_that_nobody_knows_is_no_failure_of_ours(run: HeartbeatRun) -> None:
    assert end(run, "failed", code="strange").status == "blocked"


def test_a_failure_before_the_start_is_told_as_well(issue: Issue, ada: Agent) -> None:
    run = factories.running(ada, issue)
    for _ in range(2):
        ended = end(run, "failed", code="config_invalid", message="The secret cannot be opened.")
        assert ended.status == "blocked"
    assert Comment.objects.count() == 1


def test_a_guests_failure_is_not_the_issues(issue: Issue, bo: Agent) -> None:
    run = factories.running(bo, issue)
    assert end(run, "failed", code="config_invalid").status == "todo"
    assert not Comment.objects.exists()


def test_a_cancelled_run_leaves_quietly(run: HeartbeatRun) -> None:
    assert end(run, "cancelled").status == "todo"
    assert not Comment.objects.exists()
    assert not HeartbeatRun.objects.filter(status="queued").exists()


def test_a_guest_only_answers(issue: Issue, bo: Agent) -> None:
    run = factories.running(bo, issue)
    assert end(run, summary="I would use iron.", wish="done").status == "todo"
    assert Comment.objects.get().author_agent == bo


def test_what_a_run_took_on_its_way_is_given_back(acme: Company, ada: Agent) -> None:
    run = factories.running(ada)
    taken = factories.issue(acme, assignee=ada)
    work.checkout(issue=taken, agent=ada, run=run)
    work.report(run=run, status="succeeded")
    taken.refresh_from_db()
    assert (taken.status, taken.assignee_agent) == ("todo", ada)
    assert Checkout.objects.get().release_reason == "run_succeeded"


def test_a_run_without_an_issue_has_nothing_to_report(ada: Agent) -> None:
    assert work.report(run=factories.running(ada), status="succeeded", summary="Hm.") is None


def test_a_reassigned_issue_is_left_alone(run: HeartbeatRun, bo: Agent, by_olga: Actor) -> None:
    board.update(issue=run.issue, changes={"assignee_agent": bo}, actor=by_olga)
    ended = end(run, "cancelled")
    assert (ended.status, ended.assignee_agent) == ("todo", bo)


# --- the start of a run ----------------------------------------------------------------------


def test_a_run_begins_with_its_issue_in_hand(issue: Issue, ada: Agent) -> None:
    run = factories.running(ada, issue)
    begun = work.begin(run=run)
    assert begun is not None
    assert (begun.status, Checkout.objects.get().run) == ("in_progress", run)


@pytest.mark.parametrize("status", ["done", "cancelled", "backlog"])
def test_about_what_is_not_to_do_it_only_answers(status: str, acme: Company, ada: Agent) -> None:
    issue = factories.issue(acme, status=status, assignee=ada)
    assert work.begin(run=factories.running(ada, issue)) is None
    assert not Checkout.objects.exists()


def test_about_anothers_issue_it_only_answers(issue: Issue, bo: Agent) -> None:
    assert work.begin(run=factories.running(bo, issue)) is None
