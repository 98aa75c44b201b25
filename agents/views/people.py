"""The roster, the org chart and hiring."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from agents import adapters, config_form, directory, roster, trial
from agents.adapters.base import Adapter
from agents.forms import AgentForm
from companies import diagrams, tables
from companies.errors import Refusal
from companies.views.door import PageRequest, page


@page()
def agents(request: PageRequest) -> HttpResponse:
    """Everybody at a glance, or the org chart with `?view=org`."""
    found = directory.people(company_id=request.company.id, now=request.now)
    view = "org" if request.GET.get("view") == "org" else "list"
    context: dict[str, Any] = {"section": "agents", "people": found, "view": view}
    if view == "org":
        context["tops"] = tops = directory.tree(found)
        nodes = [_node(person, request.base) for person in tops]
        context["chart"] = diagrams.tree(nodes, "Who reports to whom")
    if request.htmx and request.htmx.target == "roster":
        return render(request, "agents/_roster.html", context)
    return render(request, "agents/roster.html", context)


@page()
def table(request: PageRequest) -> StreamingHttpResponse:
    """The roster as CSV."""
    found = directory.people(company_id=request.company.id, now=request.now)
    names = {person.agent.id: person.agent.name for person in found}
    head = (
        *("agent", "title", "role", "reports_to", "works_with", "status", "running", "queued"),
        *("succeeded_14_days", "failed_14_days", "next_wake"),
    )
    lines = (
        (
            *(one.agent.name, one.agent.title, one.agent.role),
            names.get(one.agent.reports_to_id, "") if one.agent.reports_to_id else "",
            *(one.agent.adapter_type, one.status, one.running, one.queued),
            *(one.succeeded, one.failed, one.agent.next_beat_at),
        )
        for one in found
    )
    return tables.respond("agents.csv", head, lines)


def _node(person: directory.Person, base: str) -> diagrams.Node:
    agent = person.agent
    return diagrams.Node(
        name=agent.name,
        title=person.job or person.tool or person.adapter,
        status=person.status,
        href=f"{base}/agents/{agent.slug}/",
        below=[_node(one, base) for one in person.reports],
    )


@page("operate")
def hire(request: PageRequest) -> HttpResponse:
    """First the kind of adapter, then the agent and its typed configuration."""
    kind = request.POST.get("adapter_type") or request.GET.get("adapter", "")
    if not kind:
        return render(
            request, "agents/hire_kind.html", {"section": "agents", "adapters": adapters.all()}
        )
    adapter = _adapter(kind)
    managers = directory.managers(request.company.id)
    form = AgentForm(managers, request.POST or None, initial={"heartbeat_enabled": False})
    config = config_form.make(adapter, company_id=request.company.id, data=request.POST or None)
    if request.method == "POST" and form.is_valid() & config.is_valid():
        try:
            agent = roster.hire(
                company=request.company,
                actor=request.principal.actor,
                now=request.now,
                adapter_type=adapter.type,
                adapter_config=config.config(),
                **form.fields_of_agent(request.company.id),
            )
        except Refusal as refusal:
            complain(form, config, refusal)
        else:
            messages.success(request, f"{agent.name} works here now.")
            return redirect(f"{request.base}/agents/{agent.slug}/")
    return render(
        request,
        "agents/hire.html",
        {"section": "agents", "form": form, "config": config, "adapter": adapter},
        status=422 if form.errors or config.errors else 200,
    )


@require_POST
@page("operate")
def test_configuration(request: PageRequest) -> HttpResponse:
    """Call out with what the form says now, and explain line by line."""
    adapter = _adapter(request.POST.get("adapter_type", ""))
    config = config_form.make(adapter, company_id=request.company.id, data=request.POST)
    context: dict[str, Any] = {"config": config}
    if config.is_valid():
        try:
            context["checks"] = trial.run(
                company_id=request.company.id,
                adapter_type=adapter.type,
                config=config.config(),
                user_id=request.principal.user_id,
                now=request.now,
            )
        except Refusal as refusal:
            config.complain(refusal.details.get("errors") or {"": [refusal.message]})
    return render(request, "agents/_checks.html", context)


def complain(form: AgentForm, config: config_form.ConfigForm, refusal: Refusal) -> None:
    """Show a refusal where it belongs: at the agent's field or the configuration's."""
    if refusal.field == "adapter_config":
        config.complain(refusal.details.get("errors") or {"": [refusal.message]})
    else:
        form.add_error(refusal.field if refusal.field in form.fields else None, refusal.message)


def _adapter(kind: str) -> Adapter:
    try:
        return adapters.get(kind)
    except adapters.UnknownAdapter:
        raise Http404("There is no such adapter.") from None
