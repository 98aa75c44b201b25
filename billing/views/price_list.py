"""Prices: what the company says its models cost, and setting one."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from billing import prices, tables
from billing.forms import PriceForm
from billing.models import ModelPrice
from companies.errors import Refusal
from companies.views.door import PageRequest, page

SHOWN = 200
FOUND = 40


@page()
def price_list(request: PageRequest) -> HttpResponse:
    return _show(request, PriceForm(), status=200)


@require_POST
@page("manage")
def set_price(request: PageRequest) -> HttpResponse:
    form = PriceForm(request.POST)
    if form.is_valid():
        try:
            prices.set_price(
                company=request.company,
                model=form.cleaned_data["model"],
                provider=form.cleaned_data["provider"],
                input_pico=form.pico("per_input") or 0,
                output_pico=form.pico("per_output") or 0,
                cache_read_pico=form.pico("per_cache_read"),
                cache_write_pico=form.pico("per_cache_write"),
                effective_at=form.effective_at,
                actor=request.principal.actor,
                now=request.now,
            )
        except Refusal as refusal:
            form.add_error(refusal.field if refusal.field in form.fields else None, refusal.message)
        else:
            messages.success(request, "The price holds for what is booked from now on.")
            return redirect(f"{request.base}/costs/prices")
    return _show(request, form, status=422)


@page()
def table(request: PageRequest) -> HttpResponse:
    """The company's own prices as CSV, in dollars a million tokens."""
    rows = ModelPrice.objects.for_company(request.company.id)
    return tables.answer(
        "prices",
        ["model", "provider", "input", "output", "cache_read", "cache_write", "since"],
        (
            (
                row.model,
                row.provider,
                tables.usd(row.input_pico),
                tables.usd(row.output_pico),
                tables.usd(row.cache_read_pico),
                tables.usd(row.cache_write_pico),
                row.effective_at,
            )
            for row in rows.order_by("model", "provider", "-effective_at", "id")
        ),
    )


def _show(request: PageRequest, form: PriceForm, *, status: int) -> HttpResponse:
    rows = ModelPrice.objects.for_company(request.company.id)
    query = request.GET.get("q", "").strip()[:120]
    found = []
    if query:
        found = prices.catalogue(
            company_id=request.company.id, now=request.now, query=query, limit=FOUND
        )
    context = {
        "section": "costs",
        "rows": rows.order_by("model", "provider", "-effective_at", "id")[:SHOWN],
        "form": form,
        "query": query,
        "found": [_rates(each) for each in found],
        "bundle": prices.bundle_info(),
    }
    return render(request, "billing/prices.html", context, status=status)


def _rates(found: prices.Rates) -> dict[str, object]:
    """A price as the page shows it: the first tier, and whether there are more."""
    kinds: tuple[prices.Kind, ...] = ("input", "output", "cache_read", "cache_write")
    return {
        "rates": found,
        "picos": [found.rate(kind) for kind in kinds],
        "tiered": any(len(tiers) > 1 for tiers in found.pico.values()),
    }
