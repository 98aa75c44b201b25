"""Wishes fold into one queued run, and none is lost."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

import pytest

from agents import runs
from agents.models import Agent, HeartbeatRun, Hold
from companies.activity import SYSTEM, Actor
from companies.models import Company, User
from issues.models import Issue
from tests import factories

pytestmark = pytest.mark.django_db


def by(user: User) -> Actor:
    return Actor("user", user.pk, user.name)


def assigned(agent: Agent, issue: Issue | None, **fields) -> runs.Wake:
    return runs.wake(
        **{
            "agent": agent,
            "issue": issue,
            "reason": "issue_assigned",
            "source": "assignment",
            "actor": SYSTEM,
            **fields,
        }
    )


def test_a_wake_queues_a_run_with_the_issues_priority(ada, acme):
    issue = factories.issue(acme, assignee=ada, priority=0)
    wake = assigned(ada, issue)
    run = HeartbeatRun.objects.get(pk=wake.run_id)
    assert (wake.created, run.status, run.priority, run.company_id) == (True, "queued", 0, acme.pk)


def test_wakes_about_one_issue_fold_into_one_run(ada, issue):
    first, second = uuid.uuid4(), uuid.uuid4()
    made = assigned(ada, issue, comment_ids=[first])
    more = assigned(
        ada, issue, reason="issue_commented", comment_ids=[first, second], payload={"a": 1}
    )
    run = HeartbeatRun.objects.get()
    assert (more.run_id, more.created) == (made.run_id, False)
    assert run.wake_count == 2
    assert run.comment_ids == [first, second]
    assert run.payload == {"a": 1}
    assert run.reason == "issue_commented"


def test_wakes_without_an_issue_fold_as_well(ada):
    assigned(ada, None)
    assigned(ada, None)
    assert HeartbeatRun.objects.get().wake_count == 2


def test_wakes_about_two_issues_are_two_runs(ada, acme, issue):
    assigned(ada, issue)
    assigned(ada, factories.issue(acme, assignee=ada))
    assert HeartbeatRun.objects.count() == 2


def test_a_wake_during_a_run_becomes_the_next_run(ada, issue):
    going = factories.running(ada, issue)
    comment = uuid.uuid4()
    wake = assigned(ada, issue, reason="issue_commented", comment_ids=[comment])
    assert wake.run_id != going.pk
    assert HeartbeatRun.objects.get(pk=wake.run_id).comment_ids == [comment]
    going.refresh_from_db()
    assert going.wake_count == 1


def test_the_earlier_start_and_the_higher_priority_win(ada, issue, now):
    assigned(ada, issue, priority=2, not_before=now + timedelta(hours=1), now=now)
    assigned(ada, issue, priority=1, not_before=now + timedelta(minutes=1), now=now)
    run = HeartbeatRun.objects.get()
    assert (run.priority, run.not_before) == (1, now + timedelta(minutes=1))


def test_a_regular_beat_does_not_hide_a_better_reason(ada, issue):
    assigned(ada, issue)
    assigned(ada, issue, reason="heartbeat_timer", source="timer")
    assert HeartbeatRun.objects.get().reason == "issue_assigned"


def parked(ada: Agent, issue: Issue, now: datetime) -> None:
    assigned(
        ada,
        issue,
        reason="transient_failure_retry",
        source="retry",
        attempt=2,
        not_before=now + timedelta(hours=2),
        now=now,
    )


def test_an_automatic_wake_leaves_a_retry_in_its_back_off(ada, issue, now):
    parked(ada, issue, now)
    assigned(ada, issue, now=now)
    assert HeartbeatRun.objects.get().not_before == now + timedelta(hours=2)


def test_a_person_pulls_a_retry_forward(ada, issue, now, olga):
    parked(ada, issue, now)
    assigned(ada, issue, reason="issue_commented", actor=by(olga), now=now)
    assert HeartbeatRun.objects.get().not_before == now


def test_an_agents_own_acts_do_not_wake_it(ada, bo, issue):
    assert assigned(ada, issue, actor=Actor("agent", ada.pk)).refused == "own_change"
    assert assigned(ada, issue, actor=Actor("agent", bo.pk)).created


def test_a_repeated_idempotency_key_is_the_first_run(ada, issue):
    first = assigned(ada, issue, idempotency_key="k")
    HeartbeatRun.objects.update(status="running", started_at="2026-01-01T00:00Z")
    again = assigned(ada, issue, idempotency_key="k")
    assert (again.run_id, again.created) == (first.run_id, False)
    assert HeartbeatRun.objects.count() == 1


def test_a_timer_slot_makes_one_run(ada, issue, now):
    first = assigned(ada, issue, source="timer", scheduled_for=now)
    HeartbeatRun.objects.update(status="running", started_at=now)
    again = assigned(ada, issue, source="timer", scheduled_for=now)
    assert (again.run_id, again.created) == (first.run_id, False)


@pytest.mark.parametrize("status", ["terminated", "pending_approval"])
def test_who_does_not_work_here_is_not_woken(ada, issue, status):
    Agent.objects.update(status=status)
    assert assigned(ada, issue).refused == f"agent_{status}"
    assert not HeartbeatRun.objects.exists()


def test_wake_on_demand_off_leaves_the_timer_and_a_persons_wish(ada, issue):
    Agent.objects.update(wake_on_demand=False)
    assert assigned(ada, issue).refused == "wake_on_demand_off"
    assert assigned(ada, issue, source="timer", reason="heartbeat_timer").created
    assert assigned(ada, issue, source="on_demand", reason="manual").run_id


def test_an_archived_company_wakes_nobody(ada, issue, acme):
    Company.objects.update(status="archived")
    assert assigned(ada, issue).refused == "company_archived"


def test_a_hold_keeps_the_wish_waiting(ada, issue):
    factories.hold(ada, Hold.Reason.OPERATOR)
    assert assigned(ada, issue).created


def test_the_key_of_a_wish_that_folded_is_recognised_as_well(ada, issue):
    """Every key counts, not only the one that made the run; also after the run has begun."""
    first = assigned(ada, issue, idempotency_key="k1")
    for key in ("k2", "k3", "k2"):
        assert assigned(ada, issue, idempotency_key=key).run_id == first.run_id
    HeartbeatRun.objects.update(status="running", started_at="2026-01-01T00:00Z")
    again = [assigned(ada, issue, idempotency_key=key) for key in ("k1", "k2", "k3")]
    assert {(one.run_id, one.created) for one in again} == {(first.run_id, False)}
    assert HeartbeatRun.objects.get().wake_count == 3


def test_a_slot_that_folded_into_another_ones_run_is_used(ada, issue, now):
    first = assigned(ada, issue, source="timer", scheduled_for=now)
    later = now + timedelta(minutes=5)
    assigned(ada, issue, source="timer", scheduled_for=later)
    HeartbeatRun.objects.update(status="running", started_at=now)
    assert assigned(ada, issue, source="timer", scheduled_for=later).run_id == first.run_id
    assert HeartbeatRun.objects.count() == 1


def test_a_key_that_looks_like_a_slot_is_a_key(ada, issue, now):
    assigned(ada, issue)
    assigned(ada, issue, source="timer", scheduled_for=now)
    assigned(ada, issue, source="timer", scheduled_for=now + timedelta(minutes=5))
    HeartbeatRun.objects.update(status="running", started_at=now)
    slot = f"slot:{(now + timedelta(minutes=5)).isoformat()}"
    assert assigned(ada, issue, idempotency_key=slot).created


def test_one_agents_key_is_not_anothers(ada, bo, issue):
    assigned(ada, issue)
    assigned(ada, issue, idempotency_key="k")
    assert assigned(bo, issue, idempotency_key="k").created
