"""Telling people in time: a budget that passes 50 %, its own mark or 100 % is an incident, once a
period and limit. It asks for a decision; the wall itself does not wait for one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime

from django.db.models import Q, QuerySet

from agents.models import Agent
from billing import totals
from billing.models import Budget, BudgetIncident, Scope, Spend, Window
from companies import activity, live
from companies.errors import Conflict
from companies.models import Company, Project

FIRST_MARK = 50


def marks(budget: Budget) -> list[int]:
    """At how many percent people are told, ascending."""
    return sorted({FIRST_MARK, budget.warn_percent, 100})


def next_alert(budget: Budget, spent_micros: int) -> int | None:
    """The spend at which people are told next; None when they were told everything."""
    amounts = (_amount(budget, mark) for mark in marks(budget))
    return next((amount for amount in amounts if amount > spent_micros), None)


def unresolved(*, company_id: uuid.UUID, limit: int = 50) -> list[BudgetIncident]:
    """What waits for a decision, or was only acknowledged; the newest first."""
    mine = _unresolved(BudgetIncident.objects.for_company(company_id))
    return list(mine.select_related("budget").order_by("-created_at", "-id")[:limit])


def note(spends: Iterable[Spend], *, now: datetime) -> None:
    """After a booking, in its transaction: open an incident for each mark that was passed."""
    for spend in spends:
        due = spend.alert_at_micros is not None and spend.spent_micros >= spend.alert_at_micros
        if due and spend.period_start == totals.period_start(spend.window, now):
            tell(spend, now=now)


def tell(spend: Spend, *, now: datetime) -> None:
    """Open an incident for the highest mark that this total has passed."""
    budget = Budget.objects.filter(
        scope=spend.scope, scope_id=spend.scope_id, window=spend.window
    ).first()
    upcoming = None
    if budget is not None:
        upcoming = next_alert(budget, spend.spent_micros)
        passed = [mark for mark in marks(budget) if spend.spent_micros >= _amount(budget, mark)]
        if passed:
            _open(budget, spend, passed[-1], now)
    Spend.objects.filter(id=spend.id).update(alert_at_micros=upcoming)


def acknowledge(
    *, incident: BudgetIncident, actor: activity.Actor, now: datetime
) -> BudgetIncident:
    """Somebody has seen it. Raises Conflict when it is not open any more."""
    return _decide(incident, BudgetIncident.State.ACKNOWLEDGED, "", actor, now)


def keep_paused(
    *, incident: BudgetIncident, actor: activity.Actor, now: datetime
) -> BudgetIncident:
    """The limit stays: the agents wait for the next period. Raises Conflict."""
    resolution = BudgetIncident.Resolution.KEPT
    return _decide(incident, BudgetIncident.State.RESOLVED, resolution, actor, now)


def close(budget: Budget, resolution: str, *, actor: activity.Actor, now: datetime) -> int:
    """A limit was changed: what was told about the old one needs no decision any more."""
    return _unresolved(budget.incidents.all()).update(
        state=BudgetIncident.State.RESOLVED,
        resolution=resolution,
        decided_by=actor.name[:120],
        decided_at=now,
    )


def lapse(*, now: datetime) -> int:
    """Close what was told about periods that are over; return how many."""
    over = Q(budget__window=Window.DAY, period_start__lt=totals.period_start(Window.DAY, now))
    over |= Q(budget__window=Window.MONTH, period_start__lt=totals.period_start(Window.MONTH, now))
    return _unresolved(BudgetIncident.objects.filter(over)).update(
        state=BudgetIncident.State.RESOLVED,
        resolution=BudgetIncident.Resolution.LAPSED,
        decided_at=now,
    )


def _amount(budget: Budget, mark: int) -> int:
    """So many percent of the limit, rounded up: exactly reached counts, less does not."""
    return -(-budget.limit_micros * mark // 100)


def _unresolved(incidents: QuerySet[BudgetIncident]) -> QuerySet[BudgetIncident]:
    return incidents.exclude(state=BudgetIncident.State.RESOLVED)


def _open(budget: Budget, spend: Spend, percent: int, now: datetime) -> None:
    incident, is_new = BudgetIncident.objects.get_or_create(
        budget=budget,
        period_start=spend.period_start,
        percent=percent,
        limit_micros=budget.limit_micros,
        defaults={
            "company_id": budget.company_id,
            "spent_micros": spend.spent_micros,
            "created_at": now,
        },
    )
    if is_new:
        _record(incident, activity.SYSTEM, "budget.passed", now)


def _decide(
    incident: BudgetIncident, state: str, resolution: str, actor: activity.Actor, now: datetime
) -> BudgetIncident:
    changed = (
        _unresolved(BudgetIncident.objects.filter(id=incident.id))
        .exclude(state=state)
        .update(state=state, resolution=resolution, decided_by=actor.name[:120], decided_at=now)
    )
    incident.refresh_from_db()
    if not changed:
        raise Conflict(
            "incident_decided",
            "Somebody has already decided this.",
            details={"state": incident.state, "resolution": incident.resolution},
        )
    _record(incident, actor, f"budget.incident_{resolution or state}", now)
    return incident


def _whose(budget: Budget) -> str:
    """The name of the company, project or agent; empty when that is gone."""
    of = {Scope.COMPANY: Company, Scope.PROJECT: Project, Scope.AGENT: Agent}[Scope(budget.scope)]
    name = of._default_manager.filter(id=budget.scope_id).values_list("name", flat=True).first()
    return name or ""


def _record(incident: BudgetIncident, actor: activity.Actor, action: str, now: datetime) -> None:
    activity.record(
        company_id=incident.company_id,
        actor=actor,
        action=action,
        entity_type="budget",
        entity_id=incident.budget_id,
        entity_name=_whose(incident.budget),
        details={
            "percent": incident.percent,
            "spentMicros": incident.spent_micros,
            "limitMicros": incident.limit_micros,
        },
        now=now,
    )
    live.publish(incident.company_id, "inbox")
