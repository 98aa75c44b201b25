"""Many at once: PostgreSQL is the referee."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from agents.models import HeartbeatRun
from companies.activity import Actor
from companies.errors import Conflict, Invalid
from issues import board, questions, work
from issues.models import Blocker, Checkout, Comment, Issue
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)

OLGA = Actor("user", None, "Olga")


def at_once(calls: list[Callable[[], object]]) -> list[object]:
    """Run the calls in threads that start together; results or the exceptions raised."""
    barrier = threading.Barrier(len(calls), timeout=30)

    def run(call: Callable[[], object]) -> object:
        try:
            barrier.wait()
            return call()
        except Exception as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def outcome(result: object) -> str:
    return type(result).__name__


def test_a_checkout_race_has_one_winner() -> None:
    acme = factories.company("Acme", "ACM")
    agents = [factories.agent(acme) for _ in range(10)]
    for issue in factories.issues(acme, 5):
        results = at_once(
            [
                lambda agent=agent, issue=issue: work.checkout(issue=issue, agent=agent)
                for agent in agents
            ]
        )
        assert sorted(map(outcome, results)) == ["Conflict"] * 9 + ["Issue"]
        winner = next(one for one in results if isinstance(one, Issue))
        held = Checkout.objects.get(issue=issue, released_at=None)
        assert held.agent_id == winner.assignee_agent_id
        for loser in results:
            if isinstance(loser, Conflict):
                assert loser.details["assigneeAgentId"] == str(winner.assignee_agent_id)


def test_numbers_are_unique_and_without_a_gap() -> None:
    acme = factories.company("Acme", "ACM")
    results = at_once(
        [lambda n=n: board.create(company=acme, actor=OLGA, title=f"T{n}") for n in range(12)]
    )
    assert [outcome(one) for one in results] == ["Issue"] * 12
    assert sorted(one.number for one in results) == list(range(1, 13))  # type: ignore[attr-defined]


def test_two_writers_cannot_close_a_circle_of_blockers() -> None:
    acme = factories.company("Acme", "ACM")
    for _ in range(5):
        a, b = factories.issues(acme, 2)
        results = at_once(
            [
                lambda a=a, b=b: board.set_blockers(issue=a, blocked_by=[b], actor=OLGA),
                lambda a=a, b=b: board.set_blockers(issue=b, blocked_by=[a], actor=OLGA),
            ]
        )
        assert sorted(map(outcome, results)) == ["Invalid", "Issue"]
        assert Blocker.objects.filter(issue__in=[a, b]).count() == 1


def test_two_writers_cannot_close_a_circle_of_parents() -> None:
    acme = factories.company("Acme", "ACM")
    a, b = factories.issues(acme, 2)
    results = at_once(
        [
            lambda: board.update(issue=a, changes={"parent": b}, actor=OLGA),
            lambda: board.update(issue=b, changes={"parent": a}, actor=OLGA),
        ]
    )
    assert sorted(map(outcome, results)) == ["Invalid", "Issue"]
    assert any(isinstance(one, Invalid) for one in results)


def test_a_blocker_that_closes_at_the_same_moment_is_never_missed() -> None:
    acme = factories.company("Acme", "ACM")
    ada = factories.agent(acme, "Ada")
    for _ in range(5):
        first, waiting = factories.issue(acme), factories.issue(acme, assignee=ada)
        results = at_once(
            [
                lambda first=first: board.update(
                    issue=first, changes={"status": "done"}, actor=OLGA
                ),
                lambda first=first, waiting=waiting: board.update(
                    issue=waiting,
                    changes={"blocked_by": [first], "status": "blocked", "blocked_reason": ""},
                    actor=OLGA,
                ),
            ]
        )
        waiting.refresh_from_db()
        # Either it was blocked and then freed, or nothing was left to block it.
        assert waiting.status == "todo", results
        assert "OperationalError" not in map(outcome, results)


def test_the_last_of_two_children_wakes_the_parent_once() -> None:
    acme = factories.company("Acme", "ACM")
    ada = factories.agent(acme, "Ada")
    for _ in range(5):
        parent = factories.issue(acme, assignee=ada)
        one, two = factories.issues(acme, 2, parent=parent)
        at_once(
            [
                lambda issue=issue: board.update(
                    issue=issue, changes={"status": "done"}, actor=OLGA
                )
                for issue in (one, two)
            ]
        )
        run = HeartbeatRun.objects.get(issue=parent)
        assert (run.reason, run.wake_count) == ("issue_children_completed", 1)


def test_children_that_block_their_parent_close_without_a_deadlock() -> None:
    acme = factories.company("Acme", "ACM")
    parent = factories.issue(acme)
    children = factories.issues(acme, 6, parent=parent)
    for child in children:
        factories.blocker(parent, by=child)
    results = at_once(
        [
            lambda child=child: board.update(issue=child, changes={"status": "done"}, actor=OLGA)
            for child in children
        ]
    )
    assert [outcome(one) for one in results] == ["Issue"] * 6


def test_of_two_changes_of_one_version_one_wins() -> None:
    acme = factories.company("Acme", "ACM")
    issue = factories.issue(acme)
    results = at_once(
        [
            lambda title=title: board.update(
                issue=issue, changes={"title": title}, actor=OLGA, if_version=1
            )
            for title in ("A", "B", "C")
        ]
    )
    assert sorted(map(outcome, results)) == ["Conflict", "Conflict", "Issue"]


def test_one_question_has_one_answer() -> None:
    acme = factories.company("Acme", "ACM")
    ada = factories.agent(acme, "Ada")
    asked = factories.interaction(factories.issue(acme, assignee=ada), asked_by=ada)
    results = at_once(
        [
            lambda n=n: questions.answer(interaction=asked, response=f"No. {n}", actor=OLGA)
            for n in range(4)
        ]
    )
    assert sorted(map(outcome, results)) == ["Conflict"] * 3 + ["Interaction"]
    assert Comment.objects.count() == 1


def test_comments_of_many_people_fold_into_one_run_and_none_is_lost() -> None:
    acme = factories.company("Acme", "ACM")
    issue = factories.issue(acme, assignee=factories.agent(acme, "Ada"))
    results = at_once(
        [lambda n=n: board.comment(issue=issue, body=f"Comment {n}", actor=OLGA) for n in range(8)]
    )
    run = HeartbeatRun.objects.get()
    assert set(run.comment_ids) == {one.id for one in results}  # type: ignore[attr-defined]


def test_a_reassignment_and_a_checkout_leave_one_owner() -> None:
    acme = factories.company("Acme", "ACM")
    ada, bo = factories.agent(acme, "Ada"), factories.agent(acme, "Bo")
    for _ in range(5):
        issue = factories.issue(acme, assignee=ada)
        at_once(
            [
                lambda issue=issue: work.checkout(issue=issue, agent=ada),
                lambda issue=issue: board.update(
                    issue=issue, changes={"assignee_agent": bo}, actor=OLGA
                ),
            ]
        )
        issue.refresh_from_db()
        held = Checkout.objects.filter(issue=issue, released_at=None)
        assert issue.assignee_agent == bo
        assert not held.exclude(agent=bo).exists()
