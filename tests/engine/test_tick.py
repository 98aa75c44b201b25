"""Regular heartbeats: one a slot, none for nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents import timers
from agents.models import Agent, HeartbeatRun
from companies.models import IdempotencyRecord, SignInLink, Throttle
from issues.models import Issue
from paperclip.engine import tick
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def timed(acme, now) -> Agent:
    return factories.agent(
        acme, "Tim", heartbeat_enabled=True, next_beat_at=now - timedelta(seconds=1)
    )


def test_a_due_beat_wakes_the_agent_for_its_most_urgent_issue(timed, acme, now):
    factories.issue(acme, assignee=timed, priority=2)
    urgent = factories.issue(acme, assignee=timed, priority=0)
    assert tick.beats(now=now) == 1
    run = HeartbeatRun.objects.get()
    assert (run.issue_id, run.reason, run.source) == (urgent.pk, "heartbeat_timer", "timer")
    timed.refresh_from_db()
    assert timed.next_beat_at > now
    assert run.scheduled_for == timed.last_beat_at


def test_an_idle_beat_costs_nothing(timed, now):
    assert tick.beats(now=now) == 0
    assert not HeartbeatRun.objects.exists()
    timed.refresh_from_db()
    assert timed.next_beat_at > now


@pytest.mark.parametrize("status", ["backlog", "in_review", "blocked", "done"])
def test_work_that_cannot_go_on_is_no_reason_to_wake(timed, acme, now, status):
    factories.issue(acme, assignee=timed, status=status)
    assert tick.beats(now=now) == 0


def test_blocked_by_another_issue_is_no_reason_to_wake(timed, acme, now):
    factories.blocker(factories.issue(acme, assignee=timed), by=factories.issue(acme))
    assert tick.beats(now=now) == 0


@pytest.mark.parametrize("status", ["queued", "running"])
def test_an_issue_that_is_taken_care_of_is_left(timed, acme, now, status):
    """Also one whose retry waits out its back-off."""
    issue = factories.issue(acme, assignee=timed)
    factories.run(timed, issue, status=status, not_before=now + timedelta(hours=1))
    assert tick.beats(now=now) == 0


def test_somebody_elses_issue_is_no_reason_to_wake(timed, bo, acme, now):
    factories.issue(acme, assignee=bo)
    assert tick.beats(now=now) == 0


def test_a_slot_makes_one_run_however_often_the_clock_is_asked(timed, acme, now):
    factories.issue(acme, assignee=timed)
    assert [tick.beats(now=now) for _ in range(5)] == [1, 0, 0, 0, 0]


def test_after_an_outage_there_is_one_run(timed, acme, now):
    factories.issue(acme, assignee=timed)
    back = now + timedelta(days=3)
    assert [tick.beats(now=back) for _ in range(3)] == [1, 0, 0]


def test_another_wake_does_not_move_the_timer(timed, acme, now):
    before = timed.next_beat_at
    factories.run(timed, status="succeeded")
    timed.refresh_from_db()
    assert timed.next_beat_at == before


@pytest.mark.parametrize("fields", [{"heartbeat_enabled": False}, {"status": "terminated"}])
def test_who_has_no_timer_is_not_woken(timed, acme, now, fields):
    factories.issue(acme, assignee=timed)
    Agent.objects.filter(pk=timed.pk).update(**fields)
    assert tick.beats(now=now) == 0


def test_a_broken_timer_is_switched_off_and_stops_nobody(timed, acme, now, caplog):
    broken = factories.agent(
        acme, heartbeat_enabled=True, cron="nonsense", next_beat_at=now - timedelta(seconds=5)
    )
    factories.issue(acme, assignee=timed)
    assert tick.beats(now=now) == 1
    broken.refresh_from_db()
    assert not broken.heartbeat_enabled
    assert "its timer does not work" in caplog.text


def test_many_due_agents_are_all_served(acme, now, monkeypatch):
    monkeypatch.setattr(tick, "BATCH", 3)
    for _ in range(8):
        agent = factories.agent(acme, heartbeat_enabled=True, next_beat_at=now)
        factories.issue(acme, assignee=agent)
    assert tick.beats(now=now) == 8


def test_what_has_served_its_time_is_deleted(olga, now):
    old = now - timedelta(days=30)
    for n in (old, now):
        SignInLink.objects.create(digest=str(n), user=olga, expires_at=n)
        Throttle.objects.create(key="k", window_start=n, count=1)
        record = IdempotencyRecord.objects.create(
            principal="p", route="r", key=str(n), fingerprint="f"
        )
        IdempotencyRecord.objects.filter(pk=record.pk).update(created_at=n)
    tick.forget(now=now)
    assert [m.objects.count() for m in (SignInLink, Throttle, IdempotencyRecord)] == [1, 1, 1]


def test_the_minutes_round_goes_on_behind_a_failing_part(timed, acme, now, monkeypatch, caplog):
    factories.issue(acme, assignee=timed)

    def broken(**_):
        raise RuntimeError("no")

    monkeypatch.setattr(tick.recover, "sweep", broken)
    Throttle.objects.create(key="k", window_start=now - timedelta(days=9), count=1)
    with pytest.raises(RuntimeError):
        tick.minute(now=timezone.now())
    assert HeartbeatRun.objects.count() == 1
    assert not Throttle.objects.exists()
    assert Issue.objects.count() == 1


def statements_of_a_minute(now: Any) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        tick.minute(now=now)
    return [query["sql"] for query in captured]


def test_the_minutes_round_does_not_grow_with_open_issues_or_runs(acme, ada, now):
    """The same statements beside five issues and beside sixty, with runs that wait and work."""
    counts = []
    for issues in (5, 55):
        for _ in range(issues):
            factories.run(ada, factories.issue(acme, assignee=ada))
        tick.minute(now=now)  # what is done once is done
        counts.append(len(statements_of_a_minute(now)))
    assert counts[0] == counts[1]


def test_an_idle_minute_reads_no_issue_at_all(acme, ada, now):
    factories.issue(acme, assignee=ada)
    tick.minute(now=now)
    read = [sql for sql in statements_of_a_minute(now) if "issues_issue" in sql]
    assert read == []


def test_fifty_agents_on_one_interval_are_woken_evenly_and_keep_their_place(acme, now):
    """Two rounds of five minutes in steps of two seconds, as shifts look. In the second round a
    third of the agents is gone and ten are new. No ten seconds hold more than four starts."""
    agents = [timed_agent(acme, now) for _ in range(50)]
    first = starts(now, 300)
    assert len(first) == 50
    assert busiest(first.values()) <= 4
    for agent in agents[::3]:
        Agent.objects.filter(pk=agent.pk).update(heartbeat_enabled=False)
    later = now + timedelta(seconds=300)
    for _ in range(10):
        timed_agent(acme, later)
    HeartbeatRun.objects.all().delete()
    second = starts(later, 300)
    assert len(second) == 43
    assert busiest(second.values()) <= 4
    stayed = first.keys() & second.keys()
    assert len(stayed) == 33
    assert {second[one] - first[one] for one in stayed} == {timedelta(seconds=300)}


def timed_agent(company: Any, now: Any) -> Agent:
    agent = factories.agent(company, heartbeat_enabled=True, interval_seconds=300)
    Agent.objects.filter(pk=agent.pk).update(next_beat_at=timers.next_slot(agent, now))
    factories.issue(company, assignee=agent)
    return agent


def starts(begin: Any, seconds: int) -> dict[Any, Any]:
    """When each agent was woken, as slots."""
    for step in range(2, seconds + 1, 2):
        tick.beats(now=begin + timedelta(seconds=step))
    return dict(HeartbeatRun.objects.values_list("agent_id", "scheduled_for"))


def busiest(moments: Any) -> int:
    """The most starts that any ten seconds hold."""
    ordered = sorted(moments)
    return max(sum(0 <= (b - a).total_seconds() < 10 for b in ordered) for a in ordered)
