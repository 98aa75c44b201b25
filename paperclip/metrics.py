"""`/metrics` for Prometheus: what an operator watches, of the whole system, from any web process.

What is shared is read from the database at each scrape, in a fixed number of statements that are
bounded however long the queue is; counts come from `agents/meters.py`. docs/operating.md lists the
names and says who may ask.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from agents import meters
from companies import wire
from paperclip.engine import schedule

MOST_COUNTED = 100_000  # a longer queue is told as this long
MOST_ROWS = 500
CANARY_SECONDS = 90  # one a minute, and a schedule that may be half a minute late
# Who is behind a proxy cannot be told by the address of the connection.
_FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP", "HTTP_VIA")


# --- who may ask -----------------------------------------------------------------------------


def may_read(request: HttpRequest) -> bool:
    """With PAPERCLIP_METRICS_TOKEN its bearer, and nobody else; without it, the machine itself."""
    if settings.METRICS_TOKEN:
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        wanted = settings.METRICS_TOKEN.encode()
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), wanted)
    if any(name in request.META for name in _FORWARDED):
        return False
    try:
        address = ipaddress.ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The text that Prometheus reads; 503 while the database is away."""
    if not may_read(request):
        response = wire.refusal(401, "unauthenticated", "Metrics need their token, or loopback.")
        response["WWW-Authenticate"] = "Bearer"
        return response
    registry = CollectorRegistry()
    try:
        # Asked here, not by the registry, which would ask once more for the names.
        registry.register(_Once(tuple(_families())))
        text = generate_latest(registry)
    except DatabaseError:
        response = wire.refusal(503, "database_away", "The database does not answer.")
        response["Retry-After"] = "2"
        response._has_been_logged = True  # type: ignore[attr-defined]
        return response
    response = HttpResponse(text, content_type=CONTENT_TYPE_LATEST)
    response["Cache-Control"] = "no-store"
    return response


class _Once(Collector):
    """Families that have been read already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families

    def describe(self) -> Iterable[Metric]:
        return self._families


# --- what is told ----------------------------------------------------------------------------


def _families() -> Iterator[Metric]:
    yield from _queue()
    yield from _workers()
    yield from _connections()
    yield from _canaries()
    yield from _database()
    yield from _counted()
    yield from _processes()
    yield from _broker()


def _ask(statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"paperclip_{name}", text, value=value)


def _gauges(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[Any], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"paperclip_{name}", text, labels=labels)
    for values, value in rows:
        family.add_metric([str(one) for one in values], float(value))
    return family


_QUEUE = """
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM agents_heartbeatrun
            WHERE status = 'queued' AND not_before <= clock_timestamp() LIMIT %s) due),
       (SELECT count(*) FROM (
            SELECT 1 FROM agents_heartbeatrun
            WHERE status = 'queued' AND not_before > clock_timestamp() LIMIT %s) later),
       coalesce((SELECT extract(epoch FROM clock_timestamp() - min(not_before))
                 FROM agents_heartbeatrun
                 WHERE status = 'queued' AND not_before <= clock_timestamp()), 0)::float8,
       (SELECT count(*) FROM (
            SELECT 1 FROM agents_heartbeatrun WHERE status = 'running' LIMIT %s) running)
"""


def _queue() -> Iterator[Metric]:
    ((due, later, oldest, running),) = _ask(_QUEUE, MOST_COUNTED, MOST_COUNTED, MOST_COUNTED)
    yield _gauges(
        "queue_runs",
        f"Queued runs whose time has come, and those that wait for theirs; {MOST_COUNTED} at most.",
        ["state"],
        [(["due"], due), (["later"], later)],
    )
    yield _gauge(
        "queue_oldest_wait_seconds",
        "How long the oldest run that is due has waited, whatever it waits for.",
        oldest,
    )
    yield _gauge("running_runs", "Runs that are being carried out.", running)


_WORKERS = """
SELECT instance, slot, id, draining, running, capacity,
       extract(epoch FROM clock_timestamp() - beat_at)::float8
