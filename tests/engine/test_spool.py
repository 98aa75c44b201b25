"""A receipt that cannot be booked becomes a file, and the file is booked once."""

from __future__ import annotations

import dataclasses
import logging
import re
import stat
from datetime import timedelta
from typing import Any

import orjson
import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from agents import meters, runs
from agents.adapters import base
from agents.models import Agent, HeartbeatRun
from billing import audit, budgets, ledger
from billing.models import CostEvent, Reservation
from companies.activity import SYSTEM
from issues import briefing
from issues.briefing import Briefing
from issues.models import Issue
from paperclip.engine import heartbeat, spool, tick
from paperclip.management.commands import doctor
from tests import factories
from tests.billing.receipts import usage
from tests.engine.conftest import ask, until
from tests.engine.puppet import Puppet, finish
from tests.engine.test_budget import limit
from tests.engine.test_sessions import carry
from tests.races.threads import many

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(acme: Any, ada: Agent, issue: Issue) -> HeartbeatRun:
    """A run at work, for whose next call money is kept aside."""
    limit(acme, 1_000_000)
    run = factories.running(ada, issue)
    budgets.check_call(
        agent=ada, run_id=run.pk, provider="openai", model="gpt-4o", input_tokens=9,
        max_output_tokens=9, now=timezone.now(),
    )  # fmt: skip
    assert Reservation.objects.get(run_id=run.pk).state == "held"
    return run


@pytest.fixture
def facts(run: HeartbeatRun) -> Briefing:
    return briefing.write(run_id=run.pk, epoch=run.epoch)


def settled(run: HeartbeatRun) -> tuple[int, str]:
    """How many receipts of the run are booked, and what became of what was kept for it."""
    booked = CostEvent.objects.filter(run_id=run.pk).count()
    return booked, Reservation.objects.get(run_id=run.pk).state


# --- files ---------------------------------------------------------------------------------------


def test_a_receipt_is_a_line_in_a_file_of_its_owner(facts: Briefing) -> None:
    spool.put(facts, usage(100), at=timezone.now())

    (path,) = spool.waiting()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_bytes().count(b"\n") == 1
    assert orjson.loads(path.read_bytes())["usage"]["cost_micros"] == 100


def test_what_lies_there_is_booked_once_and_gone(run: HeartbeatRun, facts: Briefing) -> None:
    spool.put(facts, usage(100), at=timezone.now())
    assert settled(run) == (0, "held")

    assert [spool.book_all(), spool.book_all()] == [1, 0]

    assert settled(run) == (1, "settled")
    assert spool.waiting() == []
    run.refresh_from_db()
    assert run.cost_micros == 100
    assert audit.drifts() == []


def test_a_receipt_that_was_booked_before_is_not_booked_again(
    run: HeartbeatRun, facts: Briefing
) -> None:
    """The acknowledgement was lost, or the process died before it removed the file."""
    for _ in range(2):
        spool.put(facts, usage(100), at=timezone.now())
        assert spool.book_all() == 1
    assert settled(run) == (1, "settled")


def test_of_several_processes_that_book_one_does(run: HeartbeatRun, facts: Briefing) -> None:
    for call in range(1, 9):
        spool.put(facts, usage(100, call=call), at=timezone.now())
    booked = many(5, lambda _: spool.book_all())
    booked.append(spool.book_all())  # what somebody held when the others looked
    assert sum(booked) == 8
    assert CostEvent.objects.filter(run_id=run.pk).count() == 8
    assert audit.drifts() == []


def test_a_late_receipt_belongs_to_the_day_of_its_grant(run: HeartbeatRun, facts: Briefing) -> None:
    granted = timezone.now() - timedelta(days=1)
    Reservation.objects.filter(run_id=run.pk).update(granted_at=granted)
    spool.put(facts, usage(100), at=timezone.now() - timedelta(hours=1))
    spool.put(facts, usage(100, call=2), at=timezone.now() - timedelta(hours=1))
    spool.book_all()
    first, second = CostEvent.objects.filter(run_id=run.pk).order_by("occurred_at")
    assert first.occurred_at == granted
    assert timedelta(minutes=59) < timezone.now() - second.occurred_at < timedelta(minutes=61)


def bad(facts: Briefing, **changes: Any) -> bytes:
    """The line of a receipt with a fault in it."""
    spool.put(facts, usage(1, call=99), at=timezone.now())
    (path,) = spool.waiting()
    said = {**orjson.loads(path.read_bytes()), **changes}
    path.unlink()
    return orjson.dumps(said)


FAULTS: dict[str, dict[str, Any]] = {
    "a newer version": {"v": 2},
    "no id": {"run_id": "nobody"},
    "nothing used": {"usage": None},
    "a field that there is not": {"usage": {"call": 1, "provider": "p", "model": "m", "x": 1}},
    "what cannot be": {"usage": {"call": 1, "provider": "p", "model": "m", "input_tokens": -1}},
    "long ago": {"at": "2020-01-01T00:00:00+00:00"},
    "no time": {"at": None},
}


