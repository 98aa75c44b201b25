"""Comments, mentions, questions."""

from __future__ import annotations

import pytest

from agents.models import Agent, HeartbeatRun
from companies.activity import Actor
from companies.errors import Conflict, Forbidden, Invalid
from companies.models import Activity, Company, User
from issues import board, consequences, mentions, questions
from issues.models import Comment, Issue
from tests import factories

pytestmark = pytest.mark.django_db


def test_a_comment_wakes_the_assignee_with_it(issue: Issue, by_olga: Actor) -> None:
    posted = board.comment(issue=issue, body="Faster, please.", actor=by_olga)
    run = HeartbeatRun.objects.get()
    assert (run.reason, run.comment_ids) == ("issue_commented", [posted.id])
    assert Activity.objects.get(action="issue.commented").details["excerpt"] == "Faster, please."


def test_comments_before_the_start_fold_into_one_run(issue: Issue, by_olga: Actor) -> None:
    said = [board.comment(issue=issue, body=body, actor=by_olga).id for body in "abc"]
    assert HeartbeatRun.objects.get().comment_ids == said


def test_nobody_wakes_itself(issue: Issue, by_ada: Actor) -> None:
    board.comment(issue=issue, body="Done so far. @Ada", actor=by_ada)
    assert not HeartbeatRun.objects.exists()


def test_a_comment_during_a_run_waits_for_the_next(
    issue: Issue, ada: Agent, by_olga: Actor
) -> None:
    running = factories.running(ada, issue)
    posted = board.comment(issue=issue, body="Also this.", actor=by_olga)
    following = HeartbeatRun.objects.get(status="queued")
    assert following.id != running.id
    assert following.comment_ids == [posted.id]


def test_a_comment_on_a_closed_issue_wakes_nobody(
    acme: Company, ada: Agent, by_olga: Actor
) -> None:
    issue = factories.issue(acme, status="done", assignee=ada)
    board.comment(issue=issue, body="Thanks!", actor=by_olga)
    assert not HeartbeatRun.objects.exists()


def test_it_does_when_it_reopens(acme: Company, ada: Agent, by_olga: Actor) -> None:
    issue = factories.issue(acme, status="done", assignee=ada)
    posted = board.comment(issue=issue, body="It broke.", actor=by_olga, reopen=True)
    issue.refresh_from_db()
    run = HeartbeatRun.objects.get()
    assert (issue.status, run.reason) == ("todo", "issue_reopened_via_comment")
    assert run.comment_ids == [posted.id]


def test_a_mention_wakes_another_agent_and_the_assignee_hears_too(
    issue: Issue, bo: Agent, by_olga: Actor
) -> None:
    board.comment(issue=issue, body="@Bo can you help Ada?", actor=by_olga)
    reasons = dict(HeartbeatRun.objects.values_list("agent__name", "reason"))
    assert reasons == {"Bo": "issue_comment_mentioned", "Ada": "issue_commented"}


def test_the_assignee_mentioned_is_woken_once(issue: Issue, by_olga: Actor) -> None:
    board.comment(issue=issue, body="@Ada and again @ada", actor=by_olga)
    run = HeartbeatRun.objects.get()
    assert (run.reason, run.wake_count) == ("issue_comment_mentioned", 1)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("@Ada", ["Ada"]),
        ("@ada, look", ["Ada"]),
        ("(@Ada)", ["Ada"]),
        ("@Bo then @Ada", ["Bo", "Ada"]),
        ("@Ada Two should", ["Ada Two"]),
        ("@ada-two should", ["Ada Two"]),
        ("@Adam", []),
        ("@ada-three", []),
        ("olga@ada", []),
        ("mail bo@bo.example", []),
        ("`@Ada`", []),
        ("```\n@Ada\n```", []),
        ("```\n@Ada", []),
        ("@", []),
        ("@@@@", []),
        ("@Spy", []),
    ],
)
def test_who_is_called(
    body: str, names: list[str], acme: Company, ada: Agent, bo: Agent, spy: Agent
) -> None:
    factories.agent(acme, "Ada Two")
    assert [agent.name for agent in mentions.find(body, acme.id)] == names


def test_a_link_calls_by_id(acme: Company, ada: Agent, spy: Agent) -> None:
    body = f"[@Whoever](agent://{ada.id}) [@Spy](agent://{spy.id}) [@X](agent://{'-' * 36})"
    assert mentions.find(body, acme.id) == [ada]


def test_the_dead_are_not_called(acme: Company, ada: Agent) -> None:
    Agent.objects.filter(id=ada.id).update(status="terminated")
    assert mentions.find("@Ada", acme.id) == []


def test_agents_cannot_call_each_other_for_ever(
    acme: Company, ada: Agent, bo: Agent, by_ada: Actor, by_bo: Actor, by_olga: Actor
) -> None:
    issue = factories.issue(acme, assignee=ada)
    board.comment(issue=issue, body="Please settle this.", actor=by_olga)
    HeartbeatRun.objects.all().delete()
    for hop in range(20):
        caller, other = (by_ada, "@Bo") if hop % 2 == 0 else (by_bo, "@Ada")
        board.comment(issue=issue, body=f"{other} thanks!", actor=caller)
        HeartbeatRun.objects.live().update(status="succeeded", finished_at="2026-01-01T00:00Z")
    assert HeartbeatRun.objects.count() == consequences.MAX_HOPS
    assert Comment.objects.filter(body=consequences.PAUSE_TALK).count() == 1
    board.comment(issue=issue, body="@Bo go on.", actor=by_olga)
    assert HeartbeatRun.objects.live().filter(agent=bo).exists()


