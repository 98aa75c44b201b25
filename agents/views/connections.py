"""Providers: the connections of a company, how they are doing, and the few things to do there."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from agents import connections, provider_health
from agents.connection_form import ConnectionForm
from agents.connection_models import ProviderConnection
from companies import secrets
from companies.errors import NotFound, Refusal
from companies.views.door import PageRequest, page


@page(post="manage")
def providers(request: PageRequest) -> HttpResponse:
    """All connections; a POST makes a new one."""
    names = secrets.names(request.company.id)
    if request.method != "POST":
        return _show(request, form=ConnectionForm(names))
    form = ConnectionForm(names, request.POST)
    if form.is_valid():
        given = dict(form.cleaned_data)
        try:
            row = connections.create(
                company=request.company,
                kind=given.pop("kind"),
                actor=request.principal.actor,
                now=request.now,
                **given,
            )
        except Refusal as refusal:
            form.complain(refusal)
        else:
            return _done(request, row, f"{row.name} is ready; agents can name it now.")
    return _show(request, form=form)


@page(post="manage")
def provider(request: PageRequest, connection_id: uuid.UUID) -> HttpResponse:
    """One connection's settings."""
    row = _find(request, connection_id)
    names = secrets.names(request.company.id)
    form = ConnectionForm(names, request.POST or None, row=row)
    if request.method == "POST" and form.is_valid():
        try:
            row = connections.update(
                row=row, changes=form.cleaned_data, actor=request.principal.actor, now=request.now
            )
        except Refusal as refusal:
            form.complain(refusal)
        else:
            return _done(request, row, "Saved.")
    status = 422 if form.errors else 200
    context = {"section": "settings", "row": row, "form": form}
    return render(request, "agents/connection.html", context, status=status)


@require_POST
@page("manage")
def switch(request: PageRequest, connection_id: uuid.UUID) -> HttpResponse:
    """Off or on again."""
    row = _find(request, connection_id)
    off = row.disabled_at is None
    verb = connections.disable if off else connections.enable
    row = verb(row=row, actor=request.principal.actor, now=request.now)
    return _done(request, row, f"{row.name} is switched {'off' if off else 'on'}.")


@require_POST
@page("operate")
def release(request: PageRequest, connection_id: uuid.UUID) -> HttpResponse:
    """It works again: whatever waited may start."""
    row = _find(request, connection_id)
    row = connections.reset(row=row, actor=request.principal.actor, now=request.now)
    return _done(request, row, f"{row.name} is asked again.")


@require_POST
@page("manage")
def check(request: PageRequest, connection_id: uuid.UUID) -> HttpResponse:
    """Really ask the provider, and explain line by line."""
    row = _find(request, connection_id)
    model = request.POST.get("model", "").replace("\x00", "").strip()[:200]
    found = connections.check(
        row=row, model=model, user_id=request.principal.user_id, now=request.now
    )
    if request.htmx:
        return render(request, "agents/_checks.html", {"checks": found})
    form = ConnectionForm(secrets.names(request.company.id), row=row)
    context = {"section": "settings", "row": row, "form": form, "checks": found}
    return render(request, "agents/connection.html", context)


@require_POST
@page("manage")
def delete(request: PageRequest, connection_id: uuid.UUID) -> HttpResponse:
    row = _find(request, connection_id)
    connections.delete(row=row, actor=request.principal.actor, now=request.now)
    messages.success(request, f"{row.name} is forgotten.")
    return redirect(f"{request.base}/settings/connections/")


def _show(request: PageRequest, *, form: ConnectionForm) -> HttpResponse:
    found = provider_health.of_company(company_id=request.company.id)
    context: dict[str, Any] = {"section": "settings", "connections": found, "form": form}
    if request.htmx and request.htmx.target == "connections":
        return render(request, "agents/_connections.html", context)
    status = 422 if form.errors else 200
    return render(request, "agents/connections.html", context, status=status)


def _find(request: PageRequest, connection_id: uuid.UUID) -> ProviderConnection:
    rows = ProviderConnection.objects.for_company(request.company.id)
    row: ProviderConnection | None = rows.filter(pk=connection_id).first()
    if row is None:
        raise NotFound()
    return row


def _done(request: PageRequest, row: ProviderConnection, words: str) -> HttpResponse:
    messages.success(request, words)
    return redirect(f"{request.base}/settings/connections/#c-{row.pk}")
