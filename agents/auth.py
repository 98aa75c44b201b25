"""Who stands behind a bearer token: an operator (`pcb_`), an agent (`pcp_`) or a run (`pcr_`).

Every call asks the database: a revoked key, a removed person, a terminated agent and an ended
run are strangers at once.
"""

from __future__ import annotations

import hmac
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from agents.models import Agent, AgentKey, HeartbeatRun
from companies import keys
from companies.access import Principal
from companies.models import Company, OperatorKey

_USED_EVERY = timedelta(minutes=1)


def principal_for_token(token: str, *, now: datetime | None = None) -> Principal | None:
    """The principal that a token proves, or None: malformed, unknown, revoked, expired or dead."""
    parsed = keys.parse(token)
    if parsed is None:
        return None
    now = now or timezone.now()
    if parsed.prefix == keys.RUN:
        return _run(parsed)
    if parsed.prefix == keys.AGENT:
        return _agent(parsed, now)
    return _operator(parsed, now)


def _operator(parsed: keys.Parsed, now: datetime) -> Principal | None:
    key = (
        OperatorKey.objects.select_related("user")
        .filter(_good(now), lookup=parsed.lookup, user__is_active=True)
        .first()
    )
    if key is None or not hmac.compare_digest(key.digest, parsed.digest):
        return None
    _used(OperatorKey.objects.filter(pk=key.pk), key.last_used_at, now)
    return Principal(kind="user", user_id=key.user_id, name=str(key.user))


def _agent(parsed: keys.Parsed, now: datetime) -> Principal | None:
    key = (
        AgentKey.objects.select_related("agent")
        .filter(_good(now), lookup=parsed.lookup, agent__status=Agent.Status.ACTIVE)
        .exclude(company__status=Company.Status.ARCHIVED)
        .first()
    )
    if key is None or not hmac.compare_digest(key.digest, parsed.digest):
        return None
    _used(AgentKey.objects.filter(pk=key.pk), key.last_used_at, now)
    return Principal(
        kind="agent",
        agent_id=key.agent_id,
        company_id=key.company_id,
        name=key.agent.name,
        scopes=frozenset(key.scopes),
    )


def _run(parsed: keys.Parsed) -> Principal | None:
    run = (
        HeartbeatRun.objects.select_related("agent")
        .filter(token_digest=parsed.digest, status=HeartbeatRun.Status.RUNNING)
        .first()
    )
    if run is None or run.agent.status == Agent.Status.TERMINATED:
        return None
    return Principal(
        kind="run",
        agent_id=run.agent_id,
        company_id=run.company_id,
        run_id=run.pk,
        name=run.agent.name,
    )


def _good(now: datetime) -> Q:
    return Q(revoked_at__isnull=True) & (Q(expires_at__isnull=True) | Q(expires_at__gt=now))


def _used(key: QuerySet[Any], last_used_at: datetime | None, now: datetime) -> None:
    """Remember that a key is in use, at most once a minute."""
    if last_used_at is None or now - last_used_at > _USED_EVERY:
        key.update(last_used_at=now)
