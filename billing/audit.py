"""Proof that the books agree: what the ledger adds up to is what the totals and the runs say, and
what is kept aside is what reservations hold.

Each check is one statement that returns only what is wrong, so an empty answer is the proof.
`drifts` proves everything: by `manage.py billing_check`, every night and after each money test.
`look` proves what can still change, every minute, and keeps what it found for the pages.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from billing.models import BooksCheck
from companies import partitions

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Drift:
    """One place where the books disagree, by name of the check."""

    check: str
    where: str
    ledger: int
    total: int


# Months that went to the archive have no events any more; their roll-up stays and is checked
# against the totals like any other.
_KEPT_SINCE = """
COALESCE((SELECT MAX(month) + INTERVAL '1 month' FROM billing_archivedpartition
           WHERE "table" = 'billing_costevent' AND state <> 'restored'), '-infinity')
"""

CHECKS: dict[str, str] = {
    "ledger = days": """
        WITH booked AS (
            SELECT company_id, (occurred_at AT TIME ZONE 'UTC')::date AS day, agent_id, project_id,
                   provider, model, COALESCE(SUM(cost_micros), 0) AS spent, COUNT(*) AS events,
                   COUNT(*) FILTER (WHERE cost_micros IS NULL) AS unpriced,
                   SUM(GREATEST(0, input_tokens - cache_read_tokens) + output_tokens) AS tokens
              FROM billing_costevent WHERE occurred_at AT TIME ZONE 'UTC' >= {kept_since}
             GROUP BY 1, 2, 3, 4, 5, 6),
        rolled AS (
            SELECT * FROM billing_daycost WHERE day >= {kept_since})
        SELECT concat_ws(' ', COALESCE(booked.agent_id, rolled.agent_id),
                         COALESCE(booked.day, rolled.day), metric.name), metric.one, metric.other
          FROM booked FULL JOIN rolled
            ON booked.company_id = rolled.company_id AND booked.day = rolled.day
           AND booked.agent_id = rolled.agent_id AND booked.provider = rolled.provider
           AND booked.model = rolled.model
           AND COALESCE(booked.project_id::text, '') = COALESCE(rolled.project_id::text, '')
         CROSS JOIN LATERAL (VALUES
               ('micros', COALESCE(booked.spent, 0), COALESCE(rolled.spent_micros, 0)),
               ('events', COALESCE(booked.events, 0), COALESCE(rolled.events, 0)),
               ('unpriced', COALESCE(booked.unpriced, 0), COALESCE(rolled.unpriced_events, 0)),
               ('tokens', COALESCE(booked.tokens, 0), COALESCE(rolled.tokens, 0))
               ) AS metric (name, one, other)
         WHERE metric.one <> metric.other
    """,
    "days = totals": """
        WITH rolled AS (
            SELECT scope, scope_id, "window", period_start, SUM(spent_micros) AS spent,
                   SUM(events) AS events, SUM(unpriced_events) AS unpriced, SUM(tokens) AS tokens
              FROM billing_daycost cost
              CROSS JOIN LATERAL (VALUES ('agent', agent_id), ('project', project_id),
                                         ('company', company_id)) AS whose (scope, scope_id)
              CROSS JOIN LATERAL (VALUES ('day', day), ('month', date_trunc('month', day)::date),
                                         ('lifetime', DATE '1970-01-01'))
                                 AS period ("window", period_start)
             WHERE scope_id IS NOT NULL GROUP BY 1, 2, 3, 4)
        SELECT concat_ws(' ', scope, scope_id, "window", period_start, metric.name),
               metric.one, metric.other
          FROM rolled
          FULL JOIN billing_spend total USING (scope, scope_id, "window", period_start)
         CROSS JOIN LATERAL (VALUES
               ('micros', COALESCE(rolled.spent, 0), COALESCE(total.spent_micros, 0)),
               ('events', COALESCE(rolled.events, 0), COALESCE(total.events, 0)),
               ('unpriced', COALESCE(rolled.unpriced, 0), COALESCE(total.unpriced_events, 0)),
               ('tokens', COALESCE(rolled.tokens, 0), COALESCE(total.tokens, 0))
               ) AS metric (name, one, other)
         WHERE metric.one <> metric.other
    """,
    "ledger = runs": """
        SELECT run.id::text, COALESCE(ledger.spent, 0), run.cost_micros
          FROM agents_heartbeatrun run
          LEFT JOIN (SELECT run_id, SUM(cost_micros) AS spent FROM billing_costevent
                      WHERE run_id IS NOT NULL GROUP BY run_id) ledger ON ledger.run_id = run.id
         WHERE COALESCE(ledger.spent, 0) <> run.cost_micros
           AND run.created_at AT TIME ZONE 'UTC' >= {kept_since}
    """,
    "reservations = totals": """
        WITH kept AS (
            SELECT scope, scope_id, "window", period_start, SUM(open_micros) AS open
              FROM billing_reservation held
              CROSS JOIN LATERAL (VALUES ('agent', agent_id), ('project', project_id),
                                         ('company', company_id)) AS whose (scope, scope_id)
              CROSS JOIN LATERAL (VALUES
                   ('day', (granted_at AT TIME ZONE 'UTC')::date),
                   ('month', date_trunc('month', granted_at AT TIME ZONE 'UTC')::date),
                   ('lifetime', DATE '1970-01-01')) AS period ("window", period_start)
             WHERE state IN ('held', 'unknown') AND scope_id IS NOT NULL
             GROUP BY 1, 2, 3, 4)
        SELECT concat_ws(' ', scope, scope_id, "window", period_start),
               COALESCE(kept.open, 0), COALESCE(total.reserved_micros, 0)
          FROM kept FULL JOIN billing_spend total USING (scope, scope_id, "window", period_start)
         WHERE COALESCE(kept.open, 0) <> COALESCE(total.reserved_micros, 0)
    """,
    "one key, one event": """
        SELECT booked.key, COUNT(event.id), 1
          FROM billing_costkey booked
          LEFT JOIN billing_costevent event ON event.id = booked.event_id
         WHERE booked.created_at AT TIME ZONE 'UTC' >= {kept_since} + INTERVAL '35 days'
         GROUP BY booked.company_id, booked.key HAVING COUNT(event.id) <> 1
    """,
    "totals within a company": """
        SELECT concat_ws(' ', total.scope, total.scope_id), 0, 1
          FROM billing_spend total
          LEFT JOIN agents_agent agent ON total.scope = 'agent' AND agent.id = total.scope_id
          LEFT JOIN companies_project project
                 ON total.scope = 'project' AND project.id = total.scope_id
         WHERE total.company_id <> CASE total.scope WHEN 'company' THEN total.scope_id
               ELSE COALESCE(agent.company_id, project.company_id, total.company_id) END
    """,
}


# The same for yesterday, today and this month, by index: it does not read more with the years.
RECENT: dict[str, str] = {
    "ledger = days": """
        WITH booked AS (
            SELECT company.id AS company_id, day.day, COALESCE(SUM(event.cost_micros), 0) AS spent,
                   COUNT(event.id) AS events
              FROM companies_company company
             CROSS JOIN (VALUES (%(yesterday)s::date), (%(today)s::date)) AS day (day)
              LEFT JOIN billing_costevent event ON event.company_id = company.id
               AND event.occurred_at >= day.day AT TIME ZONE 'UTC'
               AND event.occurred_at < (day.day + 1) AT TIME ZONE 'UTC'
             GROUP BY 1, 2),
        rolled AS (
            SELECT company_id, day, SUM(spent_micros) AS spent, SUM(events) AS events
              FROM billing_daycost WHERE day IN (%(yesterday)s, %(today)s) GROUP BY 1, 2)
        SELECT concat_ws(' ', 'company', company_id, day, metric.name), metric.one, metric.other
          FROM booked FULL JOIN rolled USING (company_id, day)
         CROSS JOIN LATERAL (VALUES
               ('micros', COALESCE(booked.spent, 0), COALESCE(rolled.spent, 0)),
               ('events', COALESCE(booked.events, 0), COALESCE(rolled.events, 0))
               ) AS metric (name, one, other)
         WHERE metric.one <> metric.other
    """,
    "days = totals": """
        WITH rolled AS (
            SELECT scope, scope_id, "window", period_start, SUM(spent_micros) AS spent
              FROM billing_daycost cost
             CROSS JOIN LATERAL (VALUES ('agent', agent_id), ('project', project_id),
                                        ('company', company_id)) AS whose (scope, scope_id)
             CROSS JOIN LATERAL (VALUES ('day', day), ('month', date_trunc('month', day)::date))
                                AS period ("window", period_start)
             WHERE scope_id IS NOT NULL AND day >= LEAST(%(month)s, %(yesterday)s)::date
             GROUP BY 1, 2, 3, 4),
        total AS (
            SELECT scope, scope_id, "window", period_start, spent_micros FROM billing_spend
             WHERE ("window", period_start) IN (('day', %(yesterday)s), ('day', %(today)s),
                                                ('month', %(month)s)))
        SELECT concat_ws(' ', scope, scope_id, "window", period_start, 'micros'),
               COALESCE(rolled.spent, 0), total.spent_micros
          FROM total LEFT JOIN rolled USING (scope, scope_id, "window", period_start)
         WHERE COALESCE(rolled.spent, 0) <> total.spent_micros
    """,
    "reservations = totals": CHECKS["reservations = totals"],
}


def drifts(limit: int = 50) -> list[Drift]:
    """Everything that does not agree, at most `limit` a check; empty when the books are right."""
    # The statements are constants of this file.
    checks = {name: text.replace("{kept_since}", _KEPT_SINCE) for name, text in CHECKS.items()}
    return _found(checks, {}, limit)


def recent_drifts(*, now: datetime, limit: int = 50) -> list[Drift]:
    """What does not agree about yesterday, today, this month and what is kept aside."""
    today = now.astimezone(UTC).date()
    periods = {
        "today": today,
        "yesterday": today - timedelta(days=1),
        "month": partitions.month_start(now).date(),
    }
    return _found(RECENT, periods, limit)


def _found(checks: Mapping[str, str], values: Mapping[str, Any], limit: int) -> list[Drift]:
    found = []
    with connection.cursor() as cursor:
        for check, statement in checks.items():
            cursor.execute(f"{statement} LIMIT %(limit)s", {**values, "limit": limit})
            found += [
                Drift(check, where, int(ledger), int(total))
                for where, ledger, total in cursor.fetchall()
            ]
    return found


_OUTSIDE = """
SELECT name, rows FROM (VALUES
       ('billing_costevent', (SELECT COUNT(*) FROM billing_costevent_default)),
       ('agents_runevent', (SELECT COUNT(*) FROM agents_runevent_default)),
       ('companies_activity', (SELECT COUNT(*) FROM companies_activity_default))
       ) AS outside (name, rows) WHERE rows > 0
