"""Budgets: limits that operators set, and what reaching one means.

A hard limit that is reached holds the agents it concerns (`Hold`, so that nothing is claimed for
them) and refuses the next model call of what already runs. Only its own holds are placed and
lifted here: a person's pause is never touched. A month's turn or a higher limit lifts them.
Not here: the sums (`totals.py`) and the receipts (`ledger.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from agents import roster
from agents.models import Agent, Hold
from billing import totals
from billing.models import Budget, Scope, Spend, Window
from billing.totals import Whose
from companies import activity, live
from companies.errors import Invalid, NotFound, Refusal
from companies.models import Company, Project
from issues.models import Issue

MAX_LIMIT_MICROS = 10**15  # a thousand million dollars; sums stay far below 2^63
MAX_LIMIT_TOKENS = 10**15

REASONS = {
    Scope.AGENT: Hold.Reason.AGENT_BUDGET,
    Scope.PROJECT: Hold.Reason.PROJECT_BUDGET,
    Scope.COMPANY: Hold.Reason.COMPANY_BUDGET,
}


class BudgetExhausted(Refusal):
    """A hard limit does not leave room for a model call. `details` names which."""

    status = 402


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
    limit_tokens: int | None = None,
    now: datetime | None = None,
) -> Budget:
    """Set or change the limit of one scope and window; it holds from the commit on.

    A limit at or below what is spent holds the agents at once, a higher one lifts those holds.
    Raises NotFound for a scope outside the company, Invalid for a limit that cannot be.
    """
    now = now or timezone.now()
    _check_limit(scope, window, limit_micros, warn_percent, limit_tokens)
    name = _scope_name(company, scope, scope_id)
    with transaction.atomic():
        budget, created = Budget.objects.update_or_create(
            scope=scope,
            scope_id=scope_id,
            window=window,
            defaults={
                "company": company,
                "limit_micros": limit_micros,
                "limit_tokens": limit_tokens,
                "warn_percent": warn_percent,
                "is_hard": is_hard,
            },
        )
        _carry_limit(budget, now)
        activity.record(
            company_id=company.id,
            actor=actor,
            action="budget.created" if created else "budget.updated",
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
        review(company_id=company.id, scope=scope, scope_id=scope_id, now=now)
        live.publish(company.id, "costs")
    return budget


def remove_limit(*, budget: Budget, actor: activity.Actor, now: datetime | None = None) -> None:
    """Take a limit away; its holds are lifted."""
    now = now or timezone.now()
    with transaction.atomic():
        name = _scope_name(budget.company, budget.scope, budget.scope_id)
        budget_id = budget.id
        budget.delete()
        Spend.objects.filter(
            scope=budget.scope, scope_id=budget.scope_id, window=budget.window
        ).exclude(limit_micros=None, limit_tokens=None).update(limit_micros=None, limit_tokens=None)
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
        review(company_id=budget.company_id, scope=budget.scope, scope_id=budget.scope_id, now=now)
        live.publish(budget.company_id, "costs")


def _check_limit(
    scope: str, window: str, limit_micros: int, warn_percent: int, limit_tokens: int | None
) -> None:
    if scope not in Scope.values:
        raise Invalid(
            "scope_invalid", "A budget is for an agent, project or company.", field="scope"
        )
    if window not in Window.values:
        raise Invalid("window_invalid", "Choose day, month or lifetime.", field="window")
    if type(limit_micros) is not int or not 0 <= limit_micros <= MAX_LIMIT_MICROS:
        raise Invalid("limit_invalid", "A limit is an amount from 0 up.", field="limitMicros")
    if limit_tokens is not None and (
        type(limit_tokens) is not int or not 0 <= limit_tokens <= MAX_LIMIT_TOKENS
    ):
        raise Invalid("limit_invalid", "A token limit is a number from 0 up.", field="limitTokens")
    if type(warn_percent) is not int or not 1 <= warn_percent <= 100:
        raise Invalid("warn_invalid", "Warn at 1 to 100 percent.", field="warnPercent")


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
    with connection.cursor() as cursor:
        cursor.execute(
            'INSERT INTO billing_spend AS total (company_id, scope, scope_id, "window", '
            "period_start, spent_micros, reserved_micros, limit_micros, tokens, limit_tokens, "
            "events, unpriced_events, updated_at) "
            "VALUES (%s, %s, %s, %s, %s, 0, 0, %s, 0, %s, 0, 0, %s) "
            'ON CONFLICT (scope, scope_id, "window", period_start) DO UPDATE '
            "SET limit_micros = excluded.limit_micros, limit_tokens = excluded.limit_tokens",
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


# --- what a reached limit does -----------------------------------------------------------------


def enforce(spends: Iterable[Spend], *, now: datetime) -> None:
    """Hold whom a reached limit concerns. `spends` are totals as they stand after a booking."""
    for spend in spends:
        if is_reached(spend) and spend.period_start == totals.period_start(spend.window, now):
            _place(spend, now)


def is_reached(spend: Spend) -> bool:
    """Nothing is left of a hard limit."""
    money = spend.limit_micros is not None and spend.spent_micros >= spend.limit_micros
    tokens = spend.limit_tokens is not None and spend.tokens >= spend.limit_tokens
    return money or tokens


def review(*, company_id: uuid.UUID, scope: str, scope_id: uuid.UUID, now: datetime) -> None:
    """Place or lift the holds of one scope, as its totals stand now."""
    reached = [
        spend for spend in _current(now, Q(scope=scope, scope_id=scope_id)) if is_reached(spend)
    ]
    if reached:
        _place(reached[0], now)
    else:
        _lift(company_id, scope, scope_id, now)


def turn(*, now: datetime | None = None) -> int:
    """The minute's round: carry limits into new periods, lift the holds of a period that is over,
    hold who joined since. Returns how many holds changed."""
    now = now or timezone.now()
    _carry_limits(now)
    changed = 0
    for hold in _budget_holds().select_related("agent").order_by("agent_id", "reason"):
        with transaction.atomic():
            if not _still_held(hold, now):
                roster.lift(agent=hold.agent, reason=hold.reason, actor=activity.SYSTEM, now=now)
                changed += 1
    for spend in _current(now, Q(limit_micros__isnull=False) | Q(limit_tokens__isnull=False)):
        if is_reached(spend):
            with transaction.atomic():
                changed += _place(spend, now)
    return changed


def check_call(
    *,
    agent: Agent,
    run_id: uuid.UUID | None = None,
    project_id: uuid.UUID | None = None,
    provider: str = "",
    model: str = "",
    input_tokens: int = 0,
    max_output_tokens: int = 0,
    now: datetime | None = None,
) -> None:
    """Asked before each model call. Raises BudgetExhausted when a hard limit is reached."""
    now = now or timezone.now()
    if run_id is not None and project_id is None:
        project_id = project_of(run_id)
    whose = Whose(agent.company_id, agent.id, project_id)
    for spend in _current(now, _of(whose)):
        if is_reached(spend):
            raise exhausted(spend)


def exhausted(spend: Spend) -> BudgetExhausted:
    """The refusal that says which limit it was and what to do."""
    period = {"day": "daily", "month": "monthly", "lifetime": "total"}[spend.window]
    return BudgetExhausted(
        "budget_exhausted",
        f"The {spend.scope}'s {period} budget is used up. Raise it, or wait for the next period.",
        details={
            "scope": spend.scope,
            "scopeId": str(spend.scope_id),
            "window": spend.window,
            "limitMicros": spend.limit_micros,
            "spentMicros": spend.spent_micros,
        },
    )


def project_of(run_id: uuid.UUID) -> uuid.UUID | None:
    """The project of the issue that a run is about."""
    return Issue.objects.filter(runs__id=run_id).values_list("project_id", flat=True).first()


def _of(whose: Whose) -> Q:
    scopes = Q()
    for scope, scope_id in whose.scopes():
        scopes |= Q(scope=scope, scope_id=scope_id)
    return scopes


def _current(now: datetime, which: Q) -> list[Spend]:
    """Totals of the periods that `now` lies in, with the agent's own daily cap as a limit."""
    periods = Q()
    for window in totals.WINDOWS:
        periods |= Q(window=window, period_start=totals.period_start(window, now))
    found = list(Spend.objects.filter(which, periods).order_by("scope", "scope_id", "window"))
    caps = _daily_caps({s.scope_id for s in found if s.scope == Scope.AGENT})
    for spend in found:
        cap = caps.get(spend.scope_id) if spend.window == Window.DAY else None
        if cap is not None:
            limit = spend.limit_micros
            spend.limit_micros = cap if limit is None else min(cap, limit)
    return found


