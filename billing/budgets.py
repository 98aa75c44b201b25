"""Budgets: the limits that operators set, and the minute's round that keeps them.

A hard limit is kept three ways: a call is granted only when its worst case fits on every total
(`grants.py`), a reached limit holds the agents it concerns (`holds.py`), and people are
told before it comes to that (`incidents.py`). A period's turn or a higher limit lifts the holds.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from agents import wakes
from agents.adapters.base import Code
from agents.models import Agent
from billing import holds, incidents, ledger, reservations, totals
from billing.grants import BudgetExhausted, FirstRunUnderWay, check_call
from billing.models import Budget, BudgetIncident, Scope, Spend, Window
from billing.unseen import top_up, usual_cost
from companies import activity, live
from companies.errors import Conflict, Invalid, NotFound
from companies.models import Company, Project

__all__ = [
    "UNCHANGED",
    "BudgetExhausted",
    "FirstRunUnderWay",
    "check_call",
    "raise_and_resume",
    "remove_limit",
    "set_limit",
    "top_up",
    "turn",
    "usual_cost",
]

MAX_LIMIT_MICROS = 10**15  # a thousand million dollars; sums stay far below 2^63
MAX_LIMIT_TOKENS = 10**15

UNCHANGED: Any = object()


# --- setting a limit ---------------------------------------------------------------------------


def set_limit(
    *,
    company: Company,
    scope: str,
    scope_id: uuid.UUID,
    limit_micros: int,
    actor: activity.Actor,
    window: str = Window.MONTH,
    warn_percent: int = 80,
    is_hard: bool = True,
    limit_tokens: int | None = UNCHANGED,
    unpriced_calls: int = UNCHANGED,
    now: datetime | None = None,
) -> Budget:
    """Set or change the limit of one scope and window; it holds from the commit on.

    A limit at or below what is spent holds the agents at once, a higher one lifts those holds.
    `unpriced_calls` of models without a price may pass it in a period, otherwise none.

    Raises NotFound for a scope outside the company, Invalid for a limit that cannot be.
    """
    now = now or timezone.now()
    known = Budget.objects.filter(scope=scope, scope_id=scope_id, window=window).first()
    if limit_tokens is UNCHANGED:
        limit_tokens = known.limit_tokens if known else None
    if unpriced_calls is UNCHANGED:
        unpriced_calls = known.unpriced_calls if known else 0
    _check_limit(scope, window, limit_micros, warn_percent, limit_tokens, unpriced_calls)
    name = _scope_name(company, scope, scope_id)
    with transaction.atomic():
        budget, before = _write(
            company,
            scope,
            scope_id,
            window,
            limit_micros=limit_micros,
            limit_tokens=limit_tokens,
            warn_percent=warn_percent,
            is_hard=is_hard,
            unpriced_calls=unpriced_calls,
        )
        if before is not None and before != limit_micros:
            resolution = BudgetIncident.Resolution
            answer = resolution.RAISED if limit_micros > before else resolution.LAPSED
            incidents.close(budget, answer, actor=actor, now=now)
        _carry_limit(budget, now)
        activity.record(
            company_id=company.id,
            actor=actor,
            action="budget.created" if before is None else "budget.updated",
            entity_type="budget",
            entity_id=budget.id,
            entity_name=name,
            details={
                "scope": scope,
                "window": window,
                "limitMicros": limit_micros,
                "limitTokens": limit_tokens,
                "isHard": is_hard,
            },
            now=now,
        )
        holds.review(company_id=company.id, scope=scope, scope_id=scope_id, now=now)
        wakes.hurry(company_id=company.id, code=Code.BUDGET, now=now)
        live.publish(company.id, "costs")
    return budget


def _write(
    company: Company, scope: str, scope_id: uuid.UUID, window: str, **fields: Any
) -> tuple[Budget, int | None]:
    """The budget's row and its limit before, None for a new one.

    Its lock leaves room for an incident's reference to it, which a booking writes while it holds
    the totals that we are about to change.
    """
    key = {"scope": scope, "scope_id": scope_id, "window": window}
    made, is_new = Budget.objects.get_or_create(**key, defaults={"company": company, **fields})
    if is_new:
        return made, None
    budget = Budget.objects.select_for_update(no_key=True).filter(id=made.id).first()
    if budget is None:
        raise Conflict("budget_removed", "Somebody has just removed this budget.")
    before = budget.limit_micros
    for name, value in fields.items():
        setattr(budget, name, value)
    budget.save(update_fields=[*fields, "updated_at"])
    return budget, before


def remove_limit(*, budget: Budget, actor: activity.Actor, now: datetime | None = None) -> None:
    """Take a limit away; its holds are lifted."""
    now = now or timezone.now()
    with transaction.atomic():
        name = _scope_name(budget.company, budget.scope, budget.scope_id)
        budget_id = budget.id
        Spend.objects.filter(
            scope=budget.scope, scope_id=budget.scope_id, window=budget.window
        ).update(limit_micros=None, limit_tokens=None, alert_at_micros=None)
        budget.delete()  # after its totals: a booking locks in this order too
        activity.record(
            company_id=budget.company_id,
            actor=actor,
            action="budget.removed",
            entity_type="budget",
            entity_id=budget_id,
            entity_name=name,
            details={"scope": budget.scope, "window": budget.window},
            now=now,
        )
        holds.review(
            company_id=budget.company_id, scope=budget.scope, scope_id=budget.scope_id, now=now
        )
        wakes.hurry(company_id=budget.company_id, code=Code.BUDGET, now=now)
        live.publish(budget.company_id, "costs")


def raise_and_resume(
    *,
    incident: BudgetIncident,
    limit_micros: int,
    actor: activity.Actor,
    now: datetime | None = None,
) -> Budget:
    """Answer an incident with a higher limit; the agents it held go on at once.

    Raises Invalid unless the limit is above what is spent in the current period.
    """
    now = now or timezone.now()
    budget = Budget.objects.select_related("company").get(id=incident.budget_id)
    scope = [(budget.scope, budget.scope_id)]
    spent = next(
        (each.spent_micros for each in totals.standing(scope, now) if each.window == budget.window),
        0,
    )
    if type(limit_micros) is not int or limit_micros <= max(spent, budget.limit_micros):
        raise Invalid(
            "limit_too_low",
            "The new limit must be above the old one and above what is spent.",
            field="limitMicros",
        )
    return set_limit(
        company=budget.company,
        scope=budget.scope,
        scope_id=budget.scope_id,
        window=budget.window,
        limit_micros=limit_micros,
        limit_tokens=budget.limit_tokens,
        warn_percent=budget.warn_percent,
        is_hard=budget.is_hard,
        unpriced_calls=budget.unpriced_calls,
        actor=actor,
        now=now,
    )


def _check_limit(
    scope: str,
    window: str,
    limit_micros: int,
    warn_percent: int,
    limit_tokens: int | None,
    unpriced_calls: int,
) -> None:
    if scope not in Scope.values:
        raise Invalid("scope_invalid", "A budget is for agent, project or company.", field="scope")
    if window not in Window.values:
        raise Invalid("window_invalid", "Choose run, day, month or lifetime.", field="window")
    if not _is_whole(limit_micros, MAX_LIMIT_MICROS):
        raise Invalid("limit_invalid", "A limit is an amount from 0 up.", field="limitMicros")
    if limit_tokens is not None and not _is_whole(limit_tokens, MAX_LIMIT_TOKENS):
        raise Invalid("limit_invalid", "A token limit is a number from 0 up.", field="limitTokens")
    if limit_tokens is not None and window == Window.RUN:
        raise Invalid("limit_invalid", "One run has no token limit.", field="limitTokens")
    if not _is_whole(warn_percent, 100) or warn_percent == 0:
        raise Invalid("warn_invalid", "Warn at 1 to 100 percent.", field="warnPercent")
    if not _is_whole(unpriced_calls, 10**9):
        raise Invalid("calls_invalid", "A number of calls from 0 up.", field="unpricedCalls")


def _is_whole(value: object, limit: int) -> bool:
    return type(value) is int and 0 <= value <= limit


def _scope_name(company: Company, scope: str, scope_id: uuid.UUID) -> str:
    """The name of what a budget is for, which must be this company's."""
    if scope == Scope.COMPANY:
        found = company.name if scope_id == company.id else None
    else:
        rows = Agent.objects if scope == Scope.AGENT else Project.objects
        found = (
            rows.for_company(company.id).filter(id=scope_id).values_list("name", flat=True).first()
        )
    if found is None:
        raise NotFound(f"There is no such {scope}.")
    return str(found)


