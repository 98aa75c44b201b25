"""What has gone wrong in products like this one, where no other test has it for its subject."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from agents import roster, runs
from agents.models import Agent, HeartbeatRun
from companies.activity import Actor
from paperclip.engine import shift as shifts
from paperclip.engine import tick
from tests import factories
from tests.engine.conftest import data_dir, during, pia, puppet  # noqa: F401 - fixtures

OLGA = Actor("user", name="Olga")


@pytest.mark.django_db
def test_a_pause_and_its_end_start_nothing_by_themselves(ada, acme, now):
    factories.issue(acme, assignee=ada)
    worker = factories.worker()
    roster.pause(agent=ada, actor=OLGA, now=now)
    roster.resume(agent=ada, actor=OLGA, now=now)
    tick.minute(now=now + timedelta(minutes=2))
    assert list(runs.claim(worker_id=worker.pk, limit=5)) == []
    assert not HeartbeatRun.objects.exists()


@pytest.mark.django_db
def test_a_cancelled_run_is_no_error_of_its_agent(ada, acme, now):
    run = factories.running(ada, factories.issue(acme, assignee=ada))
    runs.finish(run_id=run.pk, epoch=run.epoch, status="cancelled", code="cancelled")
    ada.refresh_from_db()
    assert ada.error_code == ""
    assert roster.status_of(ada, 0, []) == "idle"
    assert not HeartbeatRun.objects.filter(status="queued").exists()


@pytest.mark.django_db
def test_stopping_a_run_whose_holder_is_gone_ends_it_as_cancelled(ada, acme, now):
    from paperclip.engine import recover

    run = factories.running(ada, factories.issue(acme, assignee=ada))  # nobody carries it
    assert runs.cancel(run=run, actor=OLGA, now=now) == "running"
    recover.sweep(now=now)
    run.refresh_from_db()
    assert (run.status, run.code) == ("cancelled", "cancelled")
    assert runs.cancel(run=run, actor=OLGA, now=now) == "cancelled", (
        "a second press changes nothing"
    )


@pytest.mark.django_db
def test_a_manual_wake_each_hour_does_not_take_the_timers_place(acme, now):
    agent = factories.agent(
        acme, "Tim", heartbeat_enabled=True, interval_seconds=21_600, next_beat_at=now
    )
    factories.issue(acme, assignee=agent)
    beats = 0
    for hour in range(48):
        at = now + timedelta(hours=hour)
        beats += tick.beats(now=at)
        HeartbeatRun.objects.filter(status="queued").update(
            status="succeeded", started_at=at, finished_at=at
        )
        runs.wake(agent=agent, reason="manual", source="on_demand", actor=OLGA, now=at)
        HeartbeatRun.objects.filter(status="queued").update(
            status="succeeded", started_at=at, finished_at=at
        )
    assert 7 <= beats <= 9


@pytest.mark.django_db
def test_a_timer_does_not_pull_a_retry_forward(acme, now):
    agent = factories.agent(acme, "Tim", heartbeat_enabled=True, next_beat_at=now)
    issue = factories.issue(acme, assignee=agent)
    later = now + timedelta(minutes=45)
    factories.run(agent, issue, attempt=2, not_before=later)
    for minute in range(0, 45, 10):
        Agent.objects.filter(pk=agent.pk).update(next_beat_at=now + timedelta(minutes=minute))
        tick.beats(now=now + timedelta(minutes=minute))
    assert HeartbeatRun.objects.get().not_before == later


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("part", ["_listen", "_claim", "_beat", "_round", "_watch"])
def test_a_loop_of_a_shift_that_dies_ends_the_shift(
    during: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    part: str,
) -> None:
    """It looks fine otherwise, hears nothing and claims nothing."""

    async def broken(self: Any) -> None:
        await asyncio.sleep(0.05)
        raise RuntimeError("a fault of ours")

    broken.__name__ = part
    monkeypatch.setattr(shifts.Shift, part, broken)

    async def watch(shift: shifts.Shift) -> None:
        await asyncio.wait_for(shift._end.wait(), 20)

    assert during(watch) == shifts.FENCED


@pytest.mark.django_db
def test_a_broken_adapter_configuration_of_one_stops_no_other(acme, now):
    bad = factories.agent(acme, "Bad", adapter_type="no-such-adapter")
    good = factories.agent(acme, "Good")
    for agent in (bad, good):
        Agent.objects.filter(pk=agent.pk).update(heartbeat_enabled=True, next_beat_at=now)
        factories.issue(acme, assignee=agent)
    assert tick.beats(now=now) == 2
    claimed = runs.claim(worker_id=factories.worker().pk, limit=5)
    assert good.pk in {one.agent_id for one in claimed}


@pytest.mark.django_db
def test_failed_background_tasks_are_forgotten_after_two_weeks(now):
    from django_q.models import Task

    for name, days, success in (("new", 1, False), ("old", 20, False), ("good", 20, True)):
        at = now - timedelta(days=days)
        Task.objects.create(
            id=name, name=name, func="x", started=at, stopped=at, success=success, result="no"
        )
    tick.forget(now=now)
    assert set(Task.objects.values_list("name", flat=True)) == {"new", "good"}