def _daily_caps(agent_ids: set[uuid.UUID]) -> dict[uuid.UUID, int | None]:
    capped = Agent.objects.filter(id__in=agent_ids, max_daily_cost_micros__isnull=False)
    return dict(capped.values_list("id", "max_daily_cost_micros"))


def _budget_holds() -> QuerySet[Hold]:
    return Hold.objects.filter(reason__in=REASONS.values())


def _place(spend: Spend, now: datetime) -> int:
    """Hold whom a reached total concerns and who is not held yet; return how many."""
    placed = 0
    reason = REASONS[Scope(spend.scope)]
    note = exhausted(spend).message
    for agent in _concerned(spend.company_id, spend.scope, spend.scope_id, now):
        if not Hold.objects.filter(agent=agent, reason=reason).exists():
            roster.hold(agent=agent, reason=reason, note=note, actor=activity.SYSTEM, now=now)
            placed += 1
    return placed


def _lift(company_id: uuid.UUID, scope: str, scope_id: uuid.UUID, now: datetime) -> None:
    """Lift what is no longer held by any limit of this kind."""
    holds = Hold.objects.for_company(company_id).filter(reason=REASONS[Scope(scope)])
    if scope == Scope.AGENT:
        holds = holds.filter(agent_id=scope_id)
    for hold in holds.select_related("agent").order_by("agent_id"):
        if not _still_held(hold, now):
            roster.lift(agent=hold.agent, reason=hold.reason, actor=activity.SYSTEM, now=now)


