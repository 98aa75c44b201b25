"""Who stands behind a bearer token: an operator (`pcb_`), an agent (`pcp_`) or a run (`pcr_`).

Every call asks the database: a revoked key, a removed person, a terminated agent and an ended
run are strangers at once.
"""

from __future__ import annotations

import hmac
import uuid
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from agents.models import AgentKey
from companies import keys, rows
from companies.access import Principal
from companies.models import OperatorKey

_USED_EVERY = timedelta(minutes=1)

# Every request runs one of these first: each proves the token and brings all that stands behind it,
# so that nothing more need be asked about the caller.
_OPERATOR = """
SELECT k.id, k.digest, k.last_used_at, u.id, coalesce(nullif(u.name, ''), u.email),
    (SELECT json_object_agg(m.company_id, m.role) FROM companies_membership m
     WHERE m.user_id = u.id)
FROM companies_operatorkey k JOIN companies_user u ON u.id = k.user_id
WHERE k.lookup = %s AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > %s)
  AND u.is_active
"""
_AGENT = """
SELECT k.id, k.digest, k.last_used_at, k.agent_id, k.company_id, a.name, k.scopes
FROM agents_agentkey k
JOIN agents_agent a ON a.id = k.agent_id
JOIN companies_company c ON c.id = k.company_id
WHERE k.lookup = %s AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > %s)
  AND a.status = 'active' AND c.status <> 'archived'
"""
_RUN = """
SELECT r.id, r.agent_id, r.company_id, a.name
FROM agents_heartbeatrun r
JOIN agents_agent a ON a.id = r.agent_id
JOIN companies_company c ON c.id = r.company_id
WHERE r.token_digest = %s AND r.status = 'running' AND a.status <> 'terminated'
  AND c.status <> 'archived'
"""


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


def why_not(token: str, *, now: datetime | None = None) -> str:
    """Why a token proves nobody: `run_ended`, `token_expired`, or else `unauthenticated`.

    Told only to who holds the whole token, so it helps nobody who guesses.
    """
    parsed = keys.parse(token)
    if parsed is None:
        return "unauthenticated"
    if parsed.prefix == keys.RUN:
        return "run_ended"
    kind = AgentKey if parsed.prefix == keys.AGENT else OperatorKey
    key = kind._default_manager.filter(lookup=parsed.lookup).first()
    if key is None or not hmac.compare_digest(key.digest, parsed.digest):
        return "unauthenticated"
    expired = key.expires_at is not None and key.expires_at <= (now or timezone.now())
    return "token_expired" if expired else "unauthenticated"


def _operator(parsed: keys.Parsed, now: datetime) -> Principal | None:
    row = _row(_OPERATOR, parsed.lookup, now)
    if row is None or not hmac.compare_digest(row[1], parsed.digest):
        return None
    key_id, _, last_used_at, user_id, name, roles = row
    _used(OperatorKey, key_id, last_used_at, now)
    held = {uuid.UUID(company): role for company, role in (roles or {}).items()}
    return Principal(kind="user", user_id=user_id, name=name, roles=held)


def _agent(parsed: keys.Parsed, now: datetime) -> Principal | None:
    row = _row(_AGENT, parsed.lookup, now)
    if row is None or not hmac.compare_digest(row[1], parsed.digest):
        return None
    key_id, _, last_used_at, agent_id, company_id, name, scopes = row
    _used(AgentKey, key_id, last_used_at, now)
    return Principal(
        kind="agent",
        agent_id=agent_id,
        company_id=company_id,
        name=name,
        scopes=frozenset(scopes),
    )


def _run(parsed: keys.Parsed) -> Principal | None:
    row = _row(_RUN, parsed.digest)
    if row is None:
        return None
    run_id, agent_id, company_id, name = row
    return Principal(kind="run", agent_id=agent_id, company_id=company_id, run_id=run_id, name=name)


def _row(statement: str, *values: Any) -> tuple[Any, ...] | None:
    return next(iter(rows.ask(statement, values)), None)


def _used(
    model: type[AgentKey] | type[OperatorKey],
    key_id: uuid.UUID,
    last_used_at: datetime | None,
    now: datetime,
) -> None:
    """Remember that a key is in use, at most once a minute."""
    if last_used_at is None or now - last_used_at > _USED_EVERY:
        model._default_manager.filter(pk=key_id).update(last_used_at=now)
