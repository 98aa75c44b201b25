"""Money over the API: reporting costs, sums, budgets. Cents for people, micro-dollars exactly."""

from __future__ import annotations

import uuid
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents.adapters import base
from agents.models import Agent, HeartbeatRun
from billing import budgets, ledger, reports
from billing.models import Budget, CostEvent, Scope, Window
from companies import access, wire
from companies.errors import Invalid, NotFound
from companies.ids import new_id
from companies.models import Goal, Project
from issues.api import find as find_issue
from issues.models import Issue

router = Router()
Name = Annotated[wire.Text, Field(min_length=1, max_length=120)]


class NewCost(wire.Body):
    agent_id: uuid.UUID
    issue_id: uuid.UUID | None = None
    project_id: uuid.UUID | None = None
    goal_id: uuid.UUID | None = None
    heartbeat_run_id: uuid.UUID | None = None
    billing_code: Annotated[wire.Text, Field(max_length=80)] | None = None
    provider: Annotated[wire.Text, Field(min_length=1, max_length=60)]
    biller: Annotated[wire.Text, Field(max_length=60)] | None = None
    billing_type: (
        Literal["metered_api", "subscription_included", "api", "subscription", "unknown"] | None
    ) = None
    model: Name
    input_tokens: wire.Count = 0
    cached_input_tokens: wire.Count = 0
    cache_write_tokens: wire.Count = 0
    output_tokens: wire.Count = 0
    reasoning_tokens: wire.Count = 0
    cost_cents: Annotated[Decimal, Field(ge=0, le=10**11)] | None = None
    cost_micros: wire.Count | None = None
    occurred_at: datetime | None = None


class BudgetWish(wire.Body):
    budget_monthly_cents: Annotated[Decimal, Field(ge=0, le=10**11)]


class Policy(wire.Body):
    scope_type: Literal["company", "agent", "project"]
    scope_id: uuid.UUID
    amount: Annotated[Decimal, Field(ge=0, le=10**11)]
    window_kind: Literal["calendar_month_utc", "lifetime"] = "calendar_month_utc"
    warn_percent: Annotated[int, Field(ge=1, le=100)] = 80
    hard_stop_enabled: bool = True


# --- reporting -------------------------------------------------------------------------------


@router.post("/companies/{company}/cost-events", summary="Report what a call cost")
def report_cost(request: HttpRequest, company: str, body: NewCost) -> HttpResponse:
    """Without a cost it is computed from the price lists; without a price it stays unpriced,
    never 0. An `Idempotency-Key` makes a repetition harmless."""
    caller, now = wire.principal(request), timezone.now()
    found = wire.company(request, company, None)
    if caller.agent_id is not None and caller.agent_id != body.agent_id:
        raise Invalid("other_agent", "An agent reports its own costs.", field="agentId")
    run_id = caller.run_id or body.heartbeat_run_id
    for model, value, field in (
        (Agent, body.agent_id, "agentId"),
        (Issue, body.issue_id, "issueId"),
        (Project, body.project_id, "projectId"),
        (Goal, body.goal_id, "goalId"),
        (HeartbeatRun, run_id, "heartbeatRunId"),
    ):
        wire.one_of_company(model, found.id, value, field)
    if body.occurred_at is not None and body.occurred_at.tzinfo is None:
        raise Invalid("invalid", "occurredAt needs a time zone.", field="occurredAt")
    key = request.headers.get("Idempotency-Key") or str(new_id())
    booked = ledger.book(
        company_id=found.id,
        agent_id=body.agent_id,
        usage=_usage(body),
        key=f"api:{caller.key}:{key}"[:200],
        run_id=run_id,
        issue_id=body.issue_id,
        project_id=body.project_id,
        goal_id=body.goal_id,
        billing_code=body.billing_code or "",
        biller=body.biller or "",
        billing_type=_billing_type(body.billing_type),
        occurred_at=body.occurred_at,
        now=now,
    )
    if booked.event_id is None:
        raise Invalid("nothing_used", "A cost event needs tokens or a cost.")
    event = CostEvent.objects.for_company(found.id).get(id=booked.event_id)
    return wire.answer(shape(event), 201)


def _usage(body: NewCost) -> base.Usage:
    cost = body.cost_micros
    if cost is None and body.cost_cents is not None:
        cost = int((body.cost_cents * 10_000).to_integral_value())
    cached = body.cached_input_tokens + body.cache_write_tokens
    # On the wire cached tokens may stand beside the input; within they are a part of it.
    total = body.input_tokens if body.input_tokens >= cached else body.input_tokens + cached
    return base.Usage(
        call=1,
        provider=body.provider,
        model=body.model,
        input_tokens=total,
        cache_read_tokens=body.cached_input_tokens,
        cache_write_tokens=body.cache_write_tokens,
        output_tokens=body.output_tokens,
        reasoning_tokens=min(body.reasoning_tokens, body.output_tokens),
        cost_micros=cost,
    )


def _billing_type(given: str | None) -> str:
    included = given in ("subscription", "subscription_included")
    types = CostEvent.BillingType
    return types.SUBSCRIPTION if included else types.METERED