def _still_held(hold: Hold, now: datetime) -> bool:
    if hold.reason == Hold.Reason.PROJECT_BUDGET:
        return _all_work_in(hold.agent_id, _exhausted_projects(hold.company_id, now))
    scope, scope_id = (
        (Scope.AGENT, hold.agent_id)
        if hold.reason == Hold.Reason.AGENT_BUDGET
        else (Scope.COMPANY, hold.company_id)
    )
    return any(is_reached(each) for each in _current(now, Q(scope=scope, scope_id=scope_id)))


def _concerned(
    company_id: uuid.UUID, scope: str, scope_id: uuid.UUID, now: datetime
) -> Sequence[Agent]:
    """Whom a reached limit stops, in the order in which agents are locked.

    A project's limit stops the agents that have no open work outside used-up projects; the calls
    of the others are refused one by one, so that their other work goes on.
    """
    agents = Agent.objects.for_company(company_id).exclude(status=Agent.Status.TERMINATED)
    if scope == Scope.AGENT:
        return list(agents.filter(id=scope_id))
    if scope == Scope.COMPANY:
        return list(agents.order_by("id"))
    projects = _exhausted_projects(company_id, now) | {scope_id}
    mine = agents.filter(issues__in=Issue.objects.open().filter(project_id=scope_id))
    return [each for each in mine.distinct().order_by("id") if _all_work_in(each.id, projects)]


def _exhausted_projects(company_id: uuid.UUID, now: datetime) -> set[uuid.UUID]:
    spends = _current(now, Q(company_id=company_id, scope=Scope.PROJECT))
    return {spend.scope_id for spend in spends if is_reached(spend)}


def _all_work_in(agent_id: uuid.UUID, projects: set[uuid.UUID]) -> bool:
    work = Issue.objects.open().filter(assignee_agent_id=agent_id)
    places = set(work.values_list("project_id", flat=True).distinct())
    return bool(places) and places <= projects


# The periods are few and the budgets set by hand, so this reads little.
DRIFTED = """
SELECT budget.id FROM billing_budget budget
  LEFT JOIN billing_spend total
         ON total.scope = budget.scope AND total.scope_id = budget.scope_id
        AND total."window" = budget."window"
        AND total.period_start = CASE budget."window"
              WHEN 'day' THEN %s WHEN 'month' THEN %s ELSE %s END
 WHERE total.id IS NULL
    OR total.limit_micros IS DISTINCT FROM CASE WHEN budget.is_hard THEN budget.limit_micros END
    OR total.limit_tokens IS DISTINCT FROM CASE WHEN budget.is_hard THEN budget.limit_tokens END
 ORDER BY budget.scope, budget.scope_id, budget."window"
"""


def _carry_limits(now: datetime) -> None:
    """Every budget's limit stands in its current period's total, which exists."""
    with connection.cursor() as cursor:
        cursor.execute(DRIFTED, [totals.period_start(window, now) for window in totals.WINDOWS])
        drifted = [row[0] for row in cursor.fetchall()]
    for budget_id in drifted:
        with transaction.atomic():
            budget = Budget.objects.select_for_update(no_key=True).filter(id=budget_id).first()
            if budget is not None:
                _carry_limit(budget, now)
