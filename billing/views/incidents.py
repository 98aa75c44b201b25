"""What budgets ask of people: acknowledge, raise and resume, or keep paused."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from billing import budgets, incidents
from billing.forms import RaiseForm
from billing.models import BudgetIncident
from companies.errors import Invalid, NotFound
from companies.views.door import PageRequest, page


@require_POST
@page("operate")
def acknowledge(request: PageRequest, incident_id: uuid.UUID) -> HttpResponse:
    incidents.acknowledge(
        incident=_find(request, incident_id), actor=request.principal.actor, now=request.now
    )
    return _done(request, "Noted. The limit stays as it is.")


@require_POST
@page("manage")
def keep(request: PageRequest, incident_id: uuid.UUID) -> HttpResponse:
    incidents.keep_paused(
        incident=_find(request, incident_id), actor=request.principal.actor, now=request.now
    )
    return _done(request, "The agents wait for the next period.")


@require_POST
@page("manage")
def raise_limit(request: PageRequest, incident_id: uuid.UUID) -> HttpResponse:
    incident, form = _find(request, incident_id), RaiseForm(request.POST)
    if not form.is_valid():
        raise Invalid("limit_invalid", "The new limit is an amount in dollars.", field="limit")
    budgets.raise_and_resume(
        incident=incident, limit_micros=form.micros, actor=request.principal.actor, now=request.now
    )
    return _done(request, "The limit is raised; whom it held goes on.")


def _find(request: PageRequest, incident_id: uuid.UUID) -> BudgetIncident:
    mine = BudgetIncident.objects.for_company(request.company.id).select_related("budget")
    found = mine.filter(id=incident_id).first()
    if found is None:
        raise NotFound()
    return found


def _done(request: PageRequest, text: str) -> HttpResponse:
    messages.success(request, text)
    return redirect(f"{request.base}/costs/#incidents")
