"""Running totals: one row a scope (agent, project, company) and period (day, month, lifetime).

Every statement that touches several of them goes narrow to wide, agent before project before
company and day before month before lifetime, so that two of them can never wait for each other,
and the row that everybody wants is held shortest. Grants and bookings, which are the many, do
the same in the database (`billing_reserve` and `billing_book`, migration 0010).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

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
    """What is added to totals. Corrections and releases are negative."""

    spent_micros: int = 0
    reserved_micros: int = 0
    tokens: int = 0
    events: int = 0
    unpriced_events: int = 0

    def __add__(self, other: Change) -> Change:
        return Change(
            self.spent_micros + other.spent_micros,
            self.reserved_micros + other.reserved_micros,
            self.tokens + other.tokens,
            self.events + other.events,
            self.unpriced_events + other.unpriced_events,
        )


@dataclass(frozen=True, slots=True)
class Line:
    """A change of one total."""

    scope: str
    scope_id: uuid.UUID
    window: str
    period_start: date
    change: Change

    @property
    def place(self) -> tuple[int, int, date, uuid.UUID]:
        """Where it stands in the one order in which totals are locked."""
        scope, window = SCOPES.index(Scope(self.scope)), WINDOWS.index(Window(self.window))
        return scope, window, self.period_start, self.scope_id


def lines(whose: Whose, change: Change, moment: datetime) -> list[Line]:
    """The same change for every total that a cost of `moment` belongs to."""
    return [
        Line(scope, scope_id, window, period_start(window, moment), change)
        for scope, scope_id in whose.scopes()
        for window in WINDOWS
    ]


def merged(changes: Iterable[Line]) -> list[Line]:
    """One line a total, in the order of locks."""
    found: dict[tuple[object, ...], Line] = {}
    for line in changes:
        known = found.get(line.place)
        found[line.place] = replace(line, change=line.change + known.change) if known else line
    return [found[place] for place in sorted(found)]


# The agent's own daily cap is one more limit of its day.
_CAP = """
CASE WHEN {row}.scope = 'agent' AND {row}."window" = 'day' THEN
    (SELECT max_daily_cost_micros FROM agents_agent WHERE id = {row}.scope_id) END
"""

# A new row takes the limits of the budget in force. ORDER BY keeps the order of locks.
_ADD = f"""
INSERT INTO billing_spend AS total
    (company_id, scope, scope_id, "window", period_start, spent_micros, reserved_micros,
     limit_micros, alert_at_micros, tokens, limit_tokens, events, unpriced_events, updated_at)
