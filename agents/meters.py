"""Counting what happens, so that any web process can answer for the whole system.

A count is an addition in this process's memory; a thread adds what has come together to the
database every few seconds, in one short transaction of its own, so that no verb waits for a row
that everybody counts in. A process that is killed takes its last seconds of counts along; nothing
is decided by them.

The names are in `NAMES`; `paperclip/metrics.py` shows them.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import uuid
from bisect import bisect_left
from collections import Counter as Sums
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import orjson
import psutil
from django.conf import settings
from django.db import connections, transaction

from companies.ids import new_id

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Key = tuple[str, str, uuid.UUID | None]
Facts = Mapping[str, float]

DATABASE = "default"
MOST_KEYS = 20_000  # remembered while the database is away
REPORT_SECONDS_KEPT = 60

# What is counted, and what its label says.
RUNS_ENDED = "runs_ended"  # status:code
WAKES_REFUSED = "wakes_refused"  # reason
BEATS_SAVED = "beats_saved"  # reason
LEASE_LOSSES = "lease_losses"
STALE_WRITES = "stale_writes_blocked"  # what
RESCUES = "rescues"  # status that the run got
BREAKER_OPENED = "breaker_opened"  # code
RECEIPTS_SPOOLED = "receipts_spooled"  # kept, booked, aside
WAKE_TO_START = "wake_to_start"  # upper bound of a bucket, or sum
STREAM_LAG = "stream_lag"  # the same
NAMES = (
    RUNS_ENDED,
    WAKES_REFUSED,
    BEATS_SAVED,
    LEASE_LOSSES,
    STALE_WRITES,
    RESCUES,
    BREAKER_OPENED,
    RECEIPTS_SPOOLED,
    WAKE_TO_START,
    STREAM_LAG,
)
# Upper bounds of a histogram's buckets, in seconds; one more is without a bound.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 600.0)
BOUNDLESS, SUM = "inf", "sum"  # the sum is kept in microseconds
_LABELS = (*(f"{bound:g}" for bound in BUCKETS), BOUNDLESS)
# What is counted for an agent besides, and under which name of its tallies.
_OF_AGENTS = {WAKES_REFUSED: "refused", BEATS_SAVED: "saved"}

_COUNT = """
INSERT INTO agents_counter AS known (name, label, value)
SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[])
ON CONFLICT (name, label) DO UPDATE SET value = known.value + excluded.value
"""
# An agent that is gone meanwhile is nobody's.
_TALLY = """
INSERT INTO agents_agenttally AS known (company_id, agent_id, day, name, reason, count)
SELECT a.company_id, a.id, (clock_timestamp() AT TIME ZONE 'UTC')::date, t.name, t.reason, t.count
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::bigint[]) AS t (agent_id, name, reason, count)
JOIN agents_agent a ON a.id = t.agent_id
ORDER BY a.id, t.name, t.reason
ON CONFLICT (agent_id, day, name, reason) DO UPDATE SET count = known.count + excluded.count
"""
_REPORT = """
INSERT INTO agents_processreport (id, instance, kind, pid, facts, at)
VALUES (%s, %s, %s, %s, %s::jsonb, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET facts = excluded.facts, at = excluded.at
"""
_FORGET = """
DELETE FROM agents_processreport WHERE id IN (
    SELECT id FROM agents_processreport
    WHERE at < clock_timestamp() - make_interval(secs => %s) LIMIT 100 FOR UPDATE SKIP LOCKED)
"""


class Meter:
    """The counts of one process, until they are in the database."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._id = new_id()
        self._sums: Sums[Key] = Sums()
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._source: tuple[str, str, Callable[[], Facts]] | None = None
        self._closing = threading.Event()

    def add(self, key: Key, times: int) -> None:
        with self._lock:
            if key in self._sums or len(self._sums) < MOST_KEYS:
                self._sums[key] += times
            self._start()

    def observe(self, name: str, seconds: float) -> None:
        bucket = _LABELS[bisect_left(BUCKETS, seconds)]
        with self._lock:
            self._sums[name, bucket, None] += 1
            self._sums[name, SUM, None] += round(seconds * 1_000_000)
            self._start()

    def report(self, instance: str, kind: str, source: Callable[[], Facts]) -> None:
        with self._lock:
            self._source = (instance, kind, source)
            self._start()

    def flush(self) -> None:
        """Bring all counts into the database. Raises what the database raises; nothing is lost
        by that."""
        with self._flushing:
            with self._lock:
                sums, self._sums = self._sums, Sums()
                source = self._source
            if not sums and source is None:
                return
            try:
                self._write(sums, source)
            except Exception:
                with self._lock:
                    self._sums.update(sums)
                raise

    def close(self) -> None:
        """Say no more of this process; bring the last counts in."""
        self._closing.set()
        with self._lock:
            thread, self._source = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)
        self.flush()

    def _start(self) -> None:
        if settings.METER_SECONDS <= 0 or (self._thread is not None and self._thread.is_alive()):
            return
        self._closing.clear()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        failing = False
        while not self._closing.wait(settings.METER_SECONDS):
            try:
                self.flush()
                failing = False
            except Exception as error:
                if not failing:
                    log.warning("not counted yet: %s", str(error).strip())
                failing = True
            finally:
                # Kept open it would be one connection more for each process, mostly idle.
                connections[DATABASE].close()
            with self._lock:
                if not self._sums and self._source is None:
                    self._thread = None
                    return

    def _write(self, sums: Sums[Key], source: tuple[str, str, Callable[[], Facts]] | None) -> None:
        totals: Sums[tuple[str, str]] = Sums()
        tallies: list[tuple[uuid.UUID, str, str, int]] = []
        for (name, label, agent_id), count in sums.items():
            totals[name, label] += count
            if agent_id is not None and name in _OF_AGENTS:
                tallies.append((agent_id, _OF_AGENTS[name], label, count))
        with transaction.atomic(using=DATABASE), connections[DATABASE].cursor() as cursor:
            if tallies:
                cursor.execute(_TALLY, _columns(tallies))
            if totals:
                # In one order everywhere, so that two processes do not wait for each other.
                rows = sorted((name, label, count) for (name, label), count in totals.items())
                cursor.execute(_COUNT, _columns(rows))
            if source is not None:
                instance, kind, facts = source
                said = orjson.dumps({**_of_process(), **facts()}).decode()
                cursor.execute(_REPORT, [self._id, instance[:120], kind, self.pid, said])
                cursor.execute(_FORGET, [REPORT_SECONDS_KEPT])


