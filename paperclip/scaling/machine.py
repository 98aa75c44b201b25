"""What the processes of all instances use, and what the agents cost."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils import timezone

from agents import meters
from companies.format import money
from paperclip.scaling.reading import Level, Reading, graded, one, rows, size


def readings() -> Iterator[Reading]:
    yield _memory()
    yield _money()


def _memory() -> Reading:
    """By what each process last said of itself."""
    found = rows(
        "SELECT instance, kind, count(*), max((facts ->> 'resident_bytes')::bigint)"
        " FROM agents_processreport WHERE at > clock_timestamp() - make_interval(secs => %s)"
        " GROUP BY 1, 2 ORDER BY 4 DESC NULLS LAST, 1, 2 LIMIT 20",
        meters.REPORT_SECONDS_KEPT,
    )
    largest = max((row[3] or 0 for row in found), default=0)
    level = graded(largest / 2**20, amber=1_024, red=2_048)
    return Reading(
        "Memory",
        level,
        ", ".join(f"{kind} {size(most or 0)}" for _, kind, _, most in found[:6])
        or "no process has told yet",
        "The largest process of each kind. A shift grows by the output of what it carries.",
        "Lower PAPERCLIP_SHIFT_CAPACITY and raise PAPERCLIP_SHIFTS." if level else "",
    )


def _money() -> Reading:
    """The last hour against the hours of the last week."""
    now = timezone.now()
    hour, week, unlimited = one(
        "SELECT coalesce(sum(cost_micros) FILTER (WHERE occurred_at > %s - interval '1 hour'), 0),"
        " coalesce(sum(cost_micros), 0), (SELECT count(*) FROM companies_company c WHERE"
        "  c.status = 'active' AND NOT EXISTS (SELECT 1 FROM billing_budget b"
        "  WHERE b.company_id = c.id AND b.is_hard))"
        " FROM billing_costevent WHERE occurred_at > %s - interval '7 days' AND occurred_at <= %s",
        now,
        now,
        now,
    )
    usual = float(week) / (7 * 24)
    explodes = hour > 1_000_000 and float(hour) > 10 * usual
    text = f"{money(int(hour))} in the last hour, {money(int(usual))} in a usual one"
    if unlimited:
        text += f"; {unlimited} companies have no hard limit"
    return Reading(
        "Money",
        Level.RED if explodes else Level.AMBER if unlimited else Level.GREEN,
        text,
        "A loop shows in its cost first; a hard budget is what ends it.",
        "Open the costs of the company that spends."
        if explodes
        else "Give each company a hard monthly budget."
        if unlimited
        else "",
    )
