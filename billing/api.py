"""Costs over the API: reporting them, sums. Cents for people, micro-dollars exactly. Limits:
`budget_api.py`."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents.adapters import base
from agents.models import Agent, HeartbeatRun
from billing import answers, ledger, replica, reports
from billing.models import CostEvent, Scope, Window
from companies import format, wire
from companies.errors import Forbidden, Invalid
from companies.ids import new_id
from companies.models import Goal, Project
from issues.api import find as find_issue
from issues.models import Issue

router = Router(by_alias=True)
Name = Annotated[wire.Trimmed, Field(min_length=1, max_length=120)]


# The ledger refuses more with 422; who reads the description should know before.
Tokens = Annotated[wire.Count, Field(json_schema_extra={"maximum": ledger.MAX_TOKENS})]
Micros = Annotated[wire.Count, Field(json_schema_extra={"maximum": ledger.MAX_MICROS})]


class NewCost(wire.Body):
    agent_id: uuid.UUID
    issue_id: uuid.UUID | None = None
    project_id: uuid.UUID | None = None
    goal_id: uuid.UUID | None = None
    heartbeat_run_id: uuid.UUID | None = None
    billing_code: Annotated[wire.Text, Field(max_length=80)] | None = None
    provider: Annotated[wire.Trimmed, Field(min_length=1, max_length=60)]
    biller: Annotated[wire.Text, Field(max_length=60)] | None = None
    billing_type: (
        Literal["metered_api", "subscription_included", "api", "subscription", "unknown"] | None
    ) = None
    model: Name
    input_tokens: Tokens = 0
    cached_input_tokens: Tokens = 0
    cache_write_tokens: Tokens = 0
    output_tokens: Tokens = 0
    reasoning_tokens: Tokens = 0
    cost_cents: Annotated[Decimal, Field(ge=0, le=10**11)] | None = None
    cost_micros: Micros | None = None
    occurred_at: wire.Moment | None = None


# --- reporting -------------------------------------------------------------------------------


@router.post(
    "/companies/{company}/cost-events",
    response={201: answers.CostEvent},
    summary="Report what a call cost",
)
def report_cost(request: HttpRequest, company: str, body: NewCost) -> HttpResponse:
    """Without a cost it is computed from the price lists; without a price it stays unpriced,
    never 0. An `Idempotency-Key` makes a repetition harmless."""
    caller, now = wire.principal(request), timezone.now()
    found = wire.company(request, company, None)
    if caller.agent_id is not None and caller.agent_id != body.agent_id:
        raise Forbidden("other_agent", "An agent reports its own costs.")
    run_id = caller.run_id or body.heartbeat_run_id
    for model, value, field in (
        (Agent, body.agent_id, "agentId"),
        (Issue, body.issue_id, "issueId"),
        (Project, body.project_id, "projectId"),
        (Goal, body.goal_id, "goalId"),
        (HeartbeatRun, run_id, "heartbeatRunId"),
    ):
        wire.one_of_company(model, found.id, value, field)
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
        follows_work=body.issue_id is None,
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


@router.get("/companies/{company}/costs/summary", response=answers.MonthCosts, summary="This month")
def summary(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    month = replica.answering(
        request, lambda: reports.month(company_id=found.id, now=timezone.now())
    )
    limit = month.limit_micros
    return wire.answer(
        {
            "companyId": found.id,
            "spendCents": wire.cents(month.known_micros),
            "spendMicros": month.known_micros,
            "budgetCents": wire.cents(limit) or 0,
            "budgetMicros": limit,
            "utilizationPercent": format.share(month.spent_micros, limit) if limit else 0,
            "events": month.events,
            "unpricedEvents": month.unpriced_events,
        }
    )


@router.get(
    "/companies/{company}/costs/by-agent",
    response=list[answers.AgentCosts],
    summary="This month by agent",
)
def by_agent(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    lines = replica.answering(
        request, lambda: reports.by_agent(company_id=found.id, now=timezone.now())
    )
    return wire.answer(
        [{"agentId": line.id, "agentName": line.name, **_sums(line)} for line in lines]
    )


@router.get(
    "/companies/{company}/costs/by-agent-model",
    response=list[answers.ModelCosts],
    summary="This month by provider and model",
)
def by_model(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    lines = replica.answering(
        request, lambda: reports.by_model(company_id=found.id, now=timezone.now())
    )
    return wire.answer(
        [{"provider": line.provider, "model": line.name, **_sums(line)} for line in lines]
    )


@router.get(
    "/companies/{company}/costs/by-provider",
    response=list[answers.ProviderCosts],
    summary="This month by provider",
)
def by_provider(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    lines = replica.answering(
        request, lambda: reports.by_model(company_id=found.id, now=timezone.now())
    )
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


@router.get(
    "/companies/{company}/costs/by-biller",
    response=list[answers.BillerCosts],
    summary="This month by who sends the bill",
)
def by_biller(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    lines = replica.answering(
        request, lambda: reports.by_biller(company_id=found.id, now=timezone.now())
    )
    return wire.answer([{"biller": line.name, **_sums(line)} for line in lines])


@router.get(
    "/companies/{company}/costs/window-spend",
    response=list[answers.WindowCosts],
    summary="Today, this month, ever",
)
def window_spend(request: HttpRequest, company: str) -> HttpResponse:
    found, now = wire.company(request, company), timezone.now()
    windows = (Window.DAY, Window.MONTH, Window.LIFETIME)
    sums = replica.answering(
        request,
        lambda: [
            reports.window(
                company_id=found.id, scope=Scope.COMPANY, scope_id=found.id, now=now, window=each
            )
            for each in windows
        ],
    )
    answer = [
        {
            "window": window,
            "costCents": wire.cents(spent.known_micros),
            "costMicros": spent.known_micros,
            "events": spent.events,
            "unpricedEvents": spent.unpriced_events,
        }
        for window, spent in zip(windows, sums, strict=True)
    ]
    return wire.answer(answer)


@router.get(
    "/companies/{company}/costs/by-project",
    response=list[answers.ProjectCosts],
    summary="This month by project",
)
def by_project(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    lines = replica.answering(
        request, lambda: reports.by_project(company_id=found.id, now=timezone.now())
    )
    return wire.answer(
        [{"projectId": line.id, "projectName": line.name, **_sums(line)} for line in lines]
    )


def _sums(line: reports.Line) -> dict[str, Any]:
    return {
        "costCents": wire.cents(line.known_micros),
        "costMicros": line.known_micros,
        "inputTokens": line.input_tokens,
        "cachedInputTokens": line.cached_tokens,
        "outputTokens": line.output_tokens,
        "events": line.events,
        "unpricedEvents": line.unpriced_events,
    }


@router.get(
    "/issues/{issue}/cost-summary", response=answers.IssueCosts, summary="What one issue cost"
)
def issue_cost(request: HttpRequest, issue: str) -> HttpResponse:
    found = find_issue(request, issue)
    line = replica.answering(
        request, lambda: reports.by_issue(company_id=found.company_id, issue_id=found.id)
    )
    runs = HeartbeatRun.objects.filter(issue=found).count()
    return wire.answer({"issueId": found.id, "issueCount": 1, "runCount": runs, **_sums(line)})
