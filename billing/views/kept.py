"""Money kept aside: for calls under way, and for lost runs that wait for a receipt or a person."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from billing import decisions, reports, reservations, tables
from billing.forms import CostForm
from billing.models import Reservation
from companies.errors import Invalid, NotFound
from companies.views.door import PageRequest, page

SHOWN = 200


@page()
def kept(request: PageRequest) -> HttpResponse:
    rows = reports.kept_aside(company_id=request.company.id, limit=SHOWN)
    context = {
        "section": "costs",
        "rows": [(row, row.granted_at + reservations.OLDEST) for row in rows],
        "total": sum(row.open_micros for row in rows),
        "is_cut": len(rows) == SHOWN,
    }
    return render(request, "billing/kept.html", context)


@page()
def table(request: PageRequest) -> HttpResponse:
    rows = reports.kept_aside(company_id=request.company.id, limit=10_000)
    return tables.answer(
        "kept-aside",
        ["granted_at", "state", "agent", "model", "kept_usd", "granted_usd", "run"],
        (
            (
                row.granted_at,
                row.state,
                row.agent.name,
                row.model,
                tables.usd(row.open_micros),
                tables.usd(row.granted_micros),
                row.run_id,
            )
            for row in rows
        ),
    )


@require_POST
@page("operate")
def release(request: PageRequest, reservation_id: uuid.UUID) -> HttpResponse:
    decisions.release(
        reservation=_find(request, reservation_id), actor=request.principal.actor, now=request.now
    )
    messages.success(request, "Released: nothing was spent there.")
    return redirect(f"{request.base}/costs/kept")


@require_POST
@page("operate")
def book(request: PageRequest, reservation_id: uuid.UUID) -> HttpResponse:
    reservation, form = _find(request, reservation_id), CostForm(request.POST)
    if not form.is_valid():
        raise Invalid("cost_invalid", "What it cost is an amount in dollars.", field="cost")
    decisions.book(
        reservation=reservation,
        cost_micros=form.micros,
        actor=request.principal.actor,
        now=request.now,
    )
    messages.success(request, "Booked; what was kept beyond it is free again.")
    return redirect(f"{request.base}/costs/kept")


def _find(request: PageRequest, reservation_id: uuid.UUID) -> Reservation:
    found = Reservation.objects.for_company(request.company.id).filter(id=reservation_id).first()
    if found is None:
        raise NotFound()
    return found
