"""A network that misbehaves between the shifts and PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil
import psycopg
import pytest
from django.utils import timezone

from agents.models import HeartbeatRun, RunEvent, Worker
from tests.faults import company as firm
from tests.faults import proxy as proxies
from tests.faults.processes import Processes, until
from tests.faults.proxy import Proxy
from tests.house.instance import database_address

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def proxy(transactional_db: None) -> Iterator[Proxy]:
    with Proxy(database_address()) as made:
        yield made


def all_ended() -> bool:
    return firm.open_count() == 0 and firm.running() == 0


def alive() -> int:
    return Worker.objects.filter(lease_expires_at__gt=timezone.now(), draining=False).count()


# --- the proxy itself ------------------------------------------------------------------------


def test_the_proxy_passes_delays_and_breaks(proxy: Proxy):
    with psycopg.connect(proxy.dsn, autocommit=True) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)
        proxy.reset_all()
        with pytest.raises(psycopg.OperationalError):
            conn.execute("SELECT 1")
    proxy.set(proxies.REFUSE)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.dsn)
    assert proxy.counts["connections"] >= 2


def test_a_swallowed_answer_was_a_commit_all_the_same(proxy: Proxy):
    with psycopg.connect(proxy.dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE proxied (n int)")
    try:
        conn = psycopg.connect(proxy.dsn)
        conn.execute("INSERT INTO proxied VALUES (1)")
        proxy.drop_acks(1)
        with pytest.raises(psycopg.OperationalError):
            conn.commit()
        conn.close()
        with psycopg.connect(proxy.dsn) as conn:
            assert conn.execute("SELECT n FROM proxied").fetchall() == [(1,)]
        assert proxy.counts["dropped"] == 1
    finally:
        with psycopg.connect(database_address(), autocommit=True) as conn:
            conn.execute("DROP TABLE proxied")


def test_a_black_hole_answers_nothing_until_it_is_closed(proxy: Proxy):
    with psycopg.connect(proxy.dsn, autocommit=True) as conn:
        proxy.set(proxies.BLACK_HOLE)
        pgconn = conn.pgconn
        pgconn.send_query(b"SELECT 1")
        pgconn.flush()
        time.sleep(0.5)
        pgconn.consume_input()
        assert pgconn.is_busy()
        proxy.set(proxies.PASS_ON)
        until(lambda: (pgconn.consume_input(), not pgconn.is_busy())[1], 5, what="the answer")
        while pgconn.get_result():
            pass


# --- shifts behind it ------------------------------------------------------------------------


@pytest.mark.fault("T12", "the network swallows everything, without a word, under live runs")
@pytest.mark.parametrize("hole_seconds", [13, pytest.param(30, marks=pytest.mark.faults_long)])
def test_a_black_hole(processes: Processes, proxy: Proxy, acme, figures, hole_seconds: int):
    """Who cannot be heard stops in time; somebody with a better line goes on; nobody hangs."""
    firm.give_many(firm.quick_staff(acme, 10, words=30, seconds=0.1), 10)
    cut_off = processes.shift(DATABASE_URL=proxy.dsn)
    until(
        lambda: RunEvent.objects.filter(kind="text").values("run_id").distinct().count() == 10,
        60,
        what="ten streams",
    )
    (worker,) = Worker.objects.values_list("id", flat=True)
    proxy.set(proxies.BLACK_HOLE)
    began = time.monotonic()
    log = processes.log_of("shift", 0)
    until(
        lambda: "the lease could not be renewed in time" in log.read_text(),
        12,
        what="the shift stops by its own clock",
    )
    figures["seconds until it stopped itself"] = round(time.monotonic() - began, 1)
    processes.shift()
    until(all_ended, 60, what="all ended by the other")
    time.sleep(max(0.0, hole_seconds - (time.monotonic() - began)))
    proxy.set(proxies.PASS_ON)
    back = until(lambda: alive() == 2, 20, what="both shifts")
    figures["seconds until it worked again"] = round(back, 1)
    threads = psutil.Process(cut_off.pid).num_threads()
    figures["threads"] = threads
    assert not HeartbeatRun.objects.filter(worker_id=worker, status="succeeded").exists()
    firm.give_many(firm.quick_staff(acme, 10), 20)
    until(all_ended, 30, what="the next ones")
    figures.update(firm.check_all_done_once())
    proxy.set(proxies.BLACK_HOLE)
    cut_off.terminate()
    began = time.monotonic()
    cut_off.wait(25)
    figures["seconds to end in the hole"] = round(time.monotonic() - began, 1)


@pytest.mark.fault("T13", "acknowledgements of commits are swallowed and the connection is reset")
@pytest.mark.parametrize(
    ("issues", "drops"),
    [(40, 30), pytest.param(firm.scaled(600), firm.scaled(400), marks=pytest.mark.faults_long)],
)
def test_lost_acknowledgements(
    processes: Processes, proxy: Proxy, acme, figures, issues: int, drops: int
):
    firm.give_many(firm.quick_staff(acme, 10, runs_each=2, metered=True), issues)
    proxy.drop_acks(drops, share=0.15)
    processes.shift(DATABASE_URL=proxy.dsn)
    until(all_ended, 200, what="all ended", look=0.2)
    figures.update(
        firm.check_all_done_once(),
        commits=proxy.counts["commits"],
        swallowed=proxy.counts["dropped"],
        runs_lost=HeartbeatRun.objects.filter(status="lost").count(),
    )
    assert proxy.counts["dropped"] >= drops / 2


@pytest.mark.fault("T14", "200 ms of latency and connections that break in the middle")
@pytest.mark.parametrize("issues", [10, pytest.param(60, marks=pytest.mark.faults_long)])
def test_a_slow_and_broken_line(processes: Processes, proxy: Proxy, acme, figures, issues: int):
    proxy.set(proxies.DELAY)
    proxy.delay_seconds = 0.1
    proxy.reset_share = 0.008
    firm.give_many(firm.quick_staff(acme, 10, metered=True), issues)
    processes.shift(DATABASE_URL=proxy.dsn)
    took = until(all_ended, 240, what="all ended", look=0.2)
    figures.update(
        firm.check_all_done_once(),
        resets=proxy.counts["resets"],
        runs_a_second=round(issues / took, 2),
        runs_lost=HeartbeatRun.objects.filter(status="lost").count(),
    )
