"""Machines whose clocks are wrong, and many schedulers at one moment."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.models import Agent, HeartbeatRun, RunEvent
from tests import factories
from tests.faults import company as firm
from tests.faults.nursery import Nursery
from tests.faults.processes import Processes, kill, until
from tests.races.threads import many

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

AHEAD, BEHIND = {"TEST_CLOCK_OFFSET": "7200"}, {"TEST_CLOCK_OFFSET": "-7200"}


def all_ended() -> bool:
    return firm.open_count() == 0 and firm.running() == 0


@pytest.mark.slow
@pytest.mark.fault("T17", "one dispatcher is two hours ahead, one behind, and the right one dies")
def test_clocks_that_are_hours_off(processes: Processes, acme, figures):
    """No rescue comes too early, no second attempt is put off, no timer fires before its time."""
    agents = firm.quick_staff(acme, 6, words=60, seconds=0.1)
    sleeper = factories.agent(
        acme,
        adapter_type="quick",
        heartbeat_enabled=True,
        interval_seconds=3_600,
        next_beat_at=timezone.now() + timedelta(hours=1),
    )
    factories.issue(acme, "Later", assignee=sleeper, status="todo")
    right = processes.shift()
    firm.give_many(agents, 6)
    until(
        lambda: RunEvent.objects.filter(kind="text").values("run_id").distinct().count() == 6,
        60,
        what="six streams",
    )
    wrong = [processes.shift(**AHEAD), processes.shift(**BEHIND)]
    until(lambda: firm.open_count() == 1, 60, what="six done by who had begun them")
    assert not HeartbeatRun.objects.exclude(status="succeeded").exists()
    firm.give_many(agents, 6)
    until(lambda: firm.running() == 6, 30, what="six more")
    kill([right])
    until(lambda: firm.open_count() == 1 and firm.running() == 0, 60, what="all the others done")
    assert not HeartbeatRun.objects.filter(agent=sleeper).exists()
    lost = HeartbeatRun.objects.filter(status="lost")
    for run in lost:
        (again,) = run.retries.all()
        assert abs(again.not_before - run.finished_at) < timedelta(seconds=30)
    assert [one.poll() for one in wrong] == [None, None]
    sleeper.issues.update(status="done")
    figures.update(firm.check_all_done_once(), rescued=lost.count())


@pytest.mark.fault("T19", "three schedulers look at a thousand timers at once")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("count", [60, pytest.param(1_000, marks=pytest.mark.faults_long)])
def test_a_thousand_timers_and_three_schedulers(acme, figures, count: int):
    from paperclip.engine import tick

    now = timezone.now()
    agents = [
        factories.agent(acme, heartbeat_enabled=True, next_beat_at=now, interval_seconds=300)
        for _ in range(count)
    ]
    for agent in agents:
        factories.issue(acme, assignee=agent)
    made = many(3, lambda _: tick.beats(now=now))
    again = many(3, lambda _: tick.beats(now=now))
    following = sorted(Agent.objects.values_list("next_beat_at", flat=True))
    fullest = max(
        sum(one <= other < one + timedelta(seconds=10) for other in following) for one in following
    )
    figures.update(
        timers=count, runs=sum(made), runs_of_a_second_look=sum(again), in_ten_seconds=fullest
    )
    assert sum(made) == count
    assert sum(again) == 0
    assert HeartbeatRun.objects.values("agent_id", "scheduled_for").distinct().count() == count
    assert fullest <= -(-count // 30) + 2  # 300 seconds have thirty such windows


@pytest.mark.slow
@pytest.mark.fault("T20", "two minute hands, one of which stands still in the middle of a rescue")
def test_a_minute_hand_that_stands_still_keeps_nobody(processes: Processes, acme, figures):
    firm.give_many(firm.quick_staff(acme, 8, words=80, seconds=0.1), 8)
    with Nursery(processes) as nursery:
        dying = nursery.shift(PAPERCLIP_FAULT_POINTS="streaming=kill@20")
        until(lambda: nursery.ended(dying), 60, what="a dead holder")
        held = firm.running()
        standing = nursery.shift(PAPERCLIP_FAULT_POINTS="rescuing=sleep:40@1")
        nursery.shift()
        until(
            lambda: HeartbeatRun.objects.filter(status="lost").count() >= held - 1,
            40,
            what="the rescue",
        )
        until(lambda: firm.open_count() <= 1, 60, what="all but one done")
        assert not nursery.ended(standing)
        until(all_ended, 90, what="the last one")
    figures.update(firm.check_all_done_once(), rescued=held)
