"""Budgets over the API: limits, what was spent of them, and what happens at their end."""

from __future__ import annotations

import uuid
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents.models import Agent, Hold
from billing import answers, budgets, incidents, reports
from billing.models import Budget, BudgetIncident, Scope, Window
from companies import access, wire
from companies.activity import Actor
from companies.errors import Invalid, NotFound
from companies.models import Company

router = Router(by_alias=True)


class BudgetWish(wire.Body):
    budget_monthly_cents: Annotated[Decimal, Field(ge=0, le=10**11)]


class Policy(wire.Body):
    scope_type: Literal["company", "agent", "project"]
    scope_id: uuid.UUID
    amount: Annotated[Decimal, Field(ge=0, le=10**11)]
    window_kind: Literal["calendar_month_utc", "lifetime"] = "calendar_month_utc"
    warn_percent: Annotated[int, Field(ge=1, le=100, strict=True)] = 80
    hard_stop_enabled: bool = True


class Resolution(wire.Body):
    action: Literal["raise_budget_and_resume", "keep_paused"]
    amount: Annotated[Decimal, Field(ge=0, le=10**11)] | None = None


@router.get(
    "/companies/{company}/budgets/overview",
    response=answers.BudgetOverview,
    summary="Limits and what was spent of them",
)
def budget_overview(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    limits = reports.limits(company=found, now=timezone.now())
    return wire.answer(
        {
            "companyId": found.id,
            "policies": [_policy(limit) for limit in limits],
            "activeIncidents": [
                _incident(row)
                for row in BudgetIncident.objects.for_company(found.id)
                .exclude(state=BudgetIncident.State.RESOLVED)
                .select_related("budget")
                .order_by("-created_at", "-id")[: wire.MAX_PAGE]
            ],
            "pausedAgentCount": Hold.objects.for_company(found.id)
            .filter(reason__endswith="_budget")
            .aggregate(count=Count("agent", distinct=True))["count"],
            "pausedProjectCount": 0,
            "pendingApprovalCount": 0,
        }
    )


@router.post(
    "/companies/{company}/budgets/policies", response=answers.BudgetPolicy, summary="Set a limit"
)
def set_policy(request: HttpRequest, company: str, body: Policy) -> HttpResponse:
    """`amount` is in cents."""
    found = wire.company(request, company, "manage")
    month = body.window_kind == "calendar_month_utc"
    budget = budgets.set_limit(
        company=found,
        scope=body.scope_type,
        scope_id=body.scope_id,
        window=Window.MONTH if month else Window.LIFETIME,
        limit_micros=int(body.amount * 10_000),
        warn_percent=body.warn_percent,
        is_hard=body.hard_stop_enabled,
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer(_found_policy(found, budget))


@router.patch(
    "/companies/{company}/budgets",
    response=answers.BudgetPolicy,
    summary="The company's month limit",
)
def set_company_budget(request: HttpRequest, company: str, body: BudgetWish) -> HttpResponse:
    found = wire.company(request, company, "manage")
    budget = set_month_limit(
        company=found,
        scope=Scope.COMPANY,
        scope_id=found.id,
        cents=body.budget_monthly_cents,
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer(_found_policy(found, budget))


@router.patch(
    "/agents/{agent}/budgets", response=answers.BudgetPolicy, summary="An agent's month limit"
)
def set_agent_budget(request: HttpRequest, agent: uuid.UUID, body: BudgetWish) -> HttpResponse:
    caller = wire.principal(request)
    row = wire.in_companies(caller, Agent.objects.select_related("company")).filter(id=agent)
    found = row.first()
    if found is None:
        raise NotFound("There is no such agent.")
    access.authorize(caller, "manage", found.company_id)
    budget = set_month_limit(
        company=found.company,
        scope=Scope.AGENT,
        scope_id=found.id,
        cents=body.budget_monthly_cents,
        actor=caller.actor,
        now=timezone.now(),
    )
    return wire.answer(_found_policy(found.company, budget))


@router.post(
    "/companies/{company}/budget-incidents/{incident_id}/resolve",
    response=answers.BudgetIncident,
    summary="Raise the limit and go on, or wait for the next period",
)
def resolve_incident(
    request: HttpRequest, company: str, incident_id: uuid.UUID, body: Resolution
) -> HttpResponse:
    """`amount` (in cents) with `raise_budget_and_resume`."""
    found = wire.company(request, company, "manage")
    rows = BudgetIncident.objects.for_company(found.id).select_related("budget")
    incident = rows.filter(id=incident_id).first()
    if incident is None:
        raise NotFound("There is no such incident.")
    actor, now = wire.principal(request).actor, timezone.now()
    if body.action == "keep_paused":
        incidents.keep_paused(incident=incident, actor=actor, now=now)
    elif body.amount is None:
        raise Invalid("amount_missing", "Name the new limit.", field="amount")
    else:
        budgets.raise_and_resume(
            incident=incident, limit_micros=int(body.amount * 10_000), actor=actor, now=now
        )
    incident.refresh_from_db()
    return wire.answer(_incident(incident))


def _incident(row: BudgetIncident) -> dict[str, Any]:
    return {
        "id": row.id,
        "companyId": row.company_id,
        "policyId": row.budget_id,
        "scopeType": row.budget.scope,
        "scopeId": row.budget.scope_id,
        "percent": row.percent,
        "thresholdType": "hard_stop" if row.percent >= 100 else "warn",
        "amountLimit": wire.cents(row.limit_micros),
        "amountObserved": wire.cents(row.spent_micros),
        "status": row.state,
        "resolution": row.resolution or None,
        "resolvedAt": row.decided_at,
        "createdAt": row.created_at,
    }


def set_month_limit(
    *,
    company: Company,
    scope: str,
    scope_id: uuid.UUID,
    cents: Decimal,
    actor: Actor,
    now: datetime,
) -> Budget:
    """The month limit of one scope; what else was set for it stays as it is."""
    known = Budget.objects.filter(scope=scope, scope_id=scope_id, window=Window.MONTH).first()
    kept: dict[str, Any] = {}
    if known is not None:
        names = ("limit_tokens", "unpriced_calls", "warn_percent", "is_hard")
        kept = {name: getattr(known, name) for name in names}
    return budgets.set_limit(
        company=company,
        scope=scope,
        scope_id=scope_id,
        limit_micros=int(cents * 10_000),
        actor=actor,
        now=now,
        **kept,
    )


def _found_policy(company: Company, budget: Budget) -> dict[str, Any]:
    limits = reports.limits(company=company, now=timezone.now())
    return next(_policy(limit) for limit in limits if limit.budget.pk == budget.pk)


def _policy(limit: reports.Limit) -> dict[str, Any]:
    budget = limit.budget
    month = budget.window == Window.MONTH
    return {
        "policyId": budget.id,
        "companyId": budget.company_id,
        "scopeType": budget.scope,
        "scopeId": budget.scope_id,
        "scopeName": limit.name,
        "metric": "billed_cents",
        "windowKind": "calendar_month_utc" if month else budget.window,
        "amount": wire.cents(budget.limit_micros),
        "amountMicros": budget.limit_micros,
        "observedAmount": wire.cents(limit.spent_micros),
        "observedMicros": limit.spent_micros,
        "remainingAmount": wire.cents(max(0, budget.limit_micros - limit.spent_micros)),
        "utilizationPercent": limit.percent,
        "warnPercent": budget.warn_percent,
        "hardStopEnabled": budget.is_hard,
        "isActive": True,
        "status": limit.state,
        "windowEnd": limit.resets_at,
    }
