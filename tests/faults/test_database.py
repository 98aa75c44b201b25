"""The database restarts, crashes, goes away and comes back, on a server of the test's own."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest
from django.db import connections

from agents.models import HeartbeatRun, RunEvent
from companies.faultpoints import VARIABLE
from companies.models import Company
from tests import factories
from tests.faults import company as firm
from tests.faults.processes import Processes, family, until
from tests.faults.server import OwnServer, patiently
from tests.house.instance import database_address

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

FAST, IMMEDIATE = signal.SIGINT, signal.SIGQUIT
T9 = pytest.mark.fault("T9", "PostgreSQL restarts (fast) under load")
T10 = pytest.mark.fault("T10", "PostgreSQL crashes (immediate stop) under load")
STOPS = pytest.mark.parametrize(
    "signum", [pytest.param(FAST, marks=T9), pytest.param(IMMEDIATE, marks=T10)]
)


@pytest.fixture
def firma(own_server: OwnServer) -> Company:
    return factories.company("Acme", "ACM")


@patiently
def all_ended() -> bool:
    return firm.open_count() == 0 and firm.running() == 0


def succeeded() -> int:
    return HeartbeatRun.objects.filter(status="succeeded").count()


def more_than(count: int) -> Callable[[], bool]:
    return patiently(lambda: succeeded() > count)


@STOPS
def test_the_database_restarts_under_twenty_streams(
    own_server: OwnServer, beside: Processes, firma: Company, figures, signum: signal.Signals
):
    Company.objects.filter(pk=firma.pk).update(max_concurrent_agents=20)
    firm.give(firm.staff(firma, 20, pace=0.5), 20)
    for _ in range(2):
        beside.shift()
    until(
        lambda: RunEvent.objects.filter(kind="text").values("run_id").distinct().count() == 20,
        60,
        what="twenty streams",
    )
    own_server.restart(signum)
    until(all_ended, 60, what="all ended", look=0.2)
    ends = firm.check_each_done_once_or_failed_visibly()
    figures.update(ends, log_bytes=len(beside.logs()))
    assert ends["done"] >= 1
    assert len(beside.logs()) < 200_000


@pytest.mark.faults_long
@STOPS
def test_three_restarts_under_load_lose_nothing_that_was_acknowledged(
    own_server: OwnServer,
    beside: Processes,
    firma: Company,
    figures,
    tmp_path: Path,
    signum: signal.Signals,
):
    """Each shift keeps a journal of the ends that the database acknowledged to it."""
    journal = tmp_path / "journal"
    firm.give_many(firm.quick_staff(firma, 20, runs_each=5, metered=True), firm.scaled(3_000))
    for _ in range(3):
        beside.shift(**{VARIABLE: f"committed=note:{journal}"})
    resumed = []
    for _ in range(3):
        until(more_than(patiently(succeeded)() + firm.scaled(150)), 60, what="some work")
        own_server.restart(signum)
        ready = time.monotonic()
        until(more_than(patiently(succeeded)()), 30, what="the next end", look=0.02)
        resumed.append(round(time.monotonic() - ready, 2))
    until(all_ended, 200, what="all ended", look=0.5)
    acknowledged = {line.split()[3] for line in journal.read_text().splitlines()}
    kept = {
        str(one)
        for one in HeartbeatRun.objects.exclude(status__in=["queued", "running"]).values_list(
            "id", flat=True
        )
    }
    figures.update(
        firm.check_all_done_once(),
        resumed_seconds=resumed,
        acknowledged=len(acknowledged),
        acknowledged_lost=len(acknowledged - kept),
        runs_lost=HeartbeatRun.objects.filter(status="lost").count(),
        log_bytes=len(beside.logs()),
    )
    assert acknowledged <= kept
    assert max(resumed) < 15


@pytest.mark.fault("T8", "a connection of ours is terminated by the server every 200 ms")
@pytest.mark.parametrize(
    ("seconds", "issues"),
    [(5, 60), pytest.param(60, firm.scaled(3_000), marks=pytest.mark.faults_long)],
)
def test_backends_die_at_random(processes: Processes, acme, figures, seconds: int, issues: int):
    firm.give_many(firm.quick_staff(acme, 20, runs_each=3, metered=True), issues)
    for _ in range(2):
        processes.shift()
    until(lambda: succeeded() > 0, 30, what="work")
    victims = 0
    with psycopg.connect(database_address(), autocommit=True) as own:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            row = own.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'paperclip'"
                "   AND pid <> pg_backend_pid() AND pid <> %s ORDER BY random() LIMIT 1",
                [connections["default"].connection.info.backend_pid],
            ).fetchone()
            victims += bool(row and row[0])
            time.sleep(0.2)
    done = succeeded()
    took = until(lambda: succeeded() > done or all_ended(), 20, what="the next end", look=0.02)
    until(all_ended, 120, what="all ended", look=0.2)
    figures.update(
        firm.check_all_done_once(),
        backends_killed=victims,
        seconds_to_recover=round(took, 2),
        runs_lost=HeartbeatRun.objects.filter(status="lost").count(),
    )
    assert victims > seconds * 2


@pytest.mark.faults_long
@pytest.mark.fault("T11", "a crash with 1.5 GB of log to read again")
def test_a_crash_with_much_to_recover(
    own_server: OwnServer, beside: Processes, firma: Company, figures
):
    firm.give_many(firm.quick_staff(firma, 10), 200)
    beside.shift()
    with psycopg.connect(own_server.dsn, autocommit=True) as own:
        own.execute("CREATE TABLE bulk (n bigint, text text)")
        own.execute("CHECKPOINT")
        before = own.execute("SELECT pg_current_wal_lsn()").fetchone()
        size = 0.0
        while size < 1.5e9:
            own.execute(
                "INSERT INTO bulk SELECT n, repeat(md5(n::text), 8)"
                " FROM generate_series(1, 400000) AS n"
            )
            row = own.execute("SELECT pg_current_wal_lsn() - %s", before).fetchone()
            size = float(row[0]) if row else 0.0
    firm.give_many(firm.quick_staff(firma, 5), 50)
    began = time.monotonic()
    own_server.restart(IMMEDIATE)
    ready = time.monotonic() - began
    done = patiently(succeeded)()
    firm.give_many(firm.quick_staff(firma, 5), 20)
    resumed = until(patiently(lambda: succeeded() > done), 30, what="the next end", look=0.02)
    until(all_ended, 60, what="all ended", look=0.2)
    figures.update(
        firm.check_all_done_once(),
        wal_gigabytes=round(size / 1e9, 2),
        ready_seconds=round(ready, 1),
        resumed_seconds=round(resumed, 1),
    )
    assert ready < 60


@pytest.mark.fault("T21", "somebody leaves a transaction open")
@pytest.mark.parametrize(
    ("span", "seconds"), [(3, 13), pytest.param(20, 120, marks=pytest.mark.faults_long)]
)
def test_an_idle_transaction_is_ended(
    own_server: OwnServer, beside: Processes, firma: Company, figures, span: int, seconds: int
):
    """Ours and anybody's: after ten seconds its locks and its snapshot are gone."""
    agents = firm.quick_staff(firma, 10, runs_each=3)
    beside.shift()

    def rate(span: float) -> float:
        firm.give_many(agents, round(50 * span))
        until(lambda: succeeded() > 0, 30, what="work")
        before = succeeded()
        time.sleep(span)
        return (succeeded() - before) / span

    undisturbed = rate(span)
    idle = psycopg.connect(own_server.dsn)
    idle.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    idle.execute("SELECT count(*) FROM agents_heartbeatrun").fetchone()
    disturbed = rate(seconds)
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        idle.execute("SELECT 1")
    idle.close()
    figures.update(
        undisturbed_runs_a_second=round(undisturbed, 1),
        disturbed_runs_a_second=round(disturbed, 1),
    )