def shape(event: CostEvent) -> dict[str, Any]:
    """A cost event on the wire."""
    return {
        "id": event.id,
        "companyId": event.company_id,
        "agentId": event.agent_id,
        "issueId": event.issue_id,
        "projectId": event.project_id,
        "goalId": event.goal_id,
        "heartbeatRunId": event.run_id,
        "billingCode": event.billing_code or None,
        "provider": event.provider,
        "biller": event.biller,
        "billingType": event.billing_type,
        "model": event.model,
        "inputTokens": event.input_tokens,
        "cachedInputTokens": event.cache_read_tokens,
        "cacheWriteTokens": event.cache_write_tokens,
        "outputTokens": event.output_tokens,
        "reasoningTokens": event.reasoning_tokens,
        "costCents": wire.cents(event.cost_micros),
        "costMicros": event.cost_micros,
        "costStatus": event.cost_status,
        "priceSource": event.price_source or None,
        "occurredAt": event.occurred_at,
        "createdAt": event.recorded_at,
    }


# --- sums ------------------------------------------------------------------------------------


@router.get("/companies/{company}/costs/summary", summary="This month")
def summary(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    month = reports.month(company_id=found.id, now=timezone.now())
    limit = month.limit_micros
    return wire.answer(
        {
            "companyId": found.id,
            "spendCents": wire.cents(month.spent_micros),
            "spendMicros": month.spent_micros,
            "budgetCents": wire.cents(limit) or 0,
            "budgetMicros": limit,
            "utilizationPercent": month.spent_micros * 100 // limit if limit else 0,
            "events": month.events,
            "unpricedEvents": month.unpriced_events,
        }
    )


@router.get("/companies/{company}/costs/by-agent", summary="This month by agent")
def by_agent(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    lines = reports.by_agent(company_id=found.id, now=timezone.now())
    return wire.answer(
        [{"agentId": line.id, "agentName": line.name, **_sums(line)} for line in lines]
    )


@router.get("/companies/{company}/costs/by-agent-model", summary="This month by provider and model")
def by_model(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    lines = reports.by_model(company_id=found.id, now=timezone.now())
    return wire.answer(
        [{"provider": line.provider, "model": line.name, **_sums(line)} for line in lines]
    )


@router.get("/companies/{company}/costs/by-provider", summary="This month by provider")
def by_provider(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    lines = reports.by_model(company_id=found.id, now=timezone.now())
    return wire.answer(
        [
            {
                "provider": line.provider,
                "biller": line.provider,
                "billingType": CostEvent.BillingType.METERED,
                "model": line.name,
                **_sums(line),
            }
            for line in lines
        ]
    )


@router.get("/companies/{company}/costs/by-project", summary="This month by project")
def by_project(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    lines = reports.by_project(company_id=found.id, now=timezone.now())
    return wire.answer(
        [{"projectId": line.id, "projectName": line.name, **_sums(line)} for line in lines]
    )


def _sums(line: reports.Line) -> dict[str, Any]:
    return {
        "costCents": wire.cents(line.spent_micros),
        "costMicros": line.spent_micros,
        "inputTokens": line.input_tokens,
        "cachedInputTokens": line.cached_tokens,
        "outputTokens": line.output_tokens,
        "events": line.events,
        "unpricedEvents": line.unpriced_events,
    }


@router.get("/issues/{issue}/cost-summary", summary="What one issue cost")
def issue_cost(request: HttpRequest, issue: str) -> HttpResponse:
    found = find_issue(request, issue)
    line = reports.by_issue(company_id=found.company_id, issue_id=found.id)
    runs = HeartbeatRun.objects.filter(issue=found).count()
    return wire.answer({"issueId": found.id, "issueCount": 1, "runCount": runs, **_sums(line)})


# --- budgets ---------------------------------------------------------------------------------


@router.get("/companies/{company}/budgets/overview", summary="Limits and what was spent of them")
def budget_overview(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    limits = reports.limits(company=found, now=timezone.now())
    return wire.answer(
        {
            "companyId": found.id,
            "policies": [_policy(limit) for limit in limits],
            "activeIncidents": [],
            "pausedAgentCount": sum(limit.state == "reached" for limit in limits),
            "pausedProjectCount": 0,
            "pendingApprovalCount": 0,
        }
    )


@router.post("/companies/{company}/budgets/policies", summary="Set a limit")
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


@router.patch("/companies/{company}/budgets", summary="The company's month limit")
def set_company_budget(request: HttpRequest, company: str, body: BudgetWish) -> HttpResponse:
    found = wire.company(request, company, "manage")
    budget = _month_limit(request, found, Scope.COMPANY, found.id, body)
    return wire.answer(_found_policy(found, budget))


@router.patch("/agents/{agent}/budgets", summary="An agent's month limit")
def set_agent_budget(request: HttpRequest, agent: uuid.UUID, body: BudgetWish) -> HttpResponse:
    caller = wire.principal(request)
    row = wire.in_companies(caller, Agent.objects.select_related("company")).filter(id=agent)
    found = row.first()
    if found is None:
        raise NotFound("There is no such agent.")
    access.authorize(caller, "manage", found.company_id)
    budget = _month_limit(request, found.company, Scope.AGENT, found.id, body)
    return wire.answer(_found_policy(found.company, budget))


def _month_limit(
    request: HttpRequest, company: Any, scope: str, scope_id: uuid.UUID, body: BudgetWish
) -> Budget:
    return budgets.set_limit(
        company=company,
        scope=scope,
        scope_id=scope_id,
        limit_micros=int(body.budget_monthly_cents * 10_000),
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )


def _found_policy(company: Any, budget: Budget) -> dict[str, Any]:
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
