"""Connections to providers as people keep them: made, changed, switched off, tested, closed again
after trouble. Every verb is one transaction with its activity row.

What runs do with them is in `providers.py`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction

from agents import adapters, breaker, providers
from agents.adapters import chat, outbound
from agents.adapters.base import AdapterError, Check
from agents.adapters.wire import ChatConfig
from agents.connection_models import AgentFallback, ProviderBucket, ProviderConnection
from agents.models import Agent
from companies import activity, live, secrets
from companies.activity import Actor
from companies.errors import Conflict, Invalid
from companies.models import Company, SecretRead

FIELDS = (
    "name",
    "base_url",
    "key_secret",
    "requests_per_minute",
    "tokens_per_minute",
    "max_concurrent_runs",
)
TEST_SECONDS = 45


# --- keeping them ----------------------------------------------------------------------------


@transaction.atomic
def create(
    *, company: Company, kind: str, actor: Actor, now: datetime, **given: Any
) -> ProviderConnection:
    """A new connection, from the fields of `FIELDS`; the name at least. Raises Invalid."""
    if kind not in ProviderConnection.Kind.values:
        raise Invalid("kind_unknown", "The kind is openai or anthropic.", field="kind")
    row = ProviderConnection(company=company, kind=kind)
    _set(row, given)
    _save(row, force_insert=True)
    ProviderBucket.objects.create(
        connection=row,
        requests_left=row.requests_per_minute or 0,
        tokens_left=row.tokens_per_minute or 0,
        refilled_at=now,
    )
    _record(row, actor, "connection.created", now, {"kind": kind, "baseUrl": row.base_url})
    return row


@transaction.atomic
def update(
    *,
    row: ProviderConnection,
    changes: Mapping[str, Any],
    actor: Actor,
    now: datetime,
    if_version: int | None = None,
) -> ProviderConnection:
    """Change fields of `FIELDS`. Another address or key is another account: what was known of the
    old one's trouble is forgotten. Raises Invalid, and Conflict for an old `if_version`."""
    row = _locked(row)
    if if_version is not None and if_version != row.version:
        raise Conflict(
            "version_conflict",
            "Somebody else has changed the connection meanwhile.",
            details={"version": row.version},
        )
    before = {name: getattr(row, name) for name in FIELDS}
    _set(row, changes)
    changed = sorted(name for name in FIELDS if getattr(row, name) != before[name])
    if not changed:
        return row
    row.version += 1
    _save(row)
    for limit, left in (
        ("requests_per_minute", "requests_left"),
        ("tokens_per_minute", "tokens_left"),
    ):
        value = getattr(row, limit)
        if limit in changed and value is not None:
            _refill(row, left, value, fresh=before[limit] is None)
    if {"base_url", "key_secret"} & set(changed):
        breaker.reset(row=row, actor=actor, now=now)
        row.refresh_from_db()
    _record(row, actor, "connection.updated", now, {"fields": changed})
    live.wake()  # a higher limit may let somebody start
    return row


@transaction.atomic
def disable(*, row: ProviderConnection, actor: Actor, now: datetime) -> ProviderConnection:
    """Switch it off: once this has returned no run starts on it; what runs asks no more."""
    with connection.cursor() as cursor:
        # As a claim locks it, so that none slips in.
        cursor.execute(
            "SELECT 1 FROM companies_company WHERE id = %s FOR NO KEY UPDATE", [row.company_id]
        )
    row = _locked(row)
    if row.disabled_at is None:
        row.disabled_at = now
        row.version += 1
        row.save(update_fields=["disabled_at", "version", "updated_at"])
        _record(row, actor, "connection.disabled", now, {})
    return row


@transaction.atomic
def enable(*, row: ProviderConnection, actor: Actor, now: datetime) -> ProviderConnection:
    """Switch it on again; what waited may start."""
    row = _locked(row)
    if row.disabled_at is not None:
        row.disabled_at = None
        row.version += 1
        row.save(update_fields=["disabled_at", "version", "updated_at"])
        _record(row, actor, "connection.enabled", now, {})
        live.wake()
    return row


