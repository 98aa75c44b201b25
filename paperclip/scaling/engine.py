"""What the engine says: who carries runs, how long they wait, what arrives, who is at a limit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.utils import timezone

from agents import runs
from companies import format
from companies.ids import first_id_of
from paperclip.scaling.reading import Level, Reading, graded, listed, one, rows

HERD_SECONDS = 10
HOUR_RUNS = 50_000  # of the last hour, at most so many are looked at


def readings() -> Iterator[Reading]:
    yield _shifts()
    yield _waiting()
    yield _arrivals()
    yield _herd()
    yield _company_caps()
    yield _providers()
    yield _rescues()
    yield _tasks()


def _an_hour_ago() -> tuple[uuid.UUID, datetime]:
    """For `id >= %s AND created_at >= %s`. Ids are ordered by the moment of their making, which
    finds the rows; the made-up ones of a demo say that they are older."""
    since = timezone.now() - timedelta(hours=1)
    return first_id_of(since), since


def _shifts() -> Reading:
    count, running, capacity = one(
        "SELECT count(*), coalesce(sum(running), 0), coalesce(sum(capacity), 0) FROM agents_worker"
        " WHERE lease_expires_at > clock_timestamp() AND NOT draining"
    )
    share = 100 * running / capacity if capacity else 100
    return Reading(
        "Shifts",
        graded(share, amber=70, red=95) if count else Level.RED,
        f"{format.count(count, 'shift')}, {running} of {capacity} places taken ({share:.0f} %)"
        if count
        else "nobody works",
        "When all hands are full, every wake waits.",
        "Raise PAPERCLIP_SHIFTS, or start another instance." if share >= 70 or not count else "",
    )


def _waiting() -> Reading:
    """Only what nothing holds back but a free hand: no running run of the same agent."""
    oldest, p95, count = one(
        "SELECT coalesce((SELECT extract(epoch FROM clock_timestamp() - min(not_before))"
        "  FROM (SELECT r.not_before FROM agents_heartbeatrun r"
        "   WHERE r.status = 'queued' AND r.not_before <= clock_timestamp() AND NOT EXISTS"
        "   (SELECT 1 FROM agents_hold h WHERE h.agent_id = r.agent_id) AND NOT EXISTS"
        "   (SELECT 1 FROM agents_heartbeatrun o WHERE o.agent_id = r.agent_id"
        "    AND o.status = 'running') LIMIT 10000) free), 0)::float8,"
        " percentile_disc(0.95) WITHIN GROUP (ORDER BY waited), count(*) FROM"
        " (SELECT extract(epoch FROM started_at - not_before)::float8 AS waited"
        "  FROM agents_heartbeatrun WHERE id >= %s AND created_at >= %s"
        "  AND started_at IS NOT NULL LIMIT %s) started",
        *_an_hour_ago(),
        HOUR_RUNS,
    )
    text = f"the oldest free run waits {oldest:.1f} s"
    if count:
        text += f"; {count:,} starts of the last hour's runs, 95 % within {max(p95, 0):.2f} s"
    return Reading(
        "Queue",
        graded(oldest, amber=15, red=60),
        text,
        "A run that nothing holds back should start at once.",
        "Look at Shifts and Connections; `manage.py shift` adds hands." if oldest >= 15 else "",
    )


def _arrivals() -> Reading:
    agents, beats = one(
        "SELECT count(*), coalesce(sum(60.0 / interval_seconds), 0)::float8 FROM agents_agent"
        " WHERE heartbeat_enabled AND status = 'active' AND cron = ''"
    )
    started, seconds = one(
        "SELECT count(*), coalesce(avg(extract(epoch FROM finished_at - started_at)), 0)::float8"
        " FROM (SELECT started_at, finished_at FROM agents_heartbeatrun"
        "  WHERE id >= %s AND created_at >= %s AND finished_at IS NOT NULL LIMIT %s) ended",
        *_an_hour_ago(),
        HOUR_RUNS,
    )
    (capacity,) = one(
        "SELECT coalesce(sum(capacity), 0) FROM agents_worker"
        " WHERE lease_expires_at > clock_timestamp() AND NOT draining"
    )
    needed = beats / 60 * seconds
    share = 100 * needed / capacity if capacity else (100 if needed else 0)
    return Reading(
        "Heartbeats",
        graded(share, amber=50, red=90),
        f"{agents} timers ring {beats:.1f} times a minute; a run takes {seconds:.1f} s"
        f" ({started:,} of the last hour), so {needed:.1f} of {capacity} places would be taken",
        "Timers that ring faster than runs end can only be folded together.",
        "Lengthen the intervals, or add shifts." if share >= 50 else "",
    )


def _herd() -> Reading:
    """The fullest ten seconds of what the timers will start next."""
    found = rows(
        "SELECT count(*) FROM agents_agent WHERE heartbeat_enabled AND status = 'active'"
        " AND next_beat_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 hour'"
        " GROUP BY floor(extract(epoch FROM next_beat_at) / %s) ORDER BY 1 DESC LIMIT 1",
        HERD_SECONDS,
    )
    most = found[0][0] if found else 0
    (all_of_them,) = one(
        "SELECT count(*) FROM agents_agent WHERE heartbeat_enabled AND status = 'active'"
        " AND next_beat_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 hour'"
    )
    is_herd = most > 10 and most > all_of_them / 4
    return Reading(
        "Thundering herd",
        Level.AMBER if is_herd else Level.GREEN,
        f"at most {most} of {all_of_them} timers ring within the same {HERD_SECONDS} s",
        "Intervals are spread by themselves; cron lines ring when they say.",
        "Give the cron lines other minutes, or make them intervals." if is_herd else "",
    )


def _company_caps() -> Reading:
    found = rows(
        "SELECT c.name FROM companies_company c JOIN"
        " (SELECT company_id, count(*) AS running FROM agents_heartbeatrun"
        "  WHERE status = 'running' GROUP BY 1) r ON r.company_id = c.id"
        " WHERE r.running >= c.max_concurrent_agents AND EXISTS"
        " (SELECT 1 FROM agents_heartbeatrun q WHERE q.company_id = c.id AND q.status = 'queued'"
        "  AND q.not_before < clock_timestamp() - interval '1 minute') ORDER BY 1 LIMIT 50"
    )
    names = [name for (name,) in found]
    return Reading(
        "Companies at their cap",
        Level.AMBER if names else Level.GREEN,
        f"{listed(names)} wait for their own runs" if names else "none waits for its own runs",
        "A cap keeps one company from using all hands; it may be set too low.",
        "Raise it in the company's settings, if its provider takes more." if names else "",
    )


def _providers() -> Reading:
    troubled = [
        f"{company}: {name} ({state})"
        for company, name, state in rows(
            "SELECT c.name, p.name, p.breaker FROM agents_providerconnection p"
            " JOIN companies_company c ON c.id = p.company_id"
            " WHERE p.disabled_at IS NULL AND p.breaker <> 'closed' ORDER BY 1, 2 LIMIT 50"
        )
    ]
    (count,) = one("SELECT count(*) FROM agents_providerconnection WHERE disabled_at IS NULL")
    return Reading(
        "Provider keys",
        Level.AMBER if troubled else Level.GREEN,
        listed(troubled) if troubled else f"all of {count} connections answer",
        "Limits belong to a key: what one key may not, two may.",
        "Open the company's connections: limits, headroom, last errors." if troubled else "",
    )


def _rescues() -> Reading:
    lost, ended = one(
        "SELECT count(*) FILTER (WHERE status IN ('lost', 'unknown') AND message <> %s), count(*)"
        " FROM (SELECT status, message FROM agents_heartbeatrun"
        "  WHERE id >= %s AND created_at >= %s AND finished_at IS NOT NULL LIMIT %s) ended",
        runs.SHUT_DOWN,  # who stops an instance knows
        *_an_hour_ago(),
        HOUR_RUNS,
    )
    share = 100 * lost / ended if ended else 0
    level = graded(share, amber=1, red=10) if lost > 2 else Level.GREEN
    return Reading(
        "Rescued runs",
        level,
        f"{lost} of {format.count(ended, 'run')} of the last hour lost the holder",
        "Processes that die or stall lose what they carry; each run is taken up once more.",
        "Look for kills in the log: memory, deploys, a machine that stalls." if level else "",
    )


def _tasks() -> Reading:
    found = one("SELECT extract(epoch FROM clock_timestamp() - max(beat_at)) FROM agents_beacon")
    age = float(found[0]) if found[0] is not None else float("inf")
    return Reading(
        "Background tasks",
        graded(age, amber=150, red=300),
        "no sign of life yet" if age == float("inf") else f"the last sign of life {age:.0f} s ago",
        "They ring timers, make partitions, keep roll-ups and mend what was lost.",
        "Is the tasks process of an instance alive? `up` starts it again." if age >= 150 else "",
    )
