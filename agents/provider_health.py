"""How each connection of a company is doing, for the page: its state in words, what is left of its
limits, who uses it. A fixed number of statements, however many there are."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx
from django.db.models import Count
from django.utils.dateparse import parse_datetime

from agents import buckets, outcomes
from agents.adapters.base import Code
from agents.connection_models import AgentFallback, ProviderConnection
from agents.models import Agent, HeartbeatRun

Breaker = ProviderConnection.Breaker


@dataclass(frozen=True, slots=True)
class Headroom:
    """One limit: what is used of it. `share` is between 0 and 1."""

    label: str
    used: int
    limit: int

    @property
    def share(self) -> float:
        return self.used / self.limit

    @property
    def words(self) -> str:
        return f"{self.used:,} of {self.limit:,}"


@dataclass(frozen=True, slots=True)
class Error:
    at: datetime | None
    title: str
    message: str


@dataclass(frozen=True, slots=True)
class Health:
    """A connection with everything that its card shows."""

    row: ProviderConnection
    state: str  # works, trouble, trying, quota or off
    word: str
    tone: str  # of the badge: ok, warn, bad or none
    host: str
    headroom: list[Headroom] = field(default_factory=list)
    running: int = 0
    agents: list[Agent] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)

    @property
    def can_be_released(self) -> bool:
        return self.row.breaker != Breaker.CLOSED


def of_company(*, company_id: uuid.UUID, now: datetime | None = None) -> list[Health]:
    """All connections of a company, by name. `now` None: the database's clock."""
    rows = list(ProviderConnection.objects.for_company(company_id).order_by("name", "id"))
    running = dict(
        HeartbeatRun.objects.for_company(company_id)
        .filter(status=HeartbeatRun.Status.RUNNING, connection_id__isnull=False)
        .order_by()
        .values_list("connection_id")
        .annotate(count=Count("id"))
    )
    users = _users(company_id)
    left = buckets.left_of(company_id=company_id, now=now)
    return [
        _health(row, running.get(row.pk, 0), users.get(row.pk, []), left.get(row.pk, (None, None)))
        for row in rows
    ]


def _users(company_id: uuid.UUID) -> dict[uuid.UUID, list[Agent]]:
    users: dict[uuid.UUID, list[Agent]] = defaultdict(list)
    agents = Agent.objects.for_company(company_id).exclude(status=Agent.Status.TERMINATED)
    for agent in agents.filter(connection__isnull=False).order_by("created_at", "id"):
        if agent.connection_id is not None:
            users[agent.connection_id].append(agent)
    spare = AgentFallback.objects.filter(agent__in=agents).select_related("agent")
    for one in spare.order_by("agent__created_at", "agent_id"):
        if one.agent not in users[one.connection_id]:
            users[one.connection_id].append(one.agent)
    return users


def _health(
    row: ProviderConnection,
    running: int,
    agents: list[Agent],
    left: tuple[float | None, float | None],
) -> Health:
    state, word, tone = _state(row)
    headroom = []
    for label, limit, rest in (
        ("Requests", row.requests_per_minute, left[0]),
        ("Tokens", row.tokens_per_minute, left[1]),
    ):
        if limit is not None:
            headroom.append(Headroom(label, max(0, limit - int(rest or 0)), limit))
    if row.max_concurrent_runs is not None:
        headroom.append(Headroom("Runs", running, row.max_concurrent_runs))
    return Health(
        row=row,
        state=state,
        word=word,
        tone=tone,
        host=httpx.URL(row.base_url).netloc.decode() if row.base_url else "the provider's own",
        headroom=headroom,
        running=running,
        agents=agents,
        errors=[_error(one) for one in row.last_errors if isinstance(one, dict)],
    )


def _state(row: ProviderConnection) -> tuple[str, str, str]:
    if row.disabled_at is not None:
        return "off", "Switched off", ""
    if row.breaker == Breaker.CLOSED:
        return "works", "Works", "ok"
    if row.open_code == Code.QUOTA_EXHAUSTED:
        return "quota", "Quota used up", "bad"
    if row.breaker == Breaker.HALF_OPEN:
        return "trying", "Trying again", "warn"
    return "trouble", outcomes.of(row.open_code).title, "warn"


def _error(one: dict[str, Any]) -> Error:
    return Error(
        at=parse_datetime(str(one.get("at", ""))),
        title=outcomes.of(str(one.get("code", ""))).title,
        message=str(one.get("message", "")),
    )