"""


def alarms() -> list[str]:
    """What is not wrong yet and will be a burden: rows that no month's partition took."""
    with connection.cursor() as cursor:
        cursor.execute(_OUTSIDE)
        return [
            f"The DEFAULT partition of {table} holds {rows} rows: their month has none of its own."
            for table, rows in cursor.fetchall()
        ]


def look(*, now: datetime) -> bool:
    """The minute's round: prove what is recent; true when all is well."""
    return _keep(recent_drifts(now=now), now, is_full=False)


def watch(*, now: datetime) -> bool:
    """The night's round: prove everything; true when all is well."""
    return _keep(drifts(), now, is_full=True)


def last() -> BooksCheck | None:
    """What the last look has found; None before the first."""
    return BooksCheck.objects.first()


def _keep(found: Sequence[Drift], now: datetime, *, is_full: bool) -> bool:
    """Keep what was found for the pages, and say in the log what is new.

    Only a full proof takes back what a full proof has found.
    """
    outside = alarms()
    known = last()
    kept = [asdict(drift) for drift in found]
    if known is not None and known.drifts and not kept and not is_full:
        kept = known.drifts
    for drift in found:
        if known is None or asdict(drift) not in known.drifts:
            log.error("money: %s: %s: %s against %s", *astuple(drift))
    for alarm in outside:
        if known is None or alarm not in known.alarms:
            log.warning("money: %s", alarm)
    since = (known.wrong_since if known else None) or now
    BooksCheck.objects.update_or_create(
        id=BooksCheck.THE_ONE,
        defaults={
            "checked_at": now,
            "drifts": kept,
            "alarms": outside,
            "wrong_since": since if kept else None,
            **({"proved_at": now} if is_full else {}),
        },
    )
    return not kept
