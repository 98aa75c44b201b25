"""Who did what: one row a change, written in the transaction of the change.

`record` writes a row at once; inside `together` the rows are kept and written in one statement,
by its end or by a statement that takes them along (`kept`, `NOTE`, `written`).
"""

from __future__ import annotations

import contextvars
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from django.db import connection

from companies import live
from companies.ids import new_id


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts. `type` is user, agent or system; `run_id` when a run acts for its agent."""

    type: str
    id: uuid.UUID | None = None
    name: str = ""
    run_id: uuid.UUID | None = None


SYSTEM = Actor(type="system", name="Paperclip")

Row = dict[str, Any]

# Writes rows, given as JSON, from a statement's `%(activity)s`. As it stands it writes them all;
# a statement that wants them only if … adds its own WHERE.
NOTE = """
INSERT INTO companies_activity (id, company_id, occurred_at, actor_type, actor_id, actor_name,
    run_id, action, entity_type, entity_id, entity_name, details)
SELECT a.id, a.company_id, a.occurred_at, a.actor_type, a.actor_id, a.actor_name, a.run_id,
    a.action, a.entity_type, a.entity_id, a.entity_name, a.details
FROM json_to_recordset(%(activity)s::json) AS a (id uuid, company_id uuid, occurred_at timestamptz,
    actor_type text, actor_id uuid, actor_name text, run_id uuid, action text, entity_type text,
    entity_id uuid, entity_name text, details jsonb)
"""

_kept: contextvars.ContextVar[list[Row] | None] = contextvars.ContextVar("activity", default=None)


def record(
    *,
    company_id: uuid.UUID,
    actor: Actor,
    action: str,
    entity_type: str,
    entity_id: uuid.UUID,
    entity_name: str = "",
    details: Mapping[str, Any] | None = None,
    now: datetime,
) -> uuid.UUID:
    """Write one row; returns its id. `action` reads like `issue.created`; `details` holds before
    and after."""
    row = entry(
        company_id=company_id,
        actor=actor,
        action=action,
        entity_type=entity_type,
        entity_id=entity_id,
        entity_name=entity_name,
        details=details,
        now=now,
    )
    together_with = _kept.get()
    if together_with is None:
        _write([row])
    else:
        together_with.append(row)
    live.publish(company_id, "activity")
    made: uuid.UUID = row["id"]
    return made


def entry(
    *,
    company_id: uuid.UUID,
    actor: Actor,
    action: str,
    entity_type: str,
    entity_id: uuid.UUID,
    entity_name: str = "",
    details: Mapping[str, Any] | None = None,
    now: datetime,
) -> Row:
    """One row for `NOTE`, unwritten and not announced."""
    return {
        "id": new_id(),
        "company_id": company_id,
        "occurred_at": now,
        "actor_type": actor.type,
        "actor_id": actor.id,
        "actor_name": actor.name[:120],
        "run_id": actor.run_id,
        "action": action,
        "entity_type": entity_type,
        "entity_id": entity_id,
        "entity_name": entity_name[:200],
        "details": dict(details or {}),
    }


@contextmanager
def together() -> Iterator[None]:
    """What is recorded inside is written in one statement at the end. Inside a transaction only:
    what raises leaves nothing behind. Who reads activity inside asks for `flush` first."""
    if _kept.get() is not None:
        yield
        return
    rows: list[Row] = []
    token = _kept.set(rows)
    try:
        yield
    finally:
        _kept.reset(token)
    if rows:
        _write(rows)


def kept() -> list[Row]:
    """The rows that `together` has kept so far, for a statement that writes them along."""
    return list(_kept.get() or ())


def written(rows: list[Row]) -> None:
    """A statement has written these kept rows."""
    left = _kept.get()
    if rows and left is not None:
        done = {row["id"] for row in rows}
        left[:] = [row for row in left if row["id"] not in done]


def flush() -> None:
    """Write what `together` has kept so far, for who is about to read activity."""
    rows = kept()
    if rows:
        _write(rows)
        written(rows)


def as_json(rows: list[Row]) -> str:
    """Rows as `NOTE` reads them."""
    try:
        return orjson.dumps(rows, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # half a surrogate pair, a huge number: the database says what it thinks
        return json.dumps(rows, default=str)


def _write(rows: list[Row]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(NOTE, {"activity": as_json(rows)})
