"""Prices: what the company says its models cost, and setting one."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from billing import prices
from billing.forms import PriceForm
from billing.models import ModelPrice
from companies.errors import Refusal
from companies.views.door import PageRequest, page

SHOWN = 200


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
                input_pico=form.pico("per_input"),
                output_pico=form.pico("per_output"),
                actor=request.principal.actor,
                now=request.now,
            )
        except Refusal as refusal:
            form.add_error(refusal.field if refusal.field in form.fields else None, refusal.message)
        else:
            messages.success(request, "The price holds for calls from now on.")
            return redirect(f"{request.base}/costs/prices")
    return _show(request, form, status=422)


def _show(request: PageRequest, form: PriceForm, *, status: int) -> HttpResponse:
    rows = ModelPrice.objects.for_company(request.company.id)
    context = {
        "section": "costs",
        "rows": rows.order_by("model", "provider", "-effective_at", "id")[:SHOWN],
        "form": form,
    }
    return render(request, "billing/prices.html", context, status=status)