FROM agents_worker WHERE lease_expires_at > clock_timestamp()
ORDER BY beat_at DESC, id LIMIT %s
"""


def _workers() -> Iterator[Metric]:
    rows = _ask(_WORKERS, MOST_ROWS)
    draining = sum(1 for row in rows if row[3])
    yield _gauges(
        "workers",
        "Shifts whose lease is good.",
        ["state"],
        [(["working"], len(rows) - draining), (["draining"], draining)],
    )
    names = ["instance", "slot", "worker"]
    for name, text, column in (
        ("worker_running_runs", "Runs that a shift carries.", 4),
        ("worker_capacity_runs", "Runs that a shift can carry.", 5),
        ("worker_beat_age_seconds", "How long ago a shift gave its last sign of life.", 6),
    ):
        yield _gauges(name, text, names, [(row[:3], row[column]) for row in rows])


_CONNECTIONS = """
SELECT CASE WHEN disabled_at IS NOT NULL THEN 'disabled' ELSE breaker END AS state, count(*)
FROM agents_providerconnection GROUP BY state
"""
_TROUBLED = """
SELECT company_id, id, breaker, open_code FROM agents_providerconnection
WHERE disabled_at IS NULL AND breaker <> 'closed' ORDER BY opened_at DESC, id LIMIT %s
"""


def _connections() -> Iterator[Metric]:
    known = {"closed": 0, "open": 0, "half_open": 0, "disabled": 0} | dict(_ask(_CONNECTIONS))
    yield _gauges(
        "connections",
        "Connections to providers by the state of their circuit breaker.",
        ["state"],
        [([state], count) for state, count in sorted(known.items())],
    )
    yield _gauges(
        "connection_in_trouble",
        "Connections that are not closed, one by one, and why.",
        ["company", "connection", "state", "code"],
        [(row, 1) for row in _ask(_TROUBLED, MOST_ROWS)],
    )


# An old mark is one of a cluster that hangs, or of an instance that is gone: this one has no
# process that still tells of itself. Where none does (PAPERCLIP_METER_SECONDS=0) all are told.
_CANARIES = """
WITH telling AS (
    SELECT DISTINCT 'default@' || right(instance, 50) AS name FROM agents_processreport
    WHERE at > clock_timestamp() - make_interval(secs => %s)
)
SELECT name, extract(epoch FROM clock_timestamp() - beat_at)::float8 FROM agents_beacon
WHERE beat_at > clock_timestamp() - make_interval(secs => %s)
   OR name IN (SELECT name FROM telling) OR NOT EXISTS (SELECT 1 FROM telling)