def _carry_limit(budget: Budget, now: datetime) -> None:
    """Copy the limit to the current period's total, making it if need be.

    An upsert, so that it waits for a booking that is making the same row with the old limit.
    """
    if budget.window == Window.RUN:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            'INSERT INTO billing_spend AS total (company_id, scope, scope_id, "window", '
            "period_start, spent_micros, reserved_micros, limit_micros, tokens, limit_tokens, "
            "events, unpriced_events, updated_at) "
            "VALUES (%s, %s, %s, %s, %s, 0, 0, %s, 0, %s, 0, 0, %s) "
            'ON CONFLICT (scope, scope_id, "window", period_start) DO UPDATE '
            "SET limit_micros = excluded.limit_micros, limit_tokens = excluded.limit_tokens "
            "RETURNING id, spent_micros",
            [
                budget.company_id,
                budget.scope,
                budget.scope_id,
                budget.window,
                totals.period_start(budget.window, now),
                budget.limit_micros if budget.is_hard else None,
                budget.limit_tokens if budget.is_hard else None,
                now,
            ],
        )
        total_id, spent_micros = cursor.fetchone()
    # Who sets a limit sees what is spent; only a limit that is reached already is told.
    total = Spend.objects.get(id=total_id)
    if spent_micros >= budget.limit_micros:
        incidents.tell(total, now=now)
    else:
        upcoming = incidents.next_alert(budget, spent_micros)
        Spend.objects.filter(id=total_id).update(alert_at_micros=upcoming)