@pytest.mark.parametrize("body", ["", "  ", "a\x00", "\ud800", "x" * 100_001, 5, None])
def test_a_bad_comment_is_refused(body: object, issue: Issue, by_olga: Actor) -> None:
    with pytest.raises(Invalid):
        board.comment(issue=issue, body=body, actor=by_olga)  # type: ignore[arg-type]


def test_a_comment_raises_no_version(issue: Issue, by_olga: Actor) -> None:
    board.comment(issue=issue, body="Hm.", actor=by_olga)
    issue.refresh_from_db()
    assert issue.version == 1


# --- questions -------------------------------------------------------------------------------


@pytest.fixture
def at_work(acme: Company, ada: Agent) -> Issue:
    issue = factories.issue(acme, status="in_progress", assignee=ada)
    factories.checkout(issue, ada, factories.running(ada, issue))
    return issue


def test_a_question_sends_the_issue_into_review(at_work: Issue, by_ada: Actor) -> None:
    asked = questions.ask(issue=at_work, actor=by_ada, payload={"question": "Round?"})
    at_work.refresh_from_db()
    assert (asked.status, at_work.status) == ("pending", "in_review")
    assert questions.question(asked) == "Round?"


def test_the_answer_brings_it_back_and_wakes_the_agent(
    at_work: Issue, by_ada: Actor, by_olga: Actor, olga: User
) -> None:
    asked = questions.ask(issue=at_work, actor=by_ada, payload={"question": "Round?"})
    answered = board.answer(interaction=asked, response="Square.", actor=by_olga)
    at_work.refresh_from_db()
    run = HeartbeatRun.objects.get(status="queued")
    comment = Comment.objects.get()
    assert (answered.status, answered.answered_by) == ("answered", olga)
    assert at_work.status == "todo"
    assert comment.body == "> Round?\n\nSquare."
    assert (run.reason, run.comment_ids) == ("interaction_answered", [comment.id])
    assert run.payload["interaction"]["response"] == {"answer": "Square."}


def test_the_issue_waits_for_all_answers(at_work: Issue, by_ada: Actor, by_olga: Actor) -> None:
    first, second = (
        questions.ask(issue=at_work, actor=by_ada, payload={"question": q}) for q in ("A?", "B?")
    )
    board.answer(interaction=first, response="a", actor=by_olga)
    at_work.refresh_from_db()
    assert at_work.status == "in_review"
    board.answer(interaction=second, response="b", actor=by_olga)
    at_work.refresh_from_db()
    assert at_work.status == "todo"


def test_a_question_is_answered_once(at_work: Issue, by_ada: Actor, by_olga: Actor) -> None:
    asked = questions.ask(issue=at_work, actor=by_ada, payload={"question": "Round?"})
    board.answer(interaction=asked, response="Square.", actor=by_olga)
    with pytest.raises(Conflict):
        board.answer(interaction=asked, response="Round.", actor=by_olga)


def test_agents_do_not_answer_for_people(at_work: Issue, by_ada: Actor, by_bo: Actor) -> None:
    asked = questions.ask(issue=at_work, actor=by_ada, payload={"question": "Round?"})
    with pytest.raises(Forbidden):
        board.answer(interaction=asked, response="Yes", actor=by_bo)


def test_a_confirmation_is_accepted_or_rejected(
    at_work: Issue, by_ada: Actor, by_olga: Actor
) -> None:
    asked = questions.ask(
        issue=at_work, actor=by_ada, kind="request_confirmation", payload={"prompt": "Ship?"}
    )
    with pytest.raises(Invalid):
        board.answer(interaction=asked, response={"note": "hm"}, actor=by_olga)
    rejected = board.answer(
        interaction=asked, response={"reason": "Too early"}, outcome="rejected", actor=by_olga
    )
    assert rejected.status == "rejected"
    assert Comment.objects.get().body.endswith("Rejected: Too early")


@pytest.mark.parametrize(
    "payload",
    [[], "text", None, {"q": {1, 2}}, {"q": "x" * 40_000}, {"q": "a\x00"}, {"q": "\ud800"}],
)
def test_a_hostile_payload_is_refused(payload: object, at_work: Issue, by_ada: Actor) -> None:
    with pytest.raises(Invalid):
        questions.ask(issue=at_work, actor=by_ada, payload=payload)  # type: ignore[arg-type]


def test_nothing_is_asked_on_a_closed_issue(acme: Company, ada: Agent, by_ada: Actor) -> None:
    with pytest.raises(Conflict):
        questions.ask(
            issue=factories.issue(acme, status="done", assignee=ada),
            actor=by_ada,
            payload={"question": "?"},
        )


def test_only_the_asker_takes_a_question_back(at_work: Issue, by_ada: Actor, by_bo: Actor) -> None:
    asked = questions.ask(issue=at_work, actor=by_ada, payload={"question": "Round?"})
    with pytest.raises(Forbidden):
        questions.cancel(interaction=asked, actor=by_bo)
    assert questions.cancel(interaction=asked, actor=by_ada).status == "cancelled"


def test_a_strange_payload_still_has_a_text(issue: Issue) -> None:
    asked = factories.interaction(issue)
    for payload in ({}, {"questions": [{"prompt": "A?"}, "x"]}, {"title": "T"}, []):
        asked.payload = payload
        assert questions.question(asked)
        assert questions.options(asked) == []
