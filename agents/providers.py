"""What a run does with the connections of its agent: find its routes, ask before each call, tell
how the call went, change over to a fallback.

What people do with connections is in `connections.py`. Read next: `breaker.py`, `buckets.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from agents import breaker, buckets
from agents.adapters import fields, legs
from agents.adapters.base import AdapterError, Code, Route
from agents.connection_models import ProviderConnection
from agents.models import Agent
from companies import live, secrets
from companies.models import SecretRead


@dataclass(frozen=True, slots=True)
class Wait:
    """A call may not go out now. `seconds` until it is worth asking again; None: a person has to
    do something. `code` is what a run that cannot wait ends with."""

    seconds: float | None
    why: str  # requests, tokens, open, probe or disabled
    code: Code
    name: str

    @property
    def diverts(self) -> bool:
        """Whether a fallback may be asked instead: not for our own limits, nor a spent quota."""
        return self.why in ("open", "probe") and self.code in legs.PASSES_ELSEWHERE

    @property
    def message(self) -> str:
        return f"{self.name} {_WORDS[self.why]}."


_WORDS = {
    "requests": "has used up its requests of this minute",
    "tokens": "has used up its tokens of this minute",
    "open": "is not asked for a while, because the provider has trouble",
    "probe": "is being tried again after trouble",
    "disabled": "is switched off",
}


class _Undone(Exception):
    """Rolls back what was taken before the rest did not fit."""


def take(*, connection_id: uuid.UUID, tokens: int, now: datetime | None = None) -> Wait | None:
    """May a call of at most `tokens` go out on this connection? None: yes, and it is counted."""
    row = ProviderConnection.objects.filter(pk=connection_id).first()
    if row is None or row.disabled_at is not None:
        return Wait(None, "disabled", Code.CONFIG_INVALID, row.name if row else "The connection")
    waits: list[Wait] = []
    try:
        with transaction.atomic():
            closed = breaker.enter(row, now=now)
            if closed is not None:
                why = "probe" if closed.probing else "open"
                return Wait(closed.seconds, why, _code(closed.code), row.name)
            if row.requests_per_minute is None and row.tokens_per_minute is None:
                return None
            missing = buckets.take(connection_id=connection_id, tokens=tokens, now=now)
            if missing is not None:
                waits.append(Wait(missing[0], missing[1], Code.RATE_LIMITED, row.name))
                raise _Undone  # a probe that cannot go out is none
    except _Undone:
        return waits[0]
    return None


def _code(code: str) -> Code:
    try:
        found = Code(code)
    except ValueError:
        return Code.PROVIDER_OVERLOADED
    # What opened it need not be what a waiting run reports: only these are tried again.
    return (
        found
        if found in (*legs.PASSES_ELSEWHERE, Code.QUOTA_EXHAUSTED)
        else (Code.PROVIDER_OVERLOADED)
    )


def note(
    *,
    connection_id: uuid.UUID,
    taken: int,
    tokens: int,
    answered: bool,
    error: AdapterError | None,
    now: datetime | None = None,
) -> None:
    """An admitted call has ended: the breaker learns how, the bucket gets back what was not used.

    A call may be noted twice; the second time errs on the side of caution.
    """
    if taken != tokens:
        buckets.give_back(connection_id=connection_id, tokens=taken - tokens)
    code = error.code if error is not None else None
    if error is not None and (
        code in breaker.FAILS_A_PROBE or code in (Code.QUOTA_EXHAUSTED, Code.AUTH_FAILED)
    ):
        breaker.failed(
            connection_id=connection_id,
            code=error.code,
            message=error.message,
            retry_after=error.retry_after,
            now=now,
        )
    if code in breaker.FAILS_A_PROBE or code == Code.QUOTA_EXHAUSTED:
        return
    if answered or (code is not None and code not in breaker.OURS):
        breaker.answered(connection_id=connection_id, now=now)
    else:
        breaker.gave_up(connection_id=connection_id, now=now)


# --- the ways of a run -------------------------------------------------------------------------


def listed(config: Mapping[str, Any]) -> list[tuple[uuid.UUID, str]]:
    """(connection, model) of a stored configuration, in order; empty without a connection."""
    first = config.get("connectionId")
    if not first:
        return []
    rest = config.get("fallbacks") or ()
    return [
        (uuid.UUID(str(first)), str(config.get("model", ""))),
        *((uuid.UUID(str(one["connectionId"])), str(one["model"])) for one in rest),
    ]


def routes(
    *,
    company_id: uuid.UUID,
    config: Mapping[str, Any],
    start: uuid.UUID | None = None,
    run_id: uuid.UUID | None = None,
    now: datetime,
) -> Sequence[Route]:
    """The routes of a run with their keys, beginning with the connection that it was claimed on.

    Connections that are switched off are left out, and fallbacks whose key is missing. Raises
    secrets.CannotOpen and, when the first one has no key, AdapterError.
    """
    ways = listed(config)
    if not ways:
        return ()
    rows = ProviderConnection.objects.for_company(company_id).filter(disabled_at=None)
    found = rows.in_bulk({connection_id for connection_id, _ in ways})
    names = {row.key_secret for row in found.values() if row.key_secret}
    reader = secrets.Reader(SecretRead.Purpose.RUN, run_id)
    values = secrets.reveal(company_id=company_id, names=names, reader=reader, now=now)
    made: list[Route] = []
    for position, (connection_id, model) in enumerate(ways):
        row = found.get(connection_id)
        if row is None:
            continue
        if row.key_secret and row.key_secret not in values:
            if position > 0:
                continue
            fields.secret_value(row.key_secret, values)  # says what is missing
        made.append(
            Route(
                connection_id=str(row.pk),
                name=row.name,
                kind="anthropic" if row.kind == row.Kind.ANTHROPIC else "openai",
                model=model,
                base_url=row.base_url,
                key=values.get(row.key_secret, ""),
                position=position,
            )
        )
    begin = next((n for n, one in enumerate(made) if one.connection_id == str(start)), 0)
    return made[begin:]


def same_account(agent: Agent) -> list[Agent]:
    """The agents that use the same key as this one without a connection, itself included, in the
    order in which their rows are locked."""
    config = agent.adapter_config
    rows = Agent.objects.for_company(agent.company_id).filter(status=Agent.Status.ACTIVE)
    for name in ("apiKeySecret", "apiKeyEnv"):
        if config.get(name):
            same = {f"adapter_config__{name}": config[name]}
            if config.get("baseUrl"):
                same["adapter_config__baseUrl"] = config["baseUrl"]
            return list(rows.filter(adapter_type=agent.adapter_type, **same).order_by("id"))
    return [agent]


# The counts are exact here as in a claim, which locks the company's row as well.
_MOVE = """
UPDATE agents_heartbeatrun r SET connection_id = p.id, on_fallback = true
FROM agents_providerconnection p
WHERE r.id = %(run_id)s AND r.epoch = %(epoch)s AND p.id = %(connection_id)s
  AND p.company_id = r.company_id AND p.disabled_at IS NULL
  AND (p.breaker = 'closed' OR p.open_until <= clock_timestamp())
  AND (p.max_concurrent_runs IS NULL OR r.connection_id = p.id OR p.max_concurrent_runs > (
      SELECT count(*) FROM agents_heartbeatrun x
      WHERE x.connection_id = p.id AND x.status = 'running'))
"""


@transaction.atomic
def move(*, run_id: uuid.UUID, epoch: int, connection_id: uuid.UUID) -> bool:
    """The run goes on with another connection, if that has room and no trouble. A run that has
    changed hands moves nowhere."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT company_id FROM agents_providerconnection WHERE id = %s", [connection_id]
        )
        row = cursor.fetchone()
        if row is None:
            return False
        cursor.execute("SELECT 1 FROM companies_company WHERE id = %s FOR NO KEY UPDATE", [row[0]])
        cursor.execute(_MOVE, {"run_id": run_id, "epoch": epoch, "connection_id": connection_id})
        moved = cursor.rowcount == 1
    if moved:
        live.publish(row[0], "run", run_id)
    return moved
