"""Costs: the month with its forecast, where it went, budgets and what they ask of people; setting
and removing a budget."""

from __future__ import annotations

import calendar
import uuid
from datetime import UTC
from itertools import accumulate
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from billing import audit, budgets, forecast, incidents, replica, reports, tables
from billing.forms import BudgetForm
from billing.models import Budget
from companies import charts, format
from companies.errors import NotFound, Refusal
from companies.models import Company
from companies.views.door import PageRequest, page
from issues import choices

CUTS = {
    "agent": reports.by_agent,
    "model": reports.by_model,
    "project": reports.by_project,
    "provider": reports.by_provider,
    "goal": reports.by_goal,
    "billing_code": reports.by_billing_code,
}


@page()
def costs(request: PageRequest) -> HttpResponse:
    return _show(request, None)


def _show(request: PageRequest, form: BudgetForm | None) -> HttpResponse:
    cut = request.GET.get("by", "agent")
    cut = cut if cut in CUTS else "agent"
    context, source = replica.reading(request, lambda: _read(request, cut))
    context |= {"section": "costs", "cut": cut, "cuts": list(CUTS), "source": source}
    if request.htmx and request.htmx.target == "costs":
        return render(request, "billing/_costs.html", context)
    context["form"] = form or BudgetForm(_whose(request.company))
    bad = bool(form and form.errors)
    return render(request, "billing/costs.html", context, status=422 if bad else 200)


def _read(request: PageRequest, cut: str) -> dict[str, Any]:
    """Everything that the page shows, read to its end."""
    company, now = request.company, request.now
    limits = reports.limits(company=company, now=now)
    names = {limit.budget.id: limit.name for limit in limits}
    return {
        "lines": CUTS[cut](company_id=company.id, now=now),
        "limits": [
            (limit, limit.spent_micros / (limit.budget.limit_micros or 1), f"{limit.percent} %")
            for limit in limits
        ],
        "incidents": [
            (row, names.get(row.budget_id, row.budget.scope))
            for row in incidents.unresolved(company_id=company.id)
        ],
        "unknown": reports.unknown(company_id=company.id),
        "books": audit.last(),
        **month(company, now),
    }


def month(company: Company, now: Any) -> dict[str, Any]:
    """The month so far: sums, running totals by day, the forecast at this pace."""
    today = now.astimezone(UTC)
    days = calendar.monthrange(today.year, today.month)[1]
    summary, series = reports.month_by_day(
        company_id=company.id,
        now=now,
        days=forecast.UNUSUAL_DAYS + forecast.WEEKDAYS_AFTER_DAYS,
    )
    daily = series[-today.day :]
    so_far = list(accumulate(spent for _, spent in daily))
    elapsed = today.day - 1 + (today.hour * 60 + today.minute) / 1_440
    ahead = forecast.month_end_of(series, summary)
    if ahead is not None:
        expected: int | None = ahead.expected_micros
    else:  # a few hours into a month any pace is noise
        expected = int(summary.spent_micros / elapsed * days) if elapsed >= 1 else None
    limit = summary.limit_micros
    return {
        "summary": summary,
        "forecast": expected,
        "ahead": ahead,
        "percent": format.share(summary.spent_micros, limit) if limit else None,
        "fraction": summary.spent_micros / limit if limit else 0.0,
        "daily": daily,
        "unusual": forecast.unusual_days_of(series),
        "burn_up": charts.burn_up(so_far, days=days, limit=limit, forecast=expected),
        "days_left": days - today.day,
        "first_day": today.date().replace(day=1),
        "last_day": today.date().replace(day=days),
    }


@require_POST
@page("manage")
def set_budget(request: PageRequest) -> HttpResponse:
    form = BudgetForm(_whose(request.company), request.POST)
    if form.is_valid():
        scope, scope_id = form.scope
        try:
            budgets.set_limit(
                company=request.company,
                scope=scope,
                scope_id=scope_id,
                limit_micros=form.limit_micros,
                window=form.cleaned_data["window"],
                warn_percent=form.cleaned_data["warn_percent"],
                is_hard=form.cleaned_data["is_hard"],
                actor=request.principal.actor,
                now=request.now,
                **form.optional,
            )
        except Refusal as refusal:
            form.add_error(refusal.field if refusal.field in form.fields else None, refusal.message)
        else:
            messages.success(request, "The budget holds from now on.")
            return redirect(f"{request.base}/costs/#budgets")
    return _show(request, form)


@require_POST
@page("manage")
def remove_budget(request: PageRequest, budget_id: uuid.UUID) -> HttpResponse:
    budget = (
        Budget.objects.for_company(request.company.id)
        .select_related("company")
        .filter(id=budget_id)
        .first()
    )
    if budget is None:
        raise NotFound()
    budgets.remove_limit(budget=budget, actor=request.principal.actor, now=request.now)
    messages.success(request, "The budget is gone; what it held goes on.")
    return redirect(f"{request.base}/costs/#budgets")


@page()
def table(request: PageRequest) -> HttpResponse:
    """The breakdown as CSV, exact to the micro-dollar."""
    cut = request.GET.get("by", "agent")
    cut = cut if cut in CUTS else "agent"
    lines, _ = replica.reading(
        request, lambda: CUTS[cut](company_id=request.company.id, now=request.now)
    )
    return tables.answer(
        f"costs-{request.now.astimezone(UTC):%Y-%m}-by-{cut}",
        [cut, "provider", "spent_usd", "events", "unpriced", "input_tokens", "output_tokens"],
        (
            (
                line.name,
                line.provider,
                tables.usd(line.known_micros),
                line.events,
                line.unpriced_events,
                line.input_tokens,
                line.output_tokens,
            )
            for line in lines
        ),
    )


def _whose(company: Company) -> list[object]:
    given = choices.load(company.id)
    return [
        (f"company:{company.id}", company.name),
        ("Agents", [(f"agent:{key}", name) for key, name in given.agents]),
        ("Projects", [(f"project:{key}", name) for key, name in given.projects]),
    ]
