"""How agents are set up, over the API: history and the way back, adapters, trying it out."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents import adapters, revisions, roster, shapes, trial
from agents.api import find
from agents.models import Agent, HeartbeatRun
from agents.revision_models import AgentRevision
from companies import wire
from companies.errors import NotFound
from paperclip import agent_shapes
from paperclip.agent_api import Nothing

router = Router()


class Trial(wire.Body):
    adapter_config: dict[str, Any] = Field(default_factory=dict)


# --- history ---------------------------------------------------------------------------------


@router.get("/agents/{agent}/config-revisions", summary="How the set-up changed, newest first")
def list_revisions(
    request: HttpRequest,
    agent: str,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = find(request, agent, "operate")
    return wire.page(
        request,
        AgentRevision.objects.filter(agent=found),
        keys=("-created_at", "-id"),
        shape=lambda page: [_revision(row) for row in page],
        limit=limit,
        cursor=cursor,
    )


@router.get("/agents/{agent}/config-revisions/{revision_id}", summary="One change")
def get_revision(request: HttpRequest, agent: str, revision_id: uuid.UUID) -> HttpResponse:
    return wire.answer(_revision(_find(find(request, agent, "operate"), revision_id)))


@router.post(
    "/agents/{agent}/config-revisions/{revision_id}/rollback",
    summary="Set the agent up as it was after this change",
)
def roll_back(
    request: HttpRequest, agent: str, revision_id: uuid.UUID, body: Nothing | None = None
) -> HttpResponse:
    """Writes a change of its own; nothing is lost."""
    caller, now = wire.principal(request), timezone.now()
    found = find(request, agent, "operate")
    revision = _find(found, revision_id)
    row = roster.update(
        agent=found,
        changes=revisions.changes_to(revision),
        rolled_back_from=revision.pk,
        actor=caller.actor,
        now=now,
    )
    return wire.answer(agent_shapes.agent(row, caller=caller, now=now), version=row.version)


def _find(agent: Agent, revision_id: uuid.UUID) -> AgentRevision:
    found = AgentRevision.objects.filter(agent=agent, id=revision_id).first()
    if found is None:
        raise NotFound("There is no such revision.")
    return found


def _revision(row: AgentRevision) -> dict[str, Any]:
    source = "rollback" if row.rolled_back_from_id else "patch"
    return {
        "id": row.id,
        "companyId": row.company_id,
        "agentId": row.agent_id,
        "createdByAgentId": row.created_by_agent_id,
        "createdByUserId": row.created_by_user_id,
        "source": source,
        "rolledBackFromRevisionId": row.rolled_back_from_id,
        "changedKeys": [CAMEL.get(name, name) for name in row.changed],
        "beforeConfig": _config(row.before),
        "afterConfig": _config(row.after),
        "createdAt": row.created_at,
    }


CAMEL = {
    "adapter_type": "adapterType",
    "adapter_config": "adapterConfig",
    "reports_to": "reportsTo",
    "on_finish": "onFinish",
    "can_hire": "permissions",
    "heartbeat_enabled": "runtimeConfig",
    "interval_seconds": "runtimeConfig",
    "cron": "runtimeConfig",
    "timezone": "runtimeConfig",
    "wake_on_demand": "runtimeConfig",
    "max_concurrent_runs": "runtimeConfig",
    "max_daily_runs": "runtimeConfig",
    "max_daily_cost_micros": "runtimeConfig",
}


def _config(stored: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": stored.get("name"),
        "role": stored.get("role"),
        "title": stored.get("title") or None,
        "icon": stored.get("icon") or None,
        "reportsTo": stored.get("reports_to"),
        "capabilities": stored.get("capabilities") or None,
        "adapterType": stored.get("adapter_type"),
        "adapterConfig": agent_shapes.masked(stored.get("adapter_config") or {}),
        "instructions": stored.get("instructions") or None,
        "onFinish": stored.get("on_finish"),
        "permissions": {"canCreateAgents": stored.get("can_hire", False)},
        "runtimeConfig": {
            "heartbeat": {
                "enabled": stored.get("heartbeat_enabled"),
                "intervalSec": stored.get("interval_seconds"),
                "cron": stored.get("cron") or None,
                "timezone": stored.get("timezone"),
                "wakeOnDemand": stored.get("wake_on_demand"),
                "maxConcurrentRuns": stored.get("max_concurrent_runs"),
                "maxDailyRuns": stored.get("max_daily_runs"),
                "maxDailyCostCents": wire.cents(stored.get("max_daily_cost_micros")),
            }
        },
    }


@router.get("/agents/{agent}/configuration", summary="How an agent is set up")
def get_configuration(request: HttpRequest, agent: str) -> HttpResponse:
    found = find(request, agent, "operate")
    return wire.answer(_summary(found), version=found.version)


@router.get("/companies/{company}/agent-configurations", summary="How all agents are set up")
def list_configurations(
    request: HttpRequest,
    company: str,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = wire.company(request, company, "operate")
    rows = Agent.objects.for_company(found.id).exclude(status=Agent.Status.TERMINATED)
    return wire.page(
        request,
        rows,
        keys=("created_at", "id"),
        shape=lambda page: [_summary(row) for row in page],
        limit=limit,
        cursor=cursor,
    )


def _summary(row: Agent) -> dict[str, Any]:
    return {
        "id": row.id,
        "companyId": row.company_id,
        "urlKey": row.slug,
        "status": row.status,
        **_config(revisions.snapshot(row)),
        "updatedAt": row.updated_at,
    }


# --- state -----------------------------------------------------------------------------------


@router.get("/agents/{agent}/runtime-state", summary="What the last runs left behind")
def runtime_state(request: HttpRequest, agent: str) -> HttpResponse:
    found = find(request, agent)
    runs = HeartbeatRun.objects.filter(agent=found).order_by("-created_at", "-id")
    last = runs.exclude(started_at=None).first()
    session = last.session if last is not None and isinstance(last.session, dict) else {}
    return wire.answer(
        {
            "agentId": found.id,
            "companyId": found.company_id,
            "adapterType": found.adapter_type,
            "sessionId": session.get("id"),
            "sessionDisplayId": session.get("id"),
            "lastRunId": last.id if last else None,
            "lastRunStatus": shapes.run_status(last, timezone.now()) if last else None,
            "lastError": found.error_code or None,
            "updatedAt": found.updated_at,
        }
    )


# --- adapters --------------------------------------------------------------------------------


@router.get("/companies/{company}/adapters", summary="What can carry an agent")
def list_adapters(request: HttpRequest, company: str) -> HttpResponse:
    """With the JSON Schema of each configuration."""
    wire.company(request, company)
    return wire.answer(
        [
            {
                "type": one.type,
                "label": one.label,
                "description": one.description,
                "simulated": one.simulated,
                "usesTools": one.uses_tools,
                "configSchema": one.Config.model_json_schema(by_alias=True),
            }
            for one in adapters.all()
        ]
    )


@router.post(
    "/companies/{company}/adapters/{adapter}/test-environment",
    summary="Try a configuration: really calls out",
)
def test_environment(
    request: HttpRequest,
    company: str,
    adapter: Annotated[str, Field(max_length=40)],
    body: Trial,
) -> HttpResponse:
    found = wire.company(request, company, "operate")
    now = timezone.now()
    if adapter not in {one.type for one in adapters.all()} | set(adapters.ALIASES):
        raise NotFound("There is no such adapter.")
    checks = trial.run(
        company_id=found.id, adapter_type=adapter, config=body.adapter_config, now=now
    )
    return wire.answer(
        {
            "adapterType": adapter,
            "status": "pass" if all(check.ok for check in checks) else "fail",
            "checks": [
                {
                    "code": check.name,
                    "level": "info" if check.ok else "error",
                    "message": check.message,
                    "hint": check.hint or None,
                }
                for check in checks
            ],
            "testedAt": now,
        }
    )