@transaction.atomic
def delete(
    *, row: ProviderConnection, actor: Actor, now: datetime, if_version: int | None = None
) -> None:
    """Forget a connection. Raises Conflict while agents use it, and for an old `if_version`."""
    row = _locked(row)
    if if_version is not None and if_version != row.version:
        raise Conflict(
            "version_conflict",
            "Somebody else has changed this connection in the meantime.",
            details={"version": row.version},
        )
    users = sorted(agent.name for agent in used_by(row))
    if users:
        raise Conflict(
            "connection_in_use",
            f"{', '.join(users[:5])}{' and others' if len(users) > 5 else ''} use this connection.",
            details={"agents": users[:50]},
        )
    _record(row, actor, "connection.deleted", now, {})
    row.delete()


def reset(*, row: ProviderConnection, actor: Actor, now: datetime) -> ProviderConnection:
    """A person says that it works again (the account is topped up): runs may start at once."""
    return breaker.reset(row=row, actor=actor, now=now)


def used_by(row: ProviderConnection) -> list[Agent]:
    """The agents that name it, as their choice or as a fallback, in order of hiring."""
    rows = Agent.objects.for_company(row.company_id)
    named = rows.filter(connection=row) | rows.filter(fallbacks__connection=row)
    return list(named.distinct().order_by("created_at", "id"))


# --- what an agent's configuration names ----------------------------------------------------------


def choose(*, agent: Agent) -> None:
    """Set `agent.connection` from its validated configuration. Raises Invalid for connections that
    are not the company's, or speak another protocol than the agent's adapter."""
    ways = providers.listed(agent.adapter_config)
    rows = ProviderConnection.objects.for_company(agent.company_id)
    found = rows.in_bulk({connection_id for connection_id, _ in ways})
    for position, (connection_id, _) in enumerate(ways):
        row = found.get(connection_id)
        field = "connectionId" if position == 0 else f"fallbacks.{position - 1}.connectionId"
        if row is None:
            raise _wrong(field, "There is no such connection in this company.")
        if position == 0 and row.kind != agent.adapter_type:
            raise _wrong(field, f"{row.name} speaks {row.kind}, not {agent.adapter_type}.")
    agent.connection = found[ways[0][0]] if ways else None


def bind(*, agent: Agent) -> None:
    """Mirror the fallbacks of a saved agent's configuration in rows of their own."""
    wanted = [connection_id for connection_id, _ in providers.listed(agent.adapter_config)[1:]]
    rows = AgentFallback.objects.filter(agent=agent).order_by("position")
    if list(rows.values_list("connection_id", flat=True)) == wanted:
        return
    rows.delete()
    AgentFallback.objects.bulk_create(
        AgentFallback(agent=agent, position=position, connection_id=connection_id)
        for position, connection_id in enumerate(wanted, start=1)
    )


def _wrong(field: str, message: str) -> Invalid:
    return Invalid(
        "adapter_config_invalid",
        message,
        field="adapter_config",
        details={"errors": {field: [message]}},
    )


