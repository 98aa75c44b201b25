"""Agents' keys over the API. What an agent *is* on the wire includes its budget, so that part
stands on the top floor: `paperclip/agent_api.py`."""

from __future__ import annotations

import uuid
from typing import Annotated

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents import agent_keys, answers, shapes
from agents.models import Agent, AgentKey
from companies import access, wire
from companies.answers import Ok
from companies.errors import NotFound

router = Router(by_alias=True)


class NewAgentKey(wire.Body):
    name: Annotated[wire.Text, Field(min_length=1, max_length=120)]
    scopes: Annotated[list[Annotated[wire.Text, Field(max_length=40)]], Field(max_length=10)] = []
    expires_at: wire.Moment | None = None


def find(request: HttpRequest, ref: str, action: access.Action | None = "view") -> Agent:
    """The agent that `ref` names: a UUID, or the short name for a caller inside a company.

    Raises NotFound and Forbidden. `action` None: to take part in the company's work.
    """
    caller = wire.principal(request)
    rows = wire.in_companies(caller, Agent.objects.all())
    try:
        found = rows.filter(id=uuid.UUID(ref)).first()
    except ValueError:
        found = None
        if caller.company_id is not None and "\x00" not in ref:
            found = rows.filter(slug=ref[:80].lower()).first()
        elif caller.company_id is None:
            wire.parse_id(ref, "agentId")
    if found is None:
        raise NotFound("There is no such agent.")
    access.authorize(caller, action or wire.contribution(caller), found.company_id)
    return found


@router.get("/agents/{agent}/keys", response=list[answers.AgentKey], summary="Keys of an agent")
def list_keys(request: HttpRequest, agent: str) -> HttpResponse:
    found = find(request, agent, "manage")
    rows = AgentKey.objects.filter(agent=found).order_by("-created_at", "-id")[: wire.MAX_PAGE]
    return wire.answer([shapes.key(row) for row in rows])


@router.post(
    "/agents/{agent}/keys",
    response={201: answers.ShownAgentKey},
    summary="A new key; its token is shown this once",
)
def create_key(request: HttpRequest, agent: str, body: NewAgentKey) -> HttpResponse:
    found = find(request, agent, "manage")
    key, token = agent_keys.create(
        agent=found,
        name=body.name,
        scopes=body.scopes,
        expires_at=body.expires_at,
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer({**shapes.key(key), "token": token}, 201)


@router.delete("/agents/{agent}/keys/{key_id}", response=Ok, summary="Revoke a key")
def revoke_key(request: HttpRequest, agent: str, key_id: uuid.UUID) -> HttpResponse:
    found = find(request, agent, "manage")
    agent_keys.revoke(
        agent=found, key_id=key_id, actor=wire.principal(request).actor, now=timezone.now()
    )
    return wire.answer({"ok": True})
