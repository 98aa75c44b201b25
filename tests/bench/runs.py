"""Whole runs a second: claimed, carried by three real shifts with an adapter of 5 ms, written,
finished and noted in the activity; with an issue that each checks out, comments and closes, and
without one, as a timer's beat."""

from __future__ import annotations

import multiprocessing
import os
import select
import statistics
import threading
import time
from dataclasses import dataclass, field

import psutil

from tests.bench import rows
from tests.bench.report import Table, spread
from tests.house.instance import database_address

SHIFTS = 3
RUNS = 3_000
ISSUES = 120_000
COMPANIES = 10
AGENTS_A_COMPANY = 10
OPEN_EVERY = 33  # enough of them open for a round, and shares no factor with the agents
ROUNDS = 2
PATIENCE_SECONDS = 120
WARM = 300  # runs that are not counted: processes start and plan their statements
TIMER = "T"  # the names of agents that beat without an issue begin with it
INBOX = 3  # open issues of each, which its run is told of


def shift(name: str) -> None:
    """A process that carries runs until it is told to end."""
    os.environ["PAPERCLIP_INSTANCE"] = name
    import django

    django.setup()
    from agents import adapters
    from paperclip.engine import station
    from tests.faults.quick import Quick

    adapters._ADAPTERS[Quick.type] = Quick()
    station.in_foreground()


def ended() -> int:
    from agents.models import HeartbeatRun

    return HeartbeatRun.objects.filter(status=HeartbeatRun.Status.SUCCEEDED).count()


@dataclass(slots=True)
class Open:
    """A transaction that somebody has left open, with an agent's and a company's row locked."""

    over: threading.Event = field(default_factory=threading.Event)
    seconds: float = 0.0

    def hold(self) -> None:
        """Until the server ends it, or the round is over."""
        import psycopg

        began = time.monotonic()
        try:
            with psycopg.connect(database_address()) as connection:
                connection.execute("SELECT 1 FROM agents_agent ORDER BY id LIMIT 1 FOR UPDATE")
                connection.execute("SELECT 1 FROM companies_company ORDER BY id LIMIT 1 FOR UPDATE")
                while not self.over.wait(0.1):
                    if connection.pgconn.socket >= 0 and self._ended(connection.pgconn.socket):
                        break
                self.seconds = time.monotonic() - began
        except psycopg.Error:
            self.seconds = self.seconds or time.monotonic() - began

    @staticmethod
    def _ended(socket: int) -> bool:
        """Has the server said something? To an idle session it only says goodbye."""
        return bool(select.select([socket], [], [], 0)[0])


def with_issues(left_open: Open | None = None) -> tuple[float, float, float]:
    """A round of runs that each do an issue."""
    rows.reopen()
    rows.queue(RUNS + WARM)
    figures = one_round(left_open)
    check()
    check_issues()
    return figures


def without_issues() -> tuple[float, float, float]:
    """A round of beats, one of each of as many agents."""
    rows.reopen()
    assert rows.queue_timers(TIMER) == RUNS + WARM
    figures = one_round()
    check()
    check_beats()
    return figures


def one_round(left_open: Open | None = None) -> tuple[float, float, float]:
    """Runs a second, and milliseconds of processor time of a run in the shifts and in the
    database."""
    context = multiprocessing.get_context("spawn")
    shifts = [context.Process(target=shift, args=(f"bench {number}",)) for number in range(SHIFTS)]
    for process in shifts:
        process.start()
    try:
        wait_for(WARM)
        holder = threading.Thread(target=left_open.hold if left_open else lambda: None)
        holder.start()
        before, began, counted = processor(shifts), time.monotonic(), ended()
        wait_for(RUNS + WARM)
        seconds, after = time.monotonic() - began, processor(shifts)
    finally:
        if left_open is not None:
            left_open.over.set()
        for process in shifts:
            process.terminate()
        for process in shifts:
            process.join(30)
    done = RUNS + WARM - counted
    python, postgres = ((b - a) * 1000 / done for a, b in zip(before, after, strict=True))
    return done / seconds, python, postgres


