"""What is left of a connection's requests and tokens of a minute, for all instances together.

A token bucket: it refills steadily up to one minute's worth. A call takes its worst case before it
is made and gives back what it did not use. Times are the database's own unless given.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.db import connection

# What stands in the bucket now: what was left, and what has run in since.
_SINCE = (
    "greatest(0, extract(epoch FROM coalesce(%(now)s::timestamptz, clock_timestamp())"
    " - b.refilled_at))::float8"
)
_REQUESTS = (
    "least(c.requests_per_minute::float8,"
    f" b.requests_left + {_SINCE} * c.requests_per_minute / 60.0)"
)
_TOKENS = (
    f"least(c.tokens_per_minute::float8, b.tokens_left + {_SINCE} * c.tokens_per_minute / 60.0)"
)
# A call larger than the whole bucket waits for a full one, and the next for what it overdrew.
_NEEDED = "least(%(tokens)s::float8, c.tokens_per_minute)"

_TAKE = f"""
UPDATE agents_providerbucket b SET
    requests_left = coalesce({_REQUESTS} - 1, b.requests_left),
    tokens_left = coalesce({_TOKENS} - %(tokens)s, b.tokens_left),
    refilled_at = greatest(b.refilled_at, coalesce(%(now)s::timestamptz, clock_timestamp()))
FROM agents_providerconnection c
WHERE c.id = %(id)s AND b.connection_id = c.id
  AND (c.requests_per_minute IS NULL OR {_REQUESTS} >= 1)
  AND (c.tokens_per_minute IS NULL OR {_TOKENS} >= {_NEEDED})
"""  # noqa: S608 - constants

_WAIT = f"""
SELECT coalesce(greatest(0, (1 - {_REQUESTS}) * 60.0 / c.requests_per_minute), 0)::float8,
       coalesce(greatest(0, ({_NEEDED} - {_TOKENS}) * 60.0 / c.tokens_per_minute), 0)::float8
FROM agents_providerbucket b JOIN agents_providerconnection c ON c.id = b.connection_id
WHERE c.id = %(id)s
"""  # noqa: S608 - constants

_LEFT = f"""
SELECT c.id, {_REQUESTS}, {_TOKENS}
FROM agents_providerbucket b JOIN agents_providerconnection c ON c.id = b.connection_id
WHERE c.id = %(id)s OR c.company_id = %(company_id)s
"""  # noqa: S608 - constants

SHORTEST_WAIT_SECONDS = 0.05


def take(
    *, connection_id: uuid.UUID, tokens: int, now: datetime | None = None
) -> tuple[float, str] | None:
    """Take one request and `tokens`, all or nothing. None when taken; else the seconds until it
    may go, and what is missing: "requests" or "tokens"."""
    values: dict[str, Any] = {"id": connection_id, "tokens": tokens, "now": now}
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, values)
        if cursor.rowcount:
            return None
        cursor.execute(_WAIT, values)
        row = cursor.fetchone()
    requests, tokens_wait = row or (0.0, 0.0)
    wait = max(requests, tokens_wait, SHORTEST_WAIT_SECONDS)
    return wait, "requests" if requests >= tokens_wait else "tokens"


def give_back(*, connection_id: uuid.UUID, tokens: int) -> None:
    """Return tokens that a call had taken and did not use; below zero: it used more."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agents_providerbucket b SET tokens_left ="
            " least(c.tokens_per_minute, b.tokens_left + %s)"
            " FROM agents_providerconnection c"
            " WHERE c.id = %s AND b.connection_id = c.id AND c.tokens_per_minute IS NOT NULL",
            [tokens, connection_id],
        )


def left(
    *, connection_id: uuid.UUID, now: datetime | None = None
) -> tuple[float | None, float | None]:
    """Requests and tokens that could be taken now; None where nothing limits them."""
    return _left(connection_id, None, now).get(connection_id, (None, None))


def left_of(
    *, company_id: uuid.UUID, now: datetime | None = None
) -> dict[uuid.UUID, tuple[float | None, float | None]]:
    """The same of all connections of a company."""
    return _left(None, company_id, now)


def _left(
    connection_id: uuid.UUID | None, company_id: uuid.UUID | None, now: datetime | None
) -> dict[uuid.UUID, tuple[float | None, float | None]]:
    with connection.cursor() as cursor:
        cursor.execute(_LEFT, {"id": connection_id, "company_id": company_id, "now": now})
        return {row[0]: (row[1], row[2]) for row in cursor.fetchall()}