@pytest.mark.faults_long
@pytest.mark.fault("T16", "the database is away for ten minutes")
@pytest.mark.timeout(900)
def test_the_database_is_away_for_long(own_server: OwnServer, tmp_path: Path, figures):
    _away(own_server, tmp_path, figures, seconds=600, settled=60)
    assert figures["most log bytes a minute"] < 1_000_000
    assert figures["most % of a core"] < 5
    percent, _, name = figures["most growth (%, MB, of)"]
    assert percent <= 5, name


@pytest.mark.fault("T16", "the database is away for half a minute")
def test_the_database_is_away_for_a_while(own_server: OwnServer, tmp_path: Path, figures):
    _away(own_server, tmp_path, figures, seconds=30, settled=10)
    assert figures["most log bytes a minute"] < 100_000


def _away(
    own_server: OwnServer, tmp_path: Path, figures: dict, *, seconds: float, settled: float
) -> None:
    """A whole instance without its database: what it says, burns and keeps; then it goes on."""
    from tests.house.instance import Instance

    instance = Instance(tmp_path / "instance", DATABASE_URL=own_server.dsn).start()
    try:
        (top,) = [psutil.Process(instance.process.pid)]
        own_server.end(FAST)
        began = time.monotonic()
        statuses: set[int] = set()
        over = threading.Event()

        def visit() -> None:
            while not over.wait(2):
                statuses.add(instance.status("/api/health"))

        visitor = threading.Thread(target=visit, daemon=True)
        visitor.start()
        time.sleep(settled)
        before = {one.pid: _use(one) for one in family(top.pid)}
        said = len(instance.output())
        time.sleep(max(0.0, seconds - (time.monotonic() - began)))
        span = time.monotonic() - began - settled
        after = {one.pid: _use(one) for one in family(top.pid)}
        grown = len(instance.output()) - said
        over.set()
        visitor.join()
        same = [pid for pid in before.keys() & after.keys() if before[pid][1] > 1]
        figures.update(
            {
                "processes": len(after),
                "started anew meanwhile": len(after.keys() - before.keys()),
                "most log bytes a minute": round(grown / span * 60),
                "most % of a core": round(
                    max(100 * (after[p][0] - before[p][0]) / span for p in same), 2
                ),
                "most growth (%, MB, of)": max(
                    (
                        round(100 * (after[p][1] / before[p][1] - 1), 1),
                        round((after[p][1] - before[p][1]) / 1e6, 2),
                        after[p][2],
                    )
                    for p in same
                ),
                "health said": sorted(statuses),
            }
        )
        own_server.start()
        back = until(lambda: instance.status("/api/health/ready") == 200, 60, what="ready again")
        figures["seconds until ready again"] = round(back, 1)
    finally:
        instance.stop()


def _use(process: psutil.Process) -> tuple[float, int, str]:
    """Processor seconds, bytes of memory and what it is; a child that has ended is nobody.

    Memory is what the process holds, also where it still shares a page with the process that it
    was forked from. What it alone holds (USS) grows by itself as others write to such pages.
    """
    try:
        times = process.cpu_times()
        name = process.environ().get("PAPERCLIP_PROCESS", "up")
        return times.user + times.system, _anonymous(process.pid), name
    except (psutil.Error, OSError):
        return 0.0, 1, ""


def _anonymous(pid: int) -> int:
    """Bytes that are no part of a file."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (size,) = [line.split()[1] for line in lines if line.startswith("Anonymous:")]
    return int(size) * 1024
