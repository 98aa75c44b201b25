"""Several shifts in processes of their own, and what kills them."""

from __future__ import annotations

import os
import signal
import time

import pytest
from django.utils import timezone

from agents.models import HeartbeatRun, RunEvent, Worker
from companies.models import Company
from paperclip.engine import schedule
from tests.faults import company as firm
from tests.faults.processes import Processes, kill, until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


def alive() -> int:
    return Worker.objects.filter(lease_expires_at__gt=timezone.now(), draining=False).count()


@pytest.mark.slow
@pytest.mark.fault("CAPS", "three dispatchers, caps of agents and company, sampled all the time")
def test_two_hundred_issues_by_three_shifts_are_each_done_once(processes: Processes, acme):
    Company.objects.filter(pk=acme.pk).update(max_concurrent_agents=7)
    agents = firm.staff(acme, 10, pace=0.001)
    agents += firm.staff(acme, 10, pace=0.001, max_concurrent_runs=2)
    firm.give(agents, 200)
    caps = firm.Caps()
    caps.start()
    for _ in range(3):
        processes.shift()
    until(lambda: firm.open_count() == 0 and firm.running() == 0, 120, what="all done")
    caps.over.set()
    caps.join()
    assert firm.check_each_done_once_or_failed_visibly() == {"done": 200}
    assert HeartbeatRun.objects.count() == 200
    assert caps.excesses == []
    assert caps.samples > 50
    assert caps.peak > 3
    assert "Traceback" not in processes.logs()


@pytest.mark.slow
def test_kill_9_in_the_middle_of_twenty_streams(processes: Processes, acme):
    """Two of three shifts die; every issue is done or visibly failed within a minute."""
    Company.objects.filter(pk=acme.pk).update(max_concurrent_agents=20)
    firm.give(firm.staff(acme, 20, pace=0.5), 20)
    shifts = [processes.shift() for _ in range(3)]
    until(
        lambda: RunEvent.objects.filter(kind="text").values("run_id").distinct().count() == 20,
        60,
        what="twenty streams",
    )
    kill(shifts[:2])
    processes.shift()
    took = until(lambda: firm.open_count() == 0 and firm.running() == 0, 60, what="all ended")
    ends = firm.check_each_done_once_or_failed_visibly()
    assert ends["done"] >= 1
    assert took < 60
    lost = HeartbeatRun.objects.filter(status__in=["lost", "unknown"])
    assert lost.filter(epoch=2).count() == lost.count()


@pytest.mark.slow
def test_a_frozen_shift_that_wakes_up_late_changes_nothing(processes: Processes, acme):
    (agent,) = firm.staff(acme, 1, pace=1.5)
    firm.give([agent], 1)
    frozen = processes.shift()
    until(lambda: RunEvent.objects.filter(kind="text").exists(), 30, what="a stream")
    os.kill(frozen.pid, signal.SIGSTOP)
    second = processes.shift()
    until(
        lambda: HeartbeatRun.objects.filter(attempt=2, status="running").exists(),
        40,
        what="the rescue",
    )
    os.kill(frozen.pid, signal.SIGCONT)
    until(lambda: firm.open_count() == 0 and firm.running() == 0, 60, what="the end")
    assert firm.check_each_done_once_or_failed_visibly() == {"done": 1}
    first = HeartbeatRun.objects.get(attempt=1)
    assert first.status == "lost"
    assert set(RunEvent.objects.filter(run_id=first.pk).values_list("epoch", flat=True)) <= {1, 2}
    assert second.poll() is None
    assert frozen.poll() is None or frozen.returncode == 75


@pytest.mark.slow
@pytest.mark.fault("SIGTERM", "an instance is stopped: grace, release under a new epoch, taken up")
def test_sigterm_hands_the_work_over_in_good_order(processes: Processes, acme):
    Company.objects.filter(pk=acme.pk).update(max_concurrent_agents=10)
    firm.give(firm.staff(acme, 5, pace=1), 5)
    first = processes.shift(PAPERCLIP_GRACE="0.2")
    until(lambda: firm.running() == 5, 30, what="five running")
    time.sleep(1)
    second = processes.shift()
    until(lambda: alive() == 2, 30, what="two workers")
    first.terminate()
    began = time.monotonic()
    assert first.wait(15) == 0
    assert time.monotonic() - began < 12
    assert not HeartbeatRun.objects.filter(worker__draining=True, status="running").exists()
    until(lambda: firm.open_count() == 0 and firm.running() == 0, 90, what="all done")
    assert firm.check_each_done_once_or_failed_visibly() == {"done": 5}
    assert HeartbeatRun.objects.filter(attempt__gt=1).count() == 0
    assert second.poll() is None


@pytest.mark.slow
def test_a_request_to_drain_ends_the_shifts_of_one_instance(processes: Processes, acme):
    mine = processes.shift(PAPERCLIP_INSTANCE="mine")
    other = processes.shift(PAPERCLIP_INSTANCE="other")
    until(lambda: alive() == 2, 30, what="two workers")
    assert schedule.request_drain("mine") == 1
    assert mine.wait(10) == 0
    assert other.poll() is None
