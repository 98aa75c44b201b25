"""One agent: overview, runs, issues, configuration, keys; pause, resume, wake, terminate."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from agents import (
    adapters,
    agent_keys,
    attempts,
    config_form,
    directory,
    outcomes,
    roster,
    runs,
    savings,
)
from agents.forms import AgentForm
from agents.models import Agent, AgentKey, HeartbeatRun, Hold
from agents.views.people import complain
from companies.errors import Conflict, Refusal
from companies.views.door import PageRequest, back, page


def frame(request: PageRequest, slug: str, tab: str) -> dict[str, Any]:
    """What the head of every tab shows."""
    agent = directory.find(company_id=request.company.id, slug=slug)
    holds = list(Hold.objects.filter(agent=agent))
    return {
        "section": "agents",
        "tab": tab,
        "agent": agent,
        "holds": holds,
        "status": roster.status_of(agent, agent.running, holds),  # type: ignore[attr-defined]
        "paused": any(hold.reason == Hold.Reason.OPERATOR for hold in holds),
        "adapter_label": directory.adapter_label(agent.adapter_type),
        "error": outcomes.of(agent.error_code) if agent.error_code else None,
        "advice": attempts.advice(agent) if agent.error_code else "",
    }


@page()
def overview(request: PageRequest, slug: str) -> HttpResponse:
    context = frame(request, slug, "overview")
    context["runs"] = directory.run_rows(
        company_id=request.company.id, agent_id=context["agent"].id, limit=8
    )
    agent = context["agent"]
    context["isolation"] = directory.isolation_of(agent.adapter_type, agent.adapter_config)
    context["savings"] = savings.of_agent(agent=context["agent"], now=request.now)
    return render(request, "agents/overview.html", context)


@page()
def agent_runs(request: PageRequest, slug: str) -> HttpResponse:
    context = frame(request, slug, "runs")
    before = _uuid(request.GET.get("before", ""))
    found = directory.run_rows(
        company_id=request.company.id,
        agent_id=context["agent"].id,
        before=before,
        limit=directory.RUNS + 1,
    )
    shown = found[: directory.RUNS]
    context |= {
        "runs": shown,
        "next": shown[-1].id if len(found) > directory.RUNS else None,
        "first": before is None,
    }
    return render(request, "agents/runs.html", context)


@page("view", post="operate")
def configuration(request: PageRequest, slug: str) -> HttpResponse:
    """The agent and its adapter's typed configuration; what is stored is shown, secrets by name."""
    context = frame(request, slug, "configuration")
    agent: Agent = context["agent"]
    kind = request.POST.get("adapter_type") or request.GET.get("adapter") or agent.adapter_type
    try:
        adapter = adapters.get(kind)
    except adapters.UnknownAdapter:
        return render(request, "agents/configuration.html", context | {"unknown": kind})
    form = AgentForm(
        directory.managers(request.company.id, without=agent.id),
        request.POST or None,
        initial=AgentForm.of(agent),
    )
    config = config_form.make(
        adapter,
        company_id=request.company.id,
        data=request.POST or None,
        config=agent.adapter_config if kind == agent.adapter_type else None,
    )
    if request.method == "POST" and form.is_valid() & config.is_valid():
        version = request.POST.get("version", "")
        try:
            roster.update(
                agent=agent,
                changes={
                    **form.fields_of_agent(request.company.id),
                    "adapter_type": kind,
                    "adapter_config": config.config(),
                },
                actor=request.principal.actor,
                now=request.now,
                if_version=int(version) if version.isascii() and version.isdigit() else None,
            )
        except Refusal as refusal:
            complain(form, config, refusal)
        else:
            messages.success(request, "Saved. The next run uses it.")
            return redirect(f"{request.base}/agents/{agent.slug}/configuration")
    context |= {"form": form, "config": config, "adapter": adapter, "adapters": adapters.all()}
    bad = form.errors or config.errors
    return render(request, "agents/configuration.html", context, status=422 if bad else 200)


@page("manage")
def keys(request: PageRequest, slug: str) -> HttpResponse:
    """The agent's long-lived keys. A new one is shown once, on the answer to the form."""
    context = frame(request, slug, "keys")
    agent: Agent = context["agent"]
    if request.method == "POST":
        try:
            if request.POST.get("revoke"):
                key_id = _uuid(request.POST["revoke"]) or uuid.UUID(int=0)
                actor = request.principal.actor
                agent_keys.revoke(agent=agent, key_id=key_id, actor=actor, now=request.now)
                messages.success(request, "The key is worthless now.")
                return redirect(f"{request.base}/agents/{agent.slug}/keys")
            _, context["token"] = agent_keys.create(
                agent=agent,
                name=request.POST.get("name", ""),
                actor=request.principal.actor,
                now=request.now,
            )
        except Refusal as refusal:
            context["problem"] = refusal.message
    context["keys"] = AgentKey.objects.filter(agent=agent).order_by("-created_at", "-id")
    return render(request, "agents/keys.html", context)


@require_POST
@page("operate")
def pause(request: PageRequest, slug: str) -> HttpResponse:
    agent = directory.find(company_id=request.company.id, slug=slug)
    roster.pause(
        agent=agent,
        note=request.POST.get("note", ""),
        stop_running=request.POST.get("stop") == "1",
        actor=request.principal.actor,
        user=request.user,
        now=request.now,
    )
    messages.success(request, f"{agent.name} is paused: nothing new starts.")
    return back(request)


@require_POST
@page("operate")
def resume(request: PageRequest, slug: str) -> HttpResponse:
    agent = directory.find(company_id=request.company.id, slug=slug)
    roster.resume(agent=agent, actor=request.principal.actor, now=request.now)
    messages.success(request, f"{agent.name} works again.")
    return back(request)


@require_POST
@page("operate")
def wake(request: PageRequest, slug: str) -> HttpResponse:
    """One heartbeat now, about no issue in particular."""
    agent = directory.find(company_id=request.company.id, slug=slug)
    queued = runs.wake(
        agent=agent,
        reason=runs.MANUAL,
        source=HeartbeatRun.Source.ON_DEMAND,
        actor=request.principal.actor,
        now=request.now,
    )
    if queued.refused:
        raise Conflict(queued.refused, f"{agent.name} cannot be woken now.")
    messages.success(request, f"{agent.name} will start shortly.")
    return back(request)


@require_POST
@page("operate")
def clear_error(request: PageRequest, slug: str) -> HttpResponse:
    agent = directory.find(company_id=request.company.id, slug=slug)
    roster.clear_error(agent=agent, actor=request.principal.actor, now=request.now)
    return back(request)


@require_POST
@page("manage")
def terminate(request: PageRequest, slug: str) -> HttpResponse:
    agent = directory.find(company_id=request.company.id, slug=slug)
    roster.terminate(agent=agent, actor=request.principal.actor, now=request.now)
    messages.success(request, f"{agent.name} no longer works here.")
    return redirect(f"{request.base}/agents/")


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