ORDER BY beat_at DESC, name LIMIT %s
"""


def _canaries() -> Iterator[Metric]:
    rows = _ask(_CANARIES, meters.REPORT_SECONDS_KEPT, CANARY_SECONDS, MOST_ROWS)
    yield _gauges(
        "canary_age_seconds",
        "How long ago a task went all the way through the background workers of an instance.",
        ["cluster"],
        [([name], age) for name, age in rows],
    )


_DATABASE = """
SELECT application_name, coalesce(state, 'other'), count(*) FROM pg_stat_activity
WHERE datname = current_database() GROUP BY 1, 2
ORDER BY 3 DESC, 1, 2 LIMIT %s
"""


def _database() -> Iterator[Metric]:
    yield _gauges(
        "database_connections",
        "Connections to this database by program and what they do.",
        ["application", "state"],
        [(row[:2], row[2]) for row in _ask(_DATABASE, MOST_ROWS)],
    )
    ((most,),) = _ask("SELECT current_setting('max_connections')::int")
    yield _gauge("database_connections_limit", "Connections that the server allows.", most)


# --- counts ----------------------------------------------------------------------------------

_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    meters.RUNS_ENDED: ("Runs that have ended, by status and code.", ("status", "code")),
    meters.WAKES_REFUSED: ("Wishes to wake an agent that came to nothing.", ("reason",)),
    meters.BEATS_SAVED: ("Regular beats without work: no model was called.", ("reason",)),
    meters.LEASE_LOSSES: ("Shifts that stopped because their lease had run out.", ()),
    meters.STALE_WRITES: ("Writes of a former holder that were refused.", ("what",)),
    meters.RESCUES: ("Runs of a dead holder, by what became of them.", ("status",)),
    meters.BREAKER_OPENED: ("Openings of circuit breakers, by cause.", ("code",)),
    meters.RECEIPTS_SPOOLED: (
        "Receipts that became files while the database was away, booked later or set aside.",
        ("what",),
    ),
}
_HISTOGRAMS = {
    meters.WAKE_TO_START: "From the moment a run was due to its start.",
    meters.STREAM_LAG: "From a piece of output to the web process that shows it.",
}


def _counted() -> Iterator[Metric]:
    """Every name is told, also before it has happened."""
    found: dict[str, dict[str, int]] = {name: {} for name in meters.NAMES}
    for name, label, value in _ask(
        "SELECT name, label, value FROM agents_counter WHERE name = ANY(%s) ORDER BY id LIMIT 5000",
        list(meters.NAMES),
    ):
        found[name][label] = value
    for name, (text, labels) in _COUNTERS.items():
        family = CounterMetricFamily(f"paperclip_{name}", text, labels=labels)
        for label, value in found[name].items() if labels else [("", found[name].get("", 0))]:
            values = label.split(":", len(labels) - 1) if labels else []
            family.add_metric([*values, *[""] * (len(labels) - len(values))], value)
        yield family
    for name, text in _HISTOGRAMS.items():
        yield _histogram(f"paperclip_{name}_seconds", text, found[name])


def _histogram(name: str, text: str, kept: dict[str, int]) -> HistogramMetricFamily:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound in meters.BUCKETS:
        total += kept.get(f"{bound:g}", 0)
        buckets.append((f"{bound:g}", total))
    buckets.append(("+Inf", total + kept.get(meters.BOUNDLESS, 0)))
    return HistogramMetricFamily(
        name, text, buckets=buckets, sum_value=kept.get(meters.SUM, 0) / 1_000_000
    )


_PROCESSES = """
SELECT instance, kind, pid, facts FROM agents_processreport
WHERE at > clock_timestamp() - make_interval(secs => %s) ORDER BY instance, kind, id LIMIT %s
"""
_FACTS = {
    "resident_bytes": "Memory of a process.",
    "cpu_seconds": "Processor time that a process has used.",
    "threads": "Threads of a process.",
    "streams_open": "Live streams that a web process serves.",
    "feeds": "Runs and companies that a web process follows for them.",
    "listening": "1 while the web process hears notices, 0 while it only polls.",
    "requests_running": "Requests on the threads of a web process.",
    "requests_waiting": "Requests that stand in line for a thread, or whose body is on its way.",
    "pool_connections": "Connections in the pool of the streams.",
    "pool_available": "Those of them that are free.",
    "pool_waiting": "Readers that wait for one.",
}


def _processes() -> Iterator[Metric]:
    """What each process last said of itself."""
    asked = _ask(_PROCESSES, meters.REPORT_SECONDS_KEPT, MOST_ROWS)
    rows = [(*row[:3], orjson.loads(row[3])) for row in asked]
    for fact, text in _FACTS.items():
        yield _gauges(
            f"process_{fact}",
            text,
            ["instance", "kind", "pid"],
            [(row[:3], row[3][fact]) for row in rows if fact in row[3]],
        )


def _broker() -> Iterator[Metric]:
    yield _gauges(
        "broker_tasks",
        "Background tasks that wait in django-q2's queues.",
        ["cluster"],
        [([cluster], size) for cluster, size in schedule.queue_sizes().items()],
    )