def wait_for(count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (done := ended()) < count:
        assert time.monotonic() < deadline, f"{done} of {count} runs have ended"
        time.sleep(0.05)


def processor(shifts: list[multiprocessing.Process]) -> tuple[float, float]:
    """Seconds of processor time used so far: by the shifts, by the database."""
    python = sum(sum(psutil.Process(shift.pid).cpu_times()[:2]) for shift in shifts)
    return python, rows.server_seconds()


def check() -> None:
    """Every run has ended once, under its own epoch, and left all its traces."""
    from agents.models import HeartbeatRun, RunEvent
    from companies.models import Activity

    total = RUNS + WARM
    assert HeartbeatRun.objects.count() == total
    assert HeartbeatRun.objects.filter(status="succeeded", epoch=2).count() == total
    assert RunEvent.objects.filter(kind="text").count() == total
    assert RunEvent.objects.filter(kind="status").count() == 2 * total
    ended = Activity.objects.filter(action="run.succeeded")
    assert ended.count() == ended.values("run_id").distinct().count() == total


def check_issues() -> None:
    """Each run's issue was checked out and given back once, commented and closed."""
    from agents.models import HeartbeatRun
    from companies.models import Activity
    from issues.models import Checkout, Comment, Issue

    total = RUNS + WARM
    issues = HeartbeatRun.objects.values("issue_id")
    assert Issue.objects.filter(id__in=issues, status="done").count() == total
    assert Comment.objects.filter(issue__in=issues).count() == total
    assert Checkout.objects.filter(released_at__isnull=False).count() == total
    assert Activity.objects.count() == 4 * total


def check_beats() -> None:
    """Each agent has had one, and nothing else has happened."""
    from agents.models import HeartbeatRun
    from companies.models import Activity
    from issues.models import Checkout

    total = RUNS + WARM
    assert HeartbeatRun.objects.values("agent_id").distinct().count() == total
    assert not Checkout.objects.exists()
    assert Activity.objects.count() == total


def bench() -> Table:
    table = Table(
        name="runs",
        title=f"Whole runs a second: {SHIFTS} shifts, an adapter of 5 ms, {RUNS:,} runs",
        columns=(
            "what",
            f"runs/s, median of {ROUNDS} rounds",
            "processor ms a run, shifts",
            "processor ms a run, database",
        ),
        notes=[
            "Each run says a word and is noted in the activity. With an issue it checks it out, "
            f"comments and closes it; {ISSUES:,} issues of {COMPANIES * AGENTS_A_COMPANY} agents. "
            f"A beat is told of its agent's {INBOX} open issues; {RUNS + WARM:,} agents, since "
            "each has one at a time. All were checked afterwards: ended once, one word, closed, "
            "one comment. The open transaction has locked an agent's and its company's row; the "
            "server ends it after ten seconds, or the round is over before."
        ],
    )
    with rows.database():
        rows.companies(COMPANIES, agents=AGENTS_A_COMPANY, runs_an_agent=20, adapter_type="quick")
        rows.issues(ISSUES, open_every=OPEN_EVERY)
        table.add("with an issue", *figures([with_issues() for _ in range(ROUNDS)]))
        left_open = Open()
        disturbed = figures([with_issues(left_open)])
        table.add(
            f"with an issue, beside a transaction left open, {left_open.seconds:.0f} s", *disturbed
        )
        beating = (RUNS + WARM) // COMPANIES
        rows.hire(beating, runs_an_agent=1, adapter_type="quick", name=TIMER)
        rows.hand_over(TIMER, INBOX)
        beats = figures([without_issues() for _ in range(ROUNDS)])
        table.add("without an issue: a timer's beat", *beats)
    return table


def figures(rounds: list[tuple[float, float, float]]) -> tuple[str, str, str]:
    rates, python, postgres = (list(part) for part in zip(*rounds, strict=True))
    return spread(rates), f"{statistics.median(python):.1f}", f"{statistics.median(postgres):.1f}"
