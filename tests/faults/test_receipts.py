"""The database is away when a model has answered, for longer than its shift may live without."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.db import OperationalError, connection, connections

from agents.models import HeartbeatRun, RunEvent
from billing import audit, budgets, prices
from billing.models import CostEvent, Reservation
from companies import live
from companies.activity import SYSTEM
from companies.faultpoints import VARIABLE
from companies.models import Company
from tests import factories
from tests.faults import company as firm
from tests.faults.processes import Processes, reconnect, until
from tests.faults.quick import COST_MICROS, MODEL
from tests.faults.server import OwnServer, patiently

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGQUIT])
@pytest.mark.parametrize("times", [1, 6])  # also once the statement is prepared
def test_a_server_that_is_gone_is_an_operational_error_in_any_thread(
    own_server: OwnServer, signum: signal.Signals, times: int
):
    """Else nobody would try again what may be tried again."""
    asked, gone = threading.Event(), threading.Event()

    def ask() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s::int", [1])
            return cursor.fetchone()[0]

    def work() -> Exception | None:
        try:
            assert [ask() for _ in range(times)] == [1] * times
            asked.set()
            gone.wait(60)
            ask()
        except Exception as error:
            return error
        finally:
            asked.set()
            connections.close_all()
        return None

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(work)
        asked.wait(30)
        reconnect()
        own_server.end(signum)
        gone.set()
        assert isinstance(answer.result(60), OperationalError)
    own_server.start()


@pytest.fixture
def firma(own_server: OwnServer) -> Company:
    """A company with a budget, so that money is kept aside for each call."""
    firma = factories.company("Acme", "ACM")
    prices.set_price(
        company=firma, model=MODEL, input_pico=10**6, output_pico=10**6, actor=SYSTEM,
        now=firma.created_at,
    )  # fmt: skip
    budgets.set_limit(
        company=firma, scope="company", scope_id=firma.id, limit_micros=10**9, actor=SYSTEM
    )
    return firma


def receipts(beside: Processes) -> list[Path]:
    return list((beside.data_dir / "spool").glob("*.jsonl"))


def lose(own_server: OwnServer, beside: Processes, firma: Company, **env: str) -> HeartbeatRun:
    """The database goes in the middle of a run's answer and stays away until the receipt is a
    file; returns the run as it was."""
    firm.give_many(firm.quick_staff(firma, 1, metered=True, words=1, seconds=4), 1)
    shift = beside.shift(**env)
    until(lambda: RunEvent.objects.filter(kind="text").exists(), 30, what="the first word")
    run = HeartbeatRun.objects.get()
    assert Reservation.objects.get().state == "held"
    live.close()
    reconnect()
    own_server.end(signal.SIGQUIT)
    until(lambda: receipts(beside), 60, what="the receipt as a file")
    if env:
        assert shift.wait(20) == -signal.SIGKILL
    return run


def check(beside: Processes, run: HeartbeatRun) -> None:
    """The lost run's receipt and its successor's are booked, each once; nothing is kept aside."""
    until(patiently(lambda: firm.open_count() == 0 and firm.running() == 0), 60, what="the end")
    until(lambda: not receipts(beside), 30, what="an empty spool")
    run.refresh_from_db()
    assert run.status == "lost"
    assert run.cost_micros == COST_MICROS
    paid = list(CostEvent.objects.values_list("run_id", "cost_micros"))
    assert sorted(paid) == sorted(
        (pk, COST_MICROS) for pk in HeartbeatRun.objects.values_list("id", flat=True)
    )
    assert len(paid) == 2
    assert set(Reservation.objects.values_list("state", flat=True)) == {"settled"}
    assert audit.drifts() == []


@pytest.mark.fault("T41", "the database is away from a model's answer to the end of the lease")
def test_its_receipt_is_booked_when_the_database_is_back(
    own_server: OwnServer, beside: Processes, firma: Company, figures
):
    run = lose(own_server, beside, firma)
    own_server.start()
    check(beside, run)
    figures.update(firm.check_all_done_once(), receipts=2)


@pytest.mark.fault("T41", "the same, and kill -9 when the receipt is a file, and when it is booked")
def test_a_kill_before_or_after_the_booking_changes_nothing(
    own_server: OwnServer, beside: Processes, firma: Company, figures
):
    run = lose(own_server, beside, firma, **{VARIABLE: "spooled=kill"})
    own_server.start()
    second = beside.shift(**{VARIABLE: "unspooled=kill"})
    assert second.wait(60) == -signal.SIGKILL
    assert CostEvent.objects.filter(run_id=run.pk).count() == 1
    assert len(receipts(beside)) == 1
    beside.shift()
    check(beside, run)
    figures.update(firm.check_all_done_once(), deaths=2)
