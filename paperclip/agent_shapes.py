"""Agents as the API shows them: what they are, what they are doing and what they may spend."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Count, OuterRef, Subquery
from django.db.models.functions import Coalesce
from pydantic.alias_generators import to_camel

from agents import roster
from agents.masking import masked
from agents.models import Agent, HeartbeatRun, Hold
from billing import totals
from billing.models import Budget, Scope, Spend, Window
from companies import access, wire

MAX_CHAIN = 20
_OF_IT = HeartbeatRun.objects.filter(agent=OuterRef("pk")).order_by()
_RUNNING = Coalesce(
    Subquery(
        _OF_IT.filter(status=HeartbeatRun.Status.RUNNING)
        .values("agent")
        .annotate(count=Count("id"))
        .values("count")
    ),
    0,
)
# A heartbeat is any run that has begun, whatever woke the agent: not only a regular one.
_LAST = Subquery(
    _OF_IT.filter(started_at__isnull=False).order_by("-created_at", "-id").values("started_at")[:1]
)


def agents(rows: list[Agent], *, caller: access.Principal, now: datetime) -> list[dict[str, Any]]:
    """A page of agents, in a fixed number of statements."""
    ids = [row.pk for row in rows]
    at_work = {
        agent_id: (count, last)
        for agent_id, count, last in Agent.objects.filter(pk__in=ids)
        .order_by()
        .values_list("pk", _RUNNING, _LAST)
    }
    holds: dict[uuid.UUID, list[Hold]] = {}
    for hold in Hold.objects.filter(agent_id__in=ids).order_by("created_at", "id"):
        holds.setdefault(hold.agent_id, []).append(hold)
    limits = dict(
        Budget.objects.filter(scope=Scope.AGENT, scope_id__in=ids, window=Window.MONTH).values_list(
            "scope_id", "limit_micros"
        )
    )
    spent = {
        agent_id: wire.known(micros, unpriced)
        for agent_id, micros, unpriced in Spend.objects.filter(
            scope=Scope.AGENT,
            scope_id__in=ids,
            window=Window.MONTH,
            period_start=totals.period_start(Window.MONTH, now),
        ).values_list("scope_id", "spent_micros", "unpriced_events")
    }
    return [
        _agent(
            row,
            status=roster.status_of(row, at_work[row.pk][0], holds.get(row.pk, ())),
            last=at_work[row.pk][1],
            holds=holds.get(row.pk, []),
            limit=limits.get(row.pk),
            spent=spent.get(row.pk, 0),
            caller=caller,
        )
        for row in rows
    ]


def agent(row: Agent, *, caller: access.Principal, now: datetime) -> dict[str, Any]:
    return agents([row], caller=caller, now=now)[0]


def detailed(row: Agent, *, caller: access.Principal, now: datetime) -> dict[str, Any]:
    """One agent with its line of managers."""
    return {
        **agent(row, caller=caller, now=now),
        "chainOfCommand": chain(row),
        "access": {"canAssignTasks": True, "taskAssignSource": "role"},
    }


def _agent(
    row: Agent,
    *,
    status: str,
    holds: list[Hold],
    limit: int | None,
    spent: int | None,
    last: datetime | None,
    caller: access.Principal,
) -> dict[str, Any]:
    # How a colleague is set up is none of another agent's business.
    own = caller.kind in ("user", "system") or caller.agent_id == row.pk
    return {
        "id": row.id,
        "companyId": row.company_id,
        "name": row.name,
        "urlKey": row.slug,
        "role": row.role,
        "title": row.title or None,
        "icon": row.icon or None,
        "status": status,
        "reportsTo": row.reports_to_id,
        "capabilities": row.capabilities or None,
        "adapterType": row.adapter_type,
        "adapterConfig": masked(row.adapter_config) if own else {},
        "instructions": (row.instructions or None) if own else None,
        "onFinish": row.on_finish,
        "runtimeConfig": {
            "heartbeat": {
                "enabled": row.heartbeat_enabled,
                "intervalSec": row.interval_seconds,
                "cron": row.cron or None,
                "timezone": row.timezone,
                "wakeOnDemand": row.wake_on_demand,
                "maxConcurrentRuns": row.max_concurrent_runs,
                "maxDailyRuns": row.max_daily_runs,
                "maxDailyCostCents": wire.cents(row.max_daily_cost_micros),
            },
            "loopLimits": limits(row.loop_limits),
        },
        "budgetMonthlyCents": wire.cents(limit) or 0,
        "budgetMonthlyMicros": limit,
        "spentMonthlyCents": wire.cents(spent),
        "spentMonthlyMicros": spent,
        "pauseReason": _pause_reason(holds),
        "pausedAt": holds[0].created_at if holds else None,
        "holds": [
            {"reason": hold.reason, "note": hold.note or None, "createdAt": hold.created_at}
            for hold in holds
        ],
        "errorReason": row.error_code or None,
        "permissions": {"canCreateAgents": row.can_hire},
        "lastHeartbeatAt": last,
        "nextHeartbeatAt": row.next_beat_at,
        "metadata": None,
        "version": row.version,
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
    }


def _pause_reason(holds: list[Hold]) -> str | None:
    if not holds:
        return None
    words = {"operator": "manual", "agent_budget": "budget"}
    return words.get(holds[0].reason, holds[0].reason)


def chain(row: Agent) -> list[dict[str, Any]]:
    """An agent's managers, nearest first."""
    found: list[dict[str, Any]] = []
    above = row.reports_to_id
    while above is not None and len(found) < MAX_CHAIN:
        manager = Agent.objects.filter(pk=above).first()
        if manager is None:
            break
        found.append(
            {
                "id": manager.pk,
                "name": manager.name,
                "role": manager.role,
                "title": manager.title or None,
            }
        )
        above = manager.reports_to_id
    return found


def org(rows: Iterable[Agent], statuses: Mapping[uuid.UUID, str]) -> list[dict[str, Any]]:
    """The org chart as trees."""
    nodes: dict[uuid.UUID, dict[str, Any]] = {}
    parents: dict[uuid.UUID, uuid.UUID | None] = {}
    for row in rows:
        parents[row.pk] = row.reports_to_id
        nodes[row.pk] = {
            "id": row.pk,
            "name": row.name,
            "role": row.role,
            "title": row.title or None,
            "status": statuses[row.pk],
            "reports": [],
        }
    roots: list[dict[str, Any]] = []
    for one, node in nodes.items():
        parent = parents[one]
        (nodes[parent]["reports"] if parent in nodes else roots).append(node)
    return roots


def limits(own: Mapping[str, int]) -> dict[str, int]:
    """An agent's own limits of the loop breaker, in the wire's words."""
    return {to_camel(name): value for name, value in own.items()}
