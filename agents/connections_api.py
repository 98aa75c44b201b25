"""Connections to providers over the API. Reading is for all who may look, changing for owners: a
connection binds a key to an address."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents import answers, buckets, connections
from agents.connection_models import ProviderConnection
from agents.models import HeartbeatRun
from companies import access, wire
from companies.answers import Ok
from companies.errors import NotFound

router = Router(by_alias=True)

Url = Annotated[wire.Text, Field(max_length=2000)]
Secret = Annotated[wire.Text, Field(max_length=100)]
Limit = Annotated[int, Field(ge=1, le=wire.INT4, strict=True)]


class ConnectionFields(wire.Body):
    base_url: Url | None = None
    key_secret: Secret | None = None
    requests_per_minute: Limit | None = None
    tokens_per_minute: Limit | None = None
    max_concurrent_runs: Limit | None = None


class NewConnection(ConnectionFields):
    name: Annotated[wire.Text, Field(min_length=1, max_length=80)]
    kind: Literal["openai", "anthropic"]


class ConnectionChange(ConnectionFields):
    name: Annotated[wire.Text, Field(min_length=1, max_length=80)] | None = None
    disabled: bool | None = None


class Check(wire.Body):
    model: Annotated[wire.Text, Field(max_length=200)] = ""


@router.get(
    "/companies/{company}/connections",
    response=list[answers.Connection],
    summary="Connections to providers, by name",
)
def list_connections(
    request: HttpRequest,
    company: str,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = wire.company(request, company)
    return wire.page(
        request,
        ProviderConnection.objects.for_company(found.id),
        keys=("name", "id"),
        shape=lambda page: [shape(row) for row in page],
        limit=limit,
        cursor=cursor,
    )


@router.post(
    "/companies/{company}/connections",
    response={201: answers.Connection},
    summary="A new connection",
)
def create_connection(request: HttpRequest, company: str, body: NewConnection) -> HttpResponse:
    found = wire.company(request, company, "manage")
    given = body.given()
    row = connections.create(
        company=found,
        kind=given.pop("kind"),
        actor=wire.principal(request).actor,
        now=timezone.now(),
        **_fields(given),
    )
    return wire.answer(shape(row), 201, version=row.version)


@router.get(
    "/connections/{connection_id}",
    response=answers.Connection,
    summary="One connection, its state and headroom",
)
def get_connection(request: HttpRequest, connection_id: uuid.UUID) -> HttpResponse:
    row = _find(request, connection_id, "view")
    return wire.answer(shape(row), version=row.version)


@router.patch(
    "/connections/{connection_id}", response=answers.Connection, summary="Change a connection"
)
def change_connection(
    request: HttpRequest, connection_id: uuid.UUID, body: ConnectionChange
) -> HttpResponse:
    row = _find(request, connection_id, "manage")
    actor, now = wire.principal(request).actor, timezone.now()
    given = body.given()
    disabled = given.pop("disabled", None)
    row = connections.update(
        row=row, changes=_fields(given), actor=actor, now=now, if_version=wire.if_match(request)
    )
    if disabled is not None:
        verb = connections.disable if disabled else connections.enable
        row = verb(row=row, actor=actor, now=now)
    return wire.answer(shape(row), version=row.version)


@router.delete(
    "/connections/{connection_id}", response=Ok, summary="Forget a connection that nobody uses"
)
def delete_connection(request: HttpRequest, connection_id: uuid.UUID) -> HttpResponse:
    row = _find(request, connection_id, "manage")
    connections.delete(
        row=row,
        actor=wire.principal(request).actor,
        now=timezone.now(),
        if_version=wire.if_match(request),
    )
    return wire.answer({"ok": True})


@router.post(
    "/connections/{connection_id}/test",
    response=answers.ConnectionTest,
    summary="Really ask the provider",
)
def test_connection(request: HttpRequest, connection_id: uuid.UUID, body: Check) -> HttpResponse:
    row = _find(request, connection_id, "manage")
    checks = connections.check(
        row=row,
        model=body.model.strip(),
        user_id=wire.principal(request).user_id,
        now=timezone.now(),
    )
    return wire.answer(
        {
            "ok": all(check.ok for check in checks),
            "checks": [
                {
                    "name": check.name,
                    "ok": check.ok,
                    "message": check.message,
                    "hint": check.hint or None,
                }
                for check in checks
            ],
        }
    )


@router.post(
    "/connections/{connection_id}/reset",
    response=answers.Connection,
    summary="It works again: close the breaker",
)
def reset_connection(request: HttpRequest, connection_id: uuid.UUID) -> HttpResponse:
    row = _find(request, connection_id, "operate")
    row = connections.reset(row=row, actor=wire.principal(request).actor, now=timezone.now())
    return wire.answer(shape(row), version=row.version)


def _find(
    request: HttpRequest, connection_id: uuid.UUID, action: access.Action
) -> ProviderConnection:
    caller = wire.principal(request)
    row = wire.in_companies(caller, ProviderConnection.objects.all()).filter(pk=connection_id)
    found: ProviderConnection | None = row.first()
    if found is None:
        raise NotFound("There is no such connection.")
    access.authorize(caller, action, found.company_id)
    return found


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    """Nothing for a text is an empty one, nothing for a limit is no limit."""
    fields = dict(given)
    for name in ("base_url", "key_secret"):
        if name in given:
            fields[name] = given[name] or ""
    if fields.get("name", "") is None:
        del fields["name"]
    return fields


def shape(row: ProviderConnection) -> dict[str, Any]:
    """A connection on the wire. The key is named, never shown."""
    requests_left, tokens_left = buckets.left(connection_id=row.pk)
    running = HeartbeatRun.objects.filter(
        connection_id=row.pk, status=HeartbeatRun.Status.RUNNING
    ).count()
    return {
        "id": row.id,
        "companyId": row.company_id,
        "name": row.name,
        "kind": row.kind,
        "baseUrl": row.base_url or None,
        "keySecret": row.key_secret or None,
        "disabled": row.disabled_at is not None,
        "limits": {
            "requestsPerMinute": row.requests_per_minute,
            "tokensPerMinute": row.tokens_per_minute,
            "maxConcurrentRuns": row.max_concurrent_runs,
        },
        "left": {
            "requests": None if requests_left is None else int(requests_left),
            "tokens": None if tokens_left is None else int(tokens_left),
        },
        "runningRuns": running,
        "breaker": {
            "state": row.breaker,
            "code": row.open_code or None,
            "openedAt": row.opened_at,
            "openUntil": row.open_until,
        },
        "lastErrors": row.last_errors,
        "lastAnswerAt": row.last_answer_at,
        "version": row.version,
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
    }