SELECT %s, line.scope, line.scope_id, line."window", line.period_start,
       line.spent, line.reserved,
       CASE WHEN budget.is_hard THEN budget.limit_micros END,
       (budget.limit_micros * LEAST(50, budget.warn_percent) + 99) / 100,
       line.tokens,
       CASE WHEN budget.is_hard THEN budget.limit_tokens END,
       line.events, line.unpriced, %s
  FROM unnest(%s::text[], %s::uuid[], %s::text[], %s::date[],
              %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
       WITH ORDINALITY AS line (scope, scope_id, "window", period_start,
                                spent, reserved, tokens, events, unpriced, position)
  LEFT JOIN billing_budget budget
         ON budget.scope = line.scope AND budget.scope_id = line.scope_id
        AND budget."window" = line."window"
 ORDER BY line.position
ON CONFLICT (scope, scope_id, "window", period_start) DO UPDATE
   SET spent_micros = total.spent_micros + excluded.spent_micros,
       reserved_micros = total.reserved_micros + excluded.reserved_micros,
       tokens = total.tokens + excluded.tokens,
       events = total.events + excluded.events,
       unpriced_events = total.unpriced_events + excluded.unpriced_events,
       updated_at = excluded.updated_at
RETURNING id, scope, scope_id, "window", period_start, spent_micros, reserved_micros,
          LEAST(limit_micros, {_CAP.format(row="total")}), alert_at_micros,
          tokens, limit_tokens, events, unpriced_events
"""  # noqa: S608 - constants of this file


def add(company_id: uuid.UUID, changes: Iterable[Line], *, now: datetime) -> list[Spend]:
    """Add what happened, whatever the limits say; return the totals as they are now, locked."""
    with connection.cursor() as cursor:
        cursor.execute(_ADD, _parameters(company_id, merged(changes), now))
        return [_spend(company_id, row) for row in cursor.fetchall()]


def _parameters(company_id: uuid.UUID, changes: list[Line], now: datetime) -> list[Any]:
    return [
        company_id,
        now,
        [str(line.scope) for line in changes],
        [line.scope_id for line in changes],
        [str(line.window) for line in changes],
        [line.period_start for line in changes],
        [line.change.spent_micros for line in changes],
        [line.change.reserved_micros for line in changes],
        [line.change.tokens for line in changes],
        [line.change.events for line in changes],
        [line.change.unpriced_events for line in changes],
    ]


def _spend(company_id: uuid.UUID, row: tuple[Any, ...]) -> Spend:
    return Spend(
        id=row[0],
        company_id=company_id,
        scope=row[1],
        scope_id=row[2],
        window=row[3],
        period_start=row[4],
        spent_micros=row[5],
        reserved_micros=row[6],
        limit_micros=row[7],
        alert_at_micros=row[8],
        tokens=row[9],
        limit_tokens=row[10],
        events=row[11],
        unpriced_events=row[12],
    )


# --- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    """One total beside its hard limits, whether or not anything was spent yet."""

    scope: str
    scope_id: uuid.UUID
    window: str
    period_start: date
    spent_micros: int
    reserved_micros: int
    limit_micros: int | None
    tokens: int
    limit_tokens: int | None
    unpriced_events: int
    unpriced_calls: int

    @property
    def is_reached(self) -> bool:
        """Nothing is left of a limit."""
        money = self.limit_micros is not None and self.spent_micros >= self.limit_micros
        return money or (self.limit_tokens is not None and self.tokens >= self.limit_tokens)

    def fits(self, micros: int) -> bool:
        """There is room for so much more beside what is reserved."""
        if self.is_reached:
            return False
        kept = self.spent_micros + self.reserved_micros
        return self.limit_micros is None or kept + micros <= self.limit_micros


_STANDING = f"""
SELECT line.scope, line.scope_id, line."window", line.period_start,
       COALESCE(total.spent_micros, 0), COALESCE(total.reserved_micros, 0),
       LEAST(CASE WHEN total.id IS NOT NULL THEN total.limit_micros
                  WHEN budget.is_hard THEN budget.limit_micros END, {_CAP.format(row="line")}),
       COALESCE(total.tokens, 0),
       CASE WHEN total.id IS NOT NULL THEN total.limit_tokens
            WHEN budget.is_hard THEN budget.limit_tokens END,
       COALESCE(total.unpriced_events, 0), COALESCE(budget.unpriced_calls, 0)
  FROM unnest(%s::text[], %s::uuid[], %s::text[], %s::date[])
       WITH ORDINALITY AS line (scope, scope_id, "window", period_start, position)
  LEFT JOIN billing_spend total
         ON total.scope = line.scope AND total.scope_id = line.scope_id
        AND total."window" = line."window" AND total.period_start = line.period_start
  LEFT JOIN billing_budget budget
         ON budget.scope = line.scope AND budget.scope_id = line.scope_id
        AND budget."window" = line."window"
 ORDER BY line.position
"""  # noqa: S608 - constants of this file


def standing(scopes: Iterable[tuple[str, uuid.UUID]], now: datetime) -> list[Standing]:
    """How the current periods of these scopes stand, in the order given."""
    keys = [(scope, scope_id, window) for scope, scope_id in scopes for window in WINDOWS]
    with connection.cursor() as cursor:
        cursor.execute(
            _STANDING,
            [
                [str(scope) for scope, _, _ in keys],
                [scope_id for _, scope_id, _ in keys],
                [str(window) for _, _, window in keys],
                [period_start(window, now) for _, _, window in keys],
            ],
        )
        return [Standing(*row) for row in cursor.fetchall()]