def _columns(rows: list[Any]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _of_process() -> dict[str, float]:
    process = psutil.Process()
    with process.oneshot():
        times = process.cpu_times()
        return {
            "resident_bytes": process.memory_info().rss,
            "cpu_seconds": round(times.user + times.system, 2),
            "threads": process.num_threads(),
        }


_the_meter: Meter | None = None
_lock = threading.Lock()


def _meter() -> Meter:
    """The meter of this process; a fork gets its own."""
    global _the_meter
    with _lock:
        if _the_meter is None or _the_meter.pid != os.getpid():
            _the_meter = Meter()
        return _the_meter


def count(name: str, label: str = "", *, agent_id: uuid.UUID | None = None, times: int = 1) -> None:
    """It has happened, whatever becomes of the transaction."""
    _meter().add((name, str(label)[:40], agent_id), times)


def count_at_commit(
    name: str, label: str = "", *, agent_id: uuid.UUID | None = None, times: int = 1
) -> None:
    """It has happened when the caller's transaction is committed."""
    transaction.on_commit(lambda: count(name, label, agent_id=agent_id, times=times))


def observe(name: str, seconds: float) -> None:
    """One more value of a histogram, in seconds. Below zero (two clocks) counts as zero."""
    _meter().observe(name, max(0.0, seconds))


def report(*, instance: str, kind: str, source: Callable[[], Facts]) -> None:
    """From now on this process says every few seconds how it is; `source` gives its figures."""
    _meter().report(instance, kind, source)


def flush() -> None:
    """Bring this process's counts into the database; for tests."""
    _meter().flush()


def close() -> None:
    """The process ends: the last counts, if the database is there."""
    try:
        _meter().close()
    except Exception as error:
        log.info("the last counts are lost: %s", error)


def refusals(verb: Callable[P, T]) -> Callable[P, T]:
    """Counts what the verb `wake` refuses, by reason."""

    @functools.wraps(verb)
    def counted(*args: P.args, **kwargs: P.kwargs) -> T:
        woken = verb(*args, **kwargs)
        reason = getattr(woken, "refused", "")
        if reason:
            agent: Any = kwargs.get("agent")
            count_at_commit(WAKES_REFUSED, reason, agent_id=getattr(agent, "pk", None))
        return woken

    return counted