# --- the minute's round ------------------------------------------------------------------------


def turn(*, now: datetime | None = None) -> int:
    """Carry limits into new periods, lift the holds and close the incidents of those that are
    over, free what ended runs kept, forget what has served its time, hold who joined since.
    Returns how many holds changed.

    Safe to repeat, to skip and to run twice at once.
    """
    now = now or timezone.now()
    for budget_id in _drifted(now):
        with transaction.atomic():
            budget = Budget.objects.select_for_update(no_key=True).filter(id=budget_id).first()
            if budget is not None:
                _carry_limit(budget, now)
                wakes.hurry(company_id=budget.company_id, code=Code.BUDGET, now=now)
    reservations.sweep(now=now)
    reservations.forget(now=now)
    ledger.forget_keys(now=now)
    incidents.lapse(now=now)
    return holds.round_(now=now)


# The periods are few and the budgets set by hand, so this reads little.
_DRIFTED = """
SELECT budget.id FROM billing_budget budget
  LEFT JOIN billing_spend total
         ON total.scope = budget.scope AND total.scope_id = budget.scope_id
        AND total."window" = budget."window"
        AND total.period_start = CASE budget."window"
              WHEN 'day' THEN %s::date WHEN 'month' THEN %s::date ELSE %s::date END
 WHERE budget."window" <> 'run'
   AND (total.id IS NULL
    OR total.limit_micros IS DISTINCT FROM CASE WHEN budget.is_hard THEN budget.limit_micros END
    OR total.limit_tokens IS DISTINCT FROM CASE WHEN budget.is_hard THEN budget.limit_tokens END)
 ORDER BY budget.scope, budget.scope_id, budget."window"
"""


def _drifted(now: datetime) -> Sequence[uuid.UUID]:
    """Budgets whose period has no total yet, or one that carries another limit."""
    with connection.cursor() as cursor:
        cursor.execute(_DRIFTED, [totals.period_start(window, now) for window in totals.WINDOWS])
        return [row[0] for row in cursor.fetchall()]
