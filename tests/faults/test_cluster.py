"""A shift inside a real django-q2 cluster, and the death of each of the cluster's processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import psutil
import pytest
from django.utils import timezone

from agents.models import HeartbeatRun, Worker
from companies.models import Company
from paperclip.engine import schedule
from tests.faults import company as firm
from tests.faults.processes import Processes, family, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def shifts_are_one(settings) -> None:
    settings.SHIFTS = 1


def start(processes: Processes) -> subprocess.Popen[bytes]:
    """A cluster of one worker, tied together as `manage.py up` ties it."""
    return processes.start(
        "qcluster",
        "--skip-checks",
        Q_CLUSTER_NAME="dispatch",
        PAPERCLIP_SHIFTS="1",
        PAPERCLIP_INSTANCE="here",
        PAPERCLIP_SUPERVISED="1",
    )


def workers() -> list[Worker]:
    return list(Worker.objects.filter(lease_expires_at__gt=timezone.now(), draining=False))


def started(seconds: float = 40) -> Worker:
    until(lambda: len(workers()) == 1, seconds, what="one shift")
    return workers()[0]


def test_a_shift_is_there_soon_and_only_one(processes: Processes, acme, shifts_are_one):
    schedule.ensure()
    schedule.ring()
    start(processes)
    first = started()
    for _ in range(3):
        schedule.ring()  # bells that nobody needs
    firm.give(firm.staff(acme, 1, pace=0), 1)
    until(lambda: firm.open_count() == 0, 20, what="the work done")
    time.sleep(2)
    assert [one.pk for one in workers()] == [first.pk]
    assert Worker.objects.count() == 1


def test_sigterm_of_the_parent_ends_all_in_good_order(processes: Processes, acme, shifts_are_one):
    """Nobody asks the shift to drain: it sees the cluster's own stop."""
    schedule.ring()
    schedule.ring()
    cluster = start(processes)
    firm.give(firm.staff(acme, 1, pace=20), 1)
    until(lambda: firm.running() == 1, 40, what="a run")
    members = family(cluster.pid)
    cluster.terminate()
    cluster.wait(15)
    psutil.wait_procs(members, timeout=5)
    assert not [one for one in members if one.is_running()]
    assert HeartbeatRun.objects.get(attempt=1, status="lost").message
    assert HeartbeatRun.objects.filter(status="queued").count() == 1
    assert workers() == []


@pytest.mark.parametrize("victim", ["worker", "sentinel", "parent"])
def test_kill_9_of_a_process_of_the_cluster(processes: Processes, acme, shifts_are_one, victim):
    """Twenty streams, a kill, and somebody to start again what is gone: all done, none twice."""
    Company.objects.filter(pk=acme.pk).update(max_concurrent_agents=20)
    schedule.ring()
    cluster = start(processes)
    shift = started()
    firm.give(firm.staff(acme, 20, pace=0.5), 20)
    until(lambda: firm.running() == 20, 40, what="twenty runs")
    members = family(cluster.pid)
    pid = {"worker": shift.pid, "parent": cluster.pid}.get(victim)
    if pid is None:
        (pid,) = (one.pid for one in psutil.Process(cluster.pid).children())
    os.kill(pid, signal.SIGKILL)
    if victim != "worker":
        cluster.wait(15)
        _, left = psutil.wait_procs([m for m in members if m.pid != cluster.pid], timeout=10)
        assert left == []
        start(processes)
    schedule.ensure()  # as the next start and the next minute do
    until(lambda: firm.open_count() == 0 and firm.running() == 0, 60, what="all ended")
    ends = firm.check_each_done_once_or_failed_visibly()
    assert ends["done"] >= 1