@pytest.mark.parametrize("fault", [*FAULTS, "no JSON", "another cost", "too long", "nothing"])
def test_a_bad_one_is_set_aside_and_holds_nobody_up(
    run: HeartbeatRun, facts: Briefing, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    content = bad(facts, **FAULTS.get(fault, {}))
    if fault == "no JSON":
        content = b'{"v": 1, "at'
    if fault == "too long":
        content = b" " * spool.MAX_BYTES + content
    if fault == "nothing":
        content = b""
    if fault == "another cost":
        ledger.book(
            company_id=facts.company_id, agent_id=facts.agent_id, run_id=facts.run_id,
            usage=usage(2), key=ledger.run_key(facts.run_id, 99), now=timezone.now(),
        )  # fmt: skip
    (spool.folder() / "0-first.jsonl").write_bytes(content)
    spool.put(facts, usage(100), at=timezone.now())

    with caplog.at_level(logging.ERROR):
        assert spool.book_all() == 1

    assert CostEvent.objects.filter(run_id=run.pk, cost_micros=100).count() == 1
    assert spool.waiting() == []
    assert [path.name for path in spool.set_aside()] == ["0-first.jsonl"]
    assert "set aside" in caplog.text
    assert spool.book_all() == 0


def test_what_was_set_aside_may_be_put_back(run: HeartbeatRun, facts: Briefing) -> None:
    (spool.folder()).mkdir()
    (spool.folder() / "one.jsonl").write_bytes(bad(facts, v=2))
    spool.book_all()
    (path,) = spool.set_aside()
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), "v": 1}))
    path.rename(spool.folder() / path.name)
    assert spool.book_all() == 1


def test_a_receipt_that_somebody_else_books_is_left_to_him(facts: Briefing) -> None:
    spool.put(facts, usage(100), at=timezone.now())
    (path,) = spool.waiting()
    with spool._taken(path) as line:
        assert line
        assert spool.book_all() == 0
    assert spool.book_all() == 1


def test_the_minutes_round_books_what_lies_there(run: HeartbeatRun, facts: Briefing) -> None:
    spool.put(facts, usage(100), at=timezone.now())
    tick.minute()
    assert settled(run)[0] == 1


# --- a run ---------------------------------------------------------------------------------------


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The database is away for bookings, until `away.undo()`."""

    def gone(*_: Any, **__: Any) -> None:
        raise OperationalError("the server is gone")

    monkeypatch.setattr(heartbeat, "book", gone)
    monkeypatch.setattr(ledger, "book", gone)
    return monkeypatch


def test_a_run_whose_receipt_stays_unbooked_ends_and_the_receipt_is_booked_later(
    during: Any, puppet: Puppet, pia: Agent, acme: Any, away: Any
) -> None:
    away.setattr(heartbeat, "BOOKING_SECONDS", 0.2)
    puppet.play = finish(base.Usage(1, "p", "m", input_tokens=9, cost_micros=100))

    run = carry(during, pia, factories.issue(acme, assignee=pia))

    assert (run.status, run.code) == ("failed", "internal_error")
    assert len(spool.waiting()) == 1
    away.undo()

    async def watch(shift: Any) -> None:
        await until(lambda: CostEvent.objects.filter(run_id=run.pk).exists())

    during(watch)
    assert CostEvent.objects.get(run_id=run.pk).cost_micros == 100
    assert spool.waiting() == []


@pytest.mark.parametrize("end", ["drain", "fence"])
def test_a_shift_that_ends_meanwhile_waits_for_no_receipt(
    during: Any, puppet: Puppet, pia: Agent, acme: Any, away: Any, end: str
) -> None:
    puppet.play = finish(base.Usage(1, "p", "m", input_tokens=9, cost_micros=100))
    tried: list[int] = []
    gone = heartbeat.book
    away.setattr(heartbeat, "book", lambda *a: (tried.append(1), gone(*a)))

    async def watch(shift: Any) -> None:
        issue = await ask(factories.issue, acme, assignee=pia)
        await ask(
            runs.wake, agent=pia, issue=issue, reason="manual", source="on_demand", actor=SYSTEM
        )
        await until(lambda: bool(tried))
        if end == "fence":
            shift.fence("the test wants it")

    during(watch)

    (path,) = spool.waiting()
    assert orjson.loads(path.read_bytes())["usage"] == dataclasses.asdict(
        base.Usage(1, "p", "m", input_tokens=9, cost_micros=100)
    )
    away.undo()
    assert spool.book_all() == 1


# --- who is told -----------------------------------------------------------------------------


def test_the_doctor_counts_what_waits_and_complains_of_what_was_set_aside(facts: Briefing) -> None:
    spool.put(facts, usage(100), at=timezone.now())
    assert list(doctor._receipts()) == [(True, "1 receipts wait to be booked, 0 are set aside")]
    spool.waiting()[0].write_bytes(b"{")
    spool.book_all()
    assert list(doctor._receipts()) == [(False, "0 receipts wait to be booked, 1 are set aside")]


def counted() -> dict[str, float]:
    meters.flush()
    said = Client().get("/metrics").content.decode()
    pattern = r'paperclip_receipts_spooled_total\{what="(\w+)"\} (\S+)'
    return {what: float(count) for what, count in re.findall(pattern, said)}


def test_a_metric_counts_them(facts: Briefing) -> None:
    before = counted()  # other tests of this process have counted, too
    for call in (1, 2):
        spool.put(facts, usage(100, call=call), at=timezone.now())
    spool.waiting()[0].write_bytes(b"{")
    spool.book_all()
    after = counted()
    assert {what: after[what] - before.get(what, 0) for what in after} == {
        "kept": 2,
        "booked": 1,
        "aside": 1,
    }
