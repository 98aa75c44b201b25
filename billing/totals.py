"""Running totals: one row a scope (agent, project, company) and period (day, month, lifetime).

Every statement that touches several of them goes narrow to wide, agent before project before
company and day before month before lifetime, so that two of them can never wait for each other,
and the row that everybody wants is held shortest.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from django.db import connection

from billing.models import Scope, Spend, Window

EPOCH = date(1970, 1, 1)
SCOPES = (Scope.AGENT, Scope.PROJECT, Scope.COMPANY)
WINDOWS = (Window.DAY, Window.MONTH, Window.LIFETIME)


@dataclass(frozen=True, slots=True)
class Whose:
    """On whose account a cost goes."""

    company_id: uuid.UUID
    agent_id: uuid.UUID
    project_id: uuid.UUID | None = None

    def scopes(self) -> Iterator[tuple[str, uuid.UUID]]:
        """Narrow to wide."""
        yield Scope.AGENT, self.agent_id
        if self.project_id is not None:
            yield Scope.PROJECT, self.project_id
        yield Scope.COMPANY, self.company_id


def period_start(window: str, moment: datetime) -> date:
    """The first day of the period, in UTC, that `moment` lies in."""
    day = moment.astimezone(UTC).date()
    if window == Window.DAY:
        return day
    return day.replace(day=1) if window == Window.MONTH else EPOCH


@dataclass(frozen=True, slots=True)
class Change:
    """What one booking adds. All may be negative in a correction."""

    spent_micros: int = 0
    tokens: int = 0
    events: int = 0
    unpriced_events: int = 0


# The limit of a new row is that of the hard budget in force. `line` keeps the order of locks.
ADD = """
INSERT INTO billing_spend AS total
    (company_id, scope, scope_id, "window", period_start, spent_micros, reserved_micros,
     limit_micros, tokens, limit_tokens, events, unpriced_events, updated_at)
SELECT %s, line.scope, line.scope_id, line."window", line.period_start, %s, 0,
       budget.limit_micros, %s, budget.limit_tokens, %s, %s, %s
  FROM unnest(%s::text[], %s::uuid[], %s::text[], %s::date[])
       WITH ORDINALITY AS line (scope, scope_id, "window", period_start, position)
  LEFT JOIN billing_budget budget
         ON budget.scope = line.scope AND budget.scope_id = line.scope_id
        AND budget."window" = line."window" AND budget.is_hard
 ORDER BY line.position
ON CONFLICT (scope, scope_id, "window", period_start) DO UPDATE
   SET spent_micros = total.spent_micros + excluded.spent_micros,
       tokens = total.tokens + excluded.tokens,
       events = total.events + excluded.events,
       unpriced_events = total.unpriced_events + excluded.unpriced_events,
       updated_at = excluded.updated_at
RETURNING scope, scope_id, "window", period_start, spent_micros, reserved_micros,
          LEAST(limit_micros, CASE WHEN scope = 'agent' AND "window" = 'day' THEN
              (SELECT max_daily_cost_micros FROM agents_agent WHERE id = scope_id) END),
          tokens, limit_tokens, events, unpriced_events
"""


def add(*, whose: Whose, change: Change, occurred_at: datetime, now: datetime) -> list[Spend]:
    """Add a change to every total it belongs to; return them as they are now, locked."""
    lines = [(*scope, window) for scope in whose.scopes() for window in WINDOWS]
    with connection.cursor() as cursor:
        cursor.execute(
            ADD,
            [
                whose.company_id,
                change.spent_micros,
                change.tokens,
                change.events,
                change.unpriced_events,
                now,
                *columns(lines, occurred_at),
            ],
        )
        return [
            Spend(
                company_id=whose.company_id,
                scope=row[0],
                scope_id=row[1],
                window=row[2],
                period_start=row[3],
                spent_micros=row[4],
                reserved_micros=row[5],
                limit_micros=row[6],
                tokens=row[7],
                limit_tokens=row[8],
                events=row[9],
                unpriced_events=row[10],
            )
            for row in cursor.fetchall()
        ]


def columns(
    lines: Sequence[tuple[str, uuid.UUID, str]], moment: datetime
) -> tuple[list[str], list[uuid.UUID], list[str], list[date]]:
    """The keys of totals as one array a column."""
    return (
        [str(scope) for scope, _, _ in lines],
        [scope_id for _, scope_id, _ in lines],
        [str(window) for _, _, window in lines],
        [period_start(window, moment) for _, _, window in lines],
    )
