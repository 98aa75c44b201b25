"""Long-lived keys of agents: made, revoked. The token is shown once; its hash stays."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from agents.models import Agent, AgentKey
from companies import activity, keys, moments
from companies.activity import Actor
from companies.errors import Conflict, Invalid, NotFound

SCOPES = ("read", "write")
MAX_LIVE_KEYS = 20


@transaction.atomic
def create(
    *,
    agent: Agent,
    name: str,
    actor: Actor,
    now: datetime,
    scopes: Sequence[str] = (),
    expires_at: datetime | None = None,
) -> tuple[AgentKey, str]:
    """A new key and its token. No scopes mean all of them.

    Raises Invalid (name, scope, expiry) and Conflict (terminated, or too many keys).
    """
    name = name.strip()
    if not name or len(name) > 120:
        raise Invalid("key_name", "A key needs a name of 1 to 120 characters.", field="name")
    if set(scopes) - set(SCOPES):
        raise Invalid("key_scope", f"Scopes are {', '.join(SCOPES)}.", field="scopes")
    if expires_at is not None and moments.sound(expires_at, "expiresAt") <= now:
        raise Invalid("key_expiry", "The expiry lies in the past.", field="expiresAt")
    locked = Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
    if locked.status == Agent.Status.TERMINATED:
        raise Conflict("agent_terminated", "A terminated agent gets no key.")
    if AgentKey.objects.filter(agent=agent, revoked_at=None).count() >= MAX_LIVE_KEYS:
        raise Conflict("too_many_keys", f"An agent has at most {MAX_LIVE_KEYS} keys. Revoke one.")
    minted = keys.mint(keys.AGENT)
    key = AgentKey.objects.create(
        company_id=agent.company_id,
        agent=agent,
        name=name,
        lookup=minted.lookup,
        digest=minted.digest,
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
    )
    _record(agent, key, "agent.key_created", actor, now)
    return key, minted.token


@transaction.atomic
def revoke(*, agent: Agent, key_id: uuid.UUID, actor: Actor, now: datetime) -> None:
    """Make a key worthless, at once. Raises NotFound."""
    key = AgentKey.objects.filter(agent=agent, id=key_id, revoked_at=None).first()
    if key is None:
        raise NotFound("There is no such key.")
    AgentKey.objects.filter(pk=key.pk).update(revoked_at=now)
    _record(agent, key, "agent.key_revoked", actor, now)


def _record(agent: Agent, key: AgentKey, action: str, actor: Actor, now: datetime) -> None:
    activity.record(
        company_id=agent.company_id,
        actor=actor,
        action=action,
        entity_type="agent",
        entity_id=agent.pk,
        entity_name=agent.name,
        details={"keyId": str(key.pk), "name": key.name},
        now=now,
    )
