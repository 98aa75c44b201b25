"""How agents are set up, over the API: history and the way back, adapters, trying it out."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents import adapters, revisions, roster, sessions, shapes, trial
from agents.api import find
from agents.masking import masked
from agents.models import Agent, HeartbeatRun
from agents.revision_models import AgentRevision
from billing import prices
from companies import wire
from companies.errors import NotFound
from issues.api import find as find_issue
from paperclip import agent_shapes, answers
from paperclip.agent_api import Nothing

router = Router(by_alias=True)


class SessionReset(wire.Body):
    task_key: Annotated[wire.Text, Field(min_length=1, max_length=60)] | None = None


class Trial(wire.Body):
    adapter_config: dict[str, Any] = Field(default_factory=dict)


# --- history ---------------------------------------------------------------------------------


@router.get(
    "/agents/{agent}/config-revisions",
    response=list[answers.ConfigRevision],
    summary="How the set-up changed, newest first",
)
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


@router.get(
    "/agents/{agent}/config-revisions/{revision_id}",
    response=answers.ConfigRevision,
    summary="One change",
)
def get_revision(request: HttpRequest, agent: str, revision_id: uuid.UUID) -> HttpResponse:
    return wire.answer(_revision(_find(find(request, agent, "operate"), revision_id)))


@router.post(
    "/agents/{agent}/config-revisions/{revision_id}/rollback",
    response=answers.Agent,
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
    before, after = _config(row.before), _config(row.after)
    return {
        "id": row.id,
        "companyId": row.company_id,
        "agentId": row.agent_id,
        "createdByAgentId": row.created_by_agent_id,
        "createdByUserId": row.created_by_user_id,
        "source": source,
        "rolledBackFromRevisionId": row.rolled_back_from_id,
        "changedKeys": [CAMEL.get(name, name) for name in row.changed],
        "changes": _changes(before, after),
        "beforeConfig": before,
        "afterConfig": after,
        "createdAt": row.created_at,
    }


def _changes(before: Any, after: Any, path: str = "") -> list[dict[str, Any]]:
    """The places at which two set-ups differ. What is masked in both looks the same."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return [] if before == after else [{"path": path, "before": before, "after": after}]
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys([*before, *after]):
        below = f"{path}.{name}" if path else name
        found.extend(_changes(before.get(name), after.get(name), below))
    return found


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
    "loop_limits": "runtimeConfig",
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
        "adapterConfig": masked(stored.get("adapter_config") or {}),
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
            },
            "loopLimits": agent_shapes.limits(stored.get("loop_limits") or {}),
        },
    }


@router.get(
    "/agents/{agent}/configuration",
    response=answers.AgentConfiguration,
    summary="How an agent is set up",
)
def get_configuration(request: HttpRequest, agent: str) -> HttpResponse:
    found = find(request, agent, "operate")
    return wire.answer(_summary(found), version=found.version)


@router.get(
    "/companies/{company}/agent-configurations",
    response=list[answers.AgentConfiguration],
    summary="How all agents are set up",
)
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


@router.get(
    "/agents/{agent}/runtime-state",
    response=answers.RuntimeState,
    summary="What the last runs left behind",
)
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


@router.post(
    "/agents/{agent}/runtime-state/reset-session",
    response=answers.SessionsForgotten,
    summary="Let the next run begin a session of its own",
)
def reset_session(
    request: HttpRequest, agent: str, body: SessionReset | None = None
) -> HttpResponse:
    """All of the agent's sessions, or the one about the issue that `taskKey` names."""
    caller = wire.principal(request)
    found = find(request, agent, "operate")
    issue = None
    if body is not None and body.task_key is not None:
        issue = find_issue(request, body.task_key)
        if issue.company_id != found.company_id:
            raise NotFound("There is no such issue.")
    count = sessions.forget(
        agent=found,
        issue_id=issue.id if issue else None,
        actor=caller.actor,
        now=timezone.now(),
    )
    return wire.answer({"agentId": found.id, "forgotten": count})


# --- adapters --------------------------------------------------------------------------------


@router.get(
    "/companies/{company}/adapters",
    response=list[answers.Adapter],
    summary="What can carry an agent",
)
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


@router.get(
    "/companies/{company}/adapters/{adapter}/models",
    response=list[answers.AdapterModel],
    summary="Models that this server knows for an adapter",
)
def list_models(
    request: HttpRequest, company: str, adapter: Annotated[str, Field(max_length=40)]
) -> HttpResponse:
    """From the price lists, the company's own prices first; others may work as well."""
    found = wire.company(request, company)
    known = adapters.ALIASES.get(adapter, adapter)
    if known not in {one.type for one in adapters.all()}:
        raise NotFound("There is no such adapter.")
    provider = MODELS_OF.get(known)
    if provider is None:
        return wire.answer([])
    names = prices.models(company_id=found.id, provider=provider, now=timezone.now())
    return wire.answer([{"id": name, "label": name} for name in names])


MODELS_OF = {
    "openai": "openai",
    "codex_local": "openai",
    "anthropic": "anthropic",
    "claude_local": "anthropic",
    "gemini_local": "google",
}


@router.post(
    "/companies/{company}/adapters/{adapter}/test-environment",
    response=answers.EnvironmentTest,
    summary="Try a configuration: really asks the model or service",
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
        company_id=found.id,
        adapter_type=adapter,
        config=body.adapter_config,
        user_id=wire.principal(request).user_id,
        now=now,
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