def spelled_out(*, company_id: uuid.UUID, config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration in which address and key stand in place of the connection, for a test of
    it. Raises Invalid."""
    ways = providers.listed(config)
    if not ways:
        return dict(config)
    row = ProviderConnection.objects.for_company(company_id).filter(pk=ways[0][0]).first()
    if row is None:
        raise _wrong("connectionId", "There is no such connection in this company.")
    plain = {k: v for k, v in config.items() if k not in ("connectionId", "fallbacks")}
    return plain | _address(row)


def _address(row: ProviderConnection) -> dict[str, Any]:
    address = {"baseUrl": row.base_url, "apiKeySecret": row.key_secret}
    return {key: value for key, value in address.items() if value}


# --- trying it -----------------------------------------------------------------------------------


def check(
    *,
    row: ProviderConnection,
    model: str = "",
    user_id: uuid.UUID | None = None,
    now: datetime,
) -> list[Check]:
    """Really ask the provider: for its list of models and, with a model, for one word. A bad
    answer is a line, too."""
    config = {**_address(row), "model": model or "-"}
    known: dict[str, str] = {}
    if row.key_secret:
        try:
            reader = secrets.Reader(SecretRead.Purpose.TEST, user_id=user_id)
            known = secrets.reveal(
                company_id=row.company_id, names=[row.key_secret], reader=reader, now=now
            )
        except secrets.CannotOpen as error:
            return [Check("Key", False, str(error), "Store the secret again.")]
    return asyncio.run(_checks(row.kind, config, known, bool(model)))


async def _checks(
    kind: str, config: Mapping[str, Any], known: Mapping[str, str], with_model: bool
) -> list[Check]:
    # A fresh instance: clients belong to the event loop that made them, and this one ends here.
    adapter = type(adapters.get(kind))()
    assert isinstance(adapter, chat.ChatAdapter)
    try:
        async with asyncio.timeout(TEST_SECONDS):
            parsed = ChatConfig.model_validate(dict(config))
            if with_model:
                return await adapter.test(parsed, known)
            names = await adapter.models(parsed, known)
    except TimeoutError:
        return [Check("Connection", False, f"No answer within {TEST_SECONDS} seconds.")]
    except AdapterError as error:
        return [Check("Connection", False, error.message, chat.HINTS.get(error.code, ""))]
    finally:
        await adapter.aclose()
    listed = ", ".join(sorted(names)[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return [Check("Models", True, f"It answers and lists {listed or 'no models'}{more}.")]


# --- rules ---------------------------------------------------------------------------------------


def _set(row: ProviderConnection, given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name not in FIELDS:
            raise Invalid("field_unknown", f"A connection has no field {name!r}.", field=name)
        setattr(row, name, value.strip() if isinstance(value, str) else value)
    for name in ("name", "base_url", "key_secret"):
        if not isinstance(getattr(row, name), str):
            raise Invalid("field_invalid", "This must be text.", field=name)
    if not row.name:
        raise Invalid("name_missing", "A connection needs a name.", field="name")
    if not row.base_url and row.kind == ProviderConnection.Kind.OPENAI:
        raise Invalid("base_url_missing", "Where does the API live?", field="base_url")
    problem = row.base_url and (
        outbound.malformed(row.base_url) or outbound.inspect(row.base_url) or ""
    )
    if problem:
        raise Invalid("base_url_invalid", f"The address: {problem}", field="base_url")
    if row.key_secret and row.key_secret not in secrets.names(row.company_id):
        raise Invalid("secret_unknown", "There is no such secret.", field="key_secret")
    try:
        row.clean_fields(exclude=["company", "kind"])
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise Invalid("field_invalid", " ".join(messages), field=field) from error


def _save(row: ProviderConnection, **options: Any) -> None:
    try:
        with transaction.atomic():
            row.save(**options)
    except IntegrityError as error:
        if "one_connection_a_name" not in str(error):
            raise
        raise Invalid("name_taken", "Another connection has this name.", field="name") from error


def _refill(row: ProviderConnection, left: str, value: int, *, fresh: bool) -> None:
    """A limit that is new begins with a full minute; a lower one takes what is too much."""
    bucket = ProviderBucket.objects.select_for_update(no_key=True).get(connection=row)
    kept = value if fresh else min(getattr(bucket, left), value)
    setattr(bucket, left, kept)
    bucket.save(update_fields=[left])


def _locked(row: ProviderConnection) -> ProviderConnection:
    found = ProviderConnection.objects.select_for_update(no_key=True).filter(pk=row.pk).first()
    if found is None:
        raise Conflict("connection_gone", "The connection was deleted meanwhile.")
    return found


def _record(
    row: ProviderConnection, actor: Actor, action: str, now: datetime, details: Mapping[str, Any]
) -> None:
    activity.record(
        company_id=row.company_id,
        actor=actor,
        action=action,
        entity_type="connection",
        entity_id=row.pk,
        entity_name=row.name,
        details=details,
        now=now,
    )
    live.publish(row.company_id, "agents")
