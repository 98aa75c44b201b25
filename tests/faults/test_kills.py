"""kill -9 again and again under load, and processes that freeze."""

from __future__ import annotations

import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
from django.db import connections
from django.utils import timezone

from agents.models import HeartbeatRun, RunEvent, Worker
from issues.models import Issue
from paperclip import watchdog
from tests.faults import company as firm
from tests.faults.processes import Processes, until
from tests.house.instance import database_address

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

DISPATCHERS = 3
ISSUES = firm.scaled(10_000)


def all_ended() -> bool:
    return firm.open_count() == 0 and firm.running() == 0


def succeeded() -> int:
    return HeartbeatRun.objects.filter(status="succeeded").count()


def alive() -> list[Worker]:
    return list(Worker.objects.filter(lease_expires_at__gt=timezone.now(), draining=False))


@contextmanager
def watched() -> Iterator[None]:
    """Bells are kept waiting, as the supervisor does every three seconds."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(3):
            watchdog.keep_bells_waiting()
        connections.close_all()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def kill_one_now_and_then(
    seconds: float, every: float, keep_busy: Callable[[], object]
) -> dict[str, float]:
    """SIGKILL a random dispatcher every so often; says when which worker died.

    `keep_busy` is called before each: a quick machine must not run out of work to interrupt.
    """
    dead: dict[str, float] = {}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(every)
        keep_busy()
        living = [one for one in alive() if str(one.pk) not in dead and psutil.pid_exists(one.pid)]
        if living:
            victim = random.choice(living)
            os.kill(victim.pid, signal.SIGKILL)
            dead[str(victim.pk)] = time.time()
    return dead


@pytest.mark.fault("T1", "kill -9 of a random dispatcher of three every two seconds")
@pytest.mark.parametrize(
    ("calm", "issues", "seconds"),
    [
        (20, 60, 7),
        pytest.param(
            ISSUES // 4,
            ISSUES,
            60,
            marks=[pytest.mark.faults_long, pytest.mark.timeout(1_800)],
        ),
    ],
)
def test_a_random_dispatcher_dies_every_two_seconds(
    processes: Processes, acme, settings, figures, calm: int, issues: int, seconds: float
):
    """In a real cluster, whose workers are forked anew and find a bell waiting."""
    settings.SHIFTS = DISPATCHERS
    settings.DIRECT_DSN = database_address()
    agents = firm.quick_staff(acme, 40, runs_each=2)
    watchdog.keep_bells_waiting()
    processes.cluster(DISPATCHERS)
    with watched():
        until(lambda: len(alive()) == DISPATCHERS, 60, what="three dispatchers")
        firm.give_many(agents, calm)
        began = time.monotonic()
        until(all_ended, 600, what="the calm part", look=0.1)
        undisturbed = calm / (time.monotonic() - began)
        # What the disturbed part will take lies there when it begins: giving it costs as much as
        # doing it.
        firm.give_many(agents, max(issues, int(1.2 * undisturbed * seconds)))

        def keep_busy() -> None:
            if firm.open_count() < issues // 10:
                firm.give_many(agents, issues)

        before = succeeded()
        began = time.monotonic()
        dead = kill_one_now_and_then(seconds, 2, keep_busy)
        disturbed = (succeeded() - before) / (time.monotonic() - began)
        until(all_ended, 1_200, what="all ended", look=0.5)
    rescued = [
        ended.timestamp() - dead[str(worker)]
        for worker, ended in HeartbeatRun.objects.filter(
            status="lost", retries__started_at__isnull=False
        ).values_list("worker_id", "finished_at")
        if str(worker) in dead
    ]
    figures.update(
        firm.check_all_done_once(),
        issues=Issue.objects.count() - calm,
        kills=len(dead),
        runs_lost_and_rescued=len(rescued),
        rescue_p99_seconds=round(_p99(rescued), 1),
        undisturbed_runs_a_second=round(undisturbed, 1),
        disturbed_runs_a_second=round(disturbed, 1),
        share_of_undisturbed=round(disturbed / undisturbed, 2),
    )
    assert len(dead) >= 2
    assert HeartbeatRun.objects.filter(status="lost").count() == len(rescued)


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else max(values, default=0.0)


@pytest.mark.fault("T2", "a frozen dispatcher wakes up after its lease")
@pytest.mark.parametrize("runs", [20, pytest.param(200, marks=pytest.mark.faults_long)])
def test_a_frozen_dispatcher_wakes_up_late(processes: Processes, acme, figures, runs: int):
    firm.give_many(firm.quick_staff(acme, 20, runs_each=10, words=60, seconds=0.1), runs)
    frozen = processes.shift()
    until(
        lambda: RunEvent.objects.filter(kind="text").values("run_id").distinct().count() >= runs,
        90,
        what="all streams",
        look=0.2,
    )
    os.kill(frozen.pid, signal.SIGSTOP)
    overlapping = firm.running()
    processes.shift()
    until(
        lambda: HeartbeatRun.objects.filter(status="lost").count() == overlapping,
        60,
        what="the rescue of all",
        look=0.2,
    )
    os.kill(frozen.pid, signal.SIGCONT)
    until(all_ended, 120, what="all ended", look=0.2)
    figures.update(
        firm.check_all_done_once(),
        overlapping=overlapping,
        of_the_first_epoch=HeartbeatRun.objects.filter(status="succeeded", attempt=1).count(),
        stale_writes_blocked=processes.log_of("shift", 0).read_text().count("stale_write_blocked"),
        frozen_ended_with=frozen.poll(),
    )
    assert overlapping > 0
    assert HeartbeatRun.objects.filter(status="succeeded", attempt=2).count() == overlapping
