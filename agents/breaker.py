"""The circuit breaker of a connection: after trouble nobody asks for a while, then one tries.

    CLOSED --5 failures within 60 s, a Retry-After, a spent quota--> OPEN
    OPEN --its time is over, the first who comes--> HALF OPEN, with one probe
    HALF OPEN --an answer--> CLOSED        --a failure--> OPEN, for twice as long

Each answer forgives the oldest failure, so that a few among many successes open nothing. The state
stands in the connection's row and is the same for all instances. Times are the database's own
unless given.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction

from agents import meters
from agents.adapters import failures
from agents.adapters.base import Code
from agents.connection_models import ProviderConnection
from companies import activity, live

Breaker = ProviderConnection.Breaker

FAILURES = 5
WINDOW = timedelta(seconds=60)
OPEN_SECONDS = 30.0
LONGEST_OPEN_SECONDS = 300.0
SHORTEST_WISH_SECONDS, LONGEST_WISH_SECONDS = 1.0, 24 * 3600.0
LONGEST_QUOTA_SECONDS = 7 * 24 * 3600.0
PROBE = timedelta(seconds=120)  # a probe whose process died is over then
PROBE_WAIT_SECONDS = 2.0
ERRORS_KEPT = 10

# What says that the provider has trouble, and not the request.
COUNTED = frozenset({Code.RATE_LIMITED, Code.PROVIDER_OVERLOADED, Code.CONNECT_FAILED, Code.IDLE})
# What fails a probe besides: no answer came through.
FAILS_A_PROBE = COUNTED | {Code.STREAM_BROKEN, Code.TIMED_OUT, Code.ADDRESS_REFUSED}
# Ends of ours, which say nothing about the provider.
OURS = frozenset({Code.BUDGET, Code.CANCELLED, Code.LOST, Code.INTERNAL, Code.LOOP})


@dataclass(frozen=True, slots=True)
class Closed:
    """Why nobody may ask now. `seconds` until it is worth looking again, None: a person decides."""

    seconds: float | None
    code: str
    probing: bool = False


def database_now() -> datetime:
    """The one clock that all instances share."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def enter(row: ProviderConnection, *, now: datetime | None = None) -> Closed | None:
    """May a call go out? None: yes, if need be as the one probe."""
    if row.breaker == Breaker.CLOSED:
        return None
    now = now or database_now()
    if row.open_until is None:
        return Closed(None, row.open_code)
    if row.open_until > now:
        return Closed((row.open_until - now).total_seconds(), row.open_code)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agents_providerconnection SET breaker = 'half_open', probe_until = %s"
            " WHERE id = %s AND open_until <= %s"
            " AND (breaker = 'open' OR (breaker = 'half_open' AND probe_until <= %s))",
            [now + PROBE, row.pk, now, now],
        )
        if cursor.rowcount:
            return None
    fresh = ProviderConnection.objects.get(pk=row.pk)
    if fresh.breaker == Breaker.CLOSED:
        return None
    return Closed(PROBE_WAIT_SECONDS, fresh.open_code, probing=True)


@transaction.atomic
def answered(*, connection_id: uuid.UUID, now: datetime | None = None) -> None:
    """The provider has answered, if only with a refusal: a probe closes the breaker, and
    otherwise the oldest failure is forgiven."""
    now = now or database_now()
    with connection.cursor() as cursor:
        # Nothing is written for an answer like all the others before it.
        cursor.execute(
            "UPDATE agents_providerconnection SET failed_at = failed_at[2:], last_answer_at = %s"
            " WHERE id = %s AND breaker <> 'half_open' AND (failed_at <> '{}'"
            " OR last_answer_at IS NULL OR last_answer_at < %s)",
            [now, connection_id, now - timedelta(seconds=10)],
        )
    probed = ProviderConnection.objects.filter(pk=connection_id, breaker=Breaker.HALF_OPEN)
    row = probed.select_for_update(no_key=True).first()
    if row is not None:
        row.last_answer_at = now
        _close(row, activity.SYSTEM, now)


@transaction.atomic
def failed(
    *,
    connection_id: uuid.UUID,
    code: str,
    message: str = "",
    retry_after: float | None = None,
    now: datetime | None = None,
) -> None:
    """A call has failed. Opens the breaker where that says enough, for as long as the provider
    asks; a spent quota opens it until its reset or, without one, until a person closes it, and
    with it all connections of the company that use the same key."""
    now = now or database_now()
    quota = code == Code.QUOTA_EXHAUSTED
    shared = _sharing_key(connection_id) if quota else _locked(connection_id)
    row = next((one for one in shared if one.pk == connection_id), None)
    if row is None:
        return
    error = {"at": now.isoformat(), "code": str(code), "message": failures.redact(message)[:300]}
    row.last_errors = [error, *row.last_errors][:ERRORS_KEPT]
    if code in COUNTED:
        recent = [moment for moment in row.failed_at if moment > now - WINDOW]
        row.failed_at = [*recent, now][-FAILURES:]
    row.save(update_fields=["last_errors", "failed_at"])
    longest = LONGEST_QUOTA_SECONDS if quota else LONGEST_WISH_SECONDS
    wish = None if retry_after is None else min(max(retry_after, SHORTEST_WISH_SECONDS), longest)
    if quota:
        for one in shared:
            _open(one, code, wish, now)
    elif code in COUNTED and wish is not None:
        _open(row, code, wish, now)
    elif _is_enough(row, code):
        _open(row, code, min(OPEN_SECONDS * 2**row.open_count, LONGEST_OPEN_SECONDS), now)


def _is_enough(row: ProviderConnection, code: str) -> bool:
    if row.breaker == Breaker.HALF_OPEN:
        return code in FAILS_A_PROBE
    return row.breaker == Breaker.CLOSED and code in COUNTED and len(row.failed_at) >= FAILURES


def gave_up(*, connection_id: uuid.UUID, now: datetime | None = None) -> None:
    """An admitted call ended without a word about the provider: the next one may be the probe."""
    ProviderConnection.objects.filter(pk=connection_id, breaker=Breaker.HALF_OPEN).update(
        probe_until=now or database_now()
    )


@transaction.atomic
def reset(*, row: ProviderConnection, actor: activity.Actor, now: datetime) -> ProviderConnection:
    """A person says that it works again: closed, everything forgiven."""
    row = ProviderConnection.objects.select_for_update(no_key=True).get(pk=row.pk)
    if row.breaker != Breaker.CLOSED:
        _close(row, actor, now)
    return row


def _locked(connection_id: uuid.UUID) -> list[ProviderConnection]:
    return list(ProviderConnection.objects.select_for_update(no_key=True).filter(pk=connection_id))


def _sharing_key(connection_id: uuid.UUID) -> list[ProviderConnection]:
    """The connections whose account is the same, locked in one order everywhere."""
    row = ProviderConnection.objects.filter(pk=connection_id).first()
    if row is None or not row.key_secret:
        return _locked(connection_id)
    return list(
        ProviderConnection.objects.select_for_update(no_key=True)
        .filter(
            company_id=row.company_id,
            key_secret=row.key_secret,
            kind=row.kind,
            base_url=row.base_url,
        )
        .order_by("id")
    )


def _open(row: ProviderConnection, code: str, seconds: float | None, now: datetime) -> None:
    """`seconds` None: until a person closes it. An opening never shortens a longer one."""
    until = None if seconds is None else now + timedelta(seconds=seconds)
    was = row.breaker
    if was == Breaker.OPEN:
        longer = until is None or (row.open_until is not None and until > row.open_until)
        if not longer:
            return
    row.breaker = Breaker.OPEN
    row.open_code = str(code)
    row.open_until, row.probe_until = until, None
    if was == Breaker.CLOSED:
        row.opened_at, row.open_count = now, 1
    elif was == Breaker.HALF_OPEN:
        row.open_count += 1
    row.save(
        update_fields=[
            "breaker", "open_code", "open_until", "probe_until", "opened_at", "open_count"
        ]
    )  # fmt: skip
    if was != Breaker.OPEN:
        meters.count_at_commit(meters.BREAKER_OPENED, str(code))
    if was == Breaker.CLOSED or code == Code.QUOTA_EXHAUSTED:
        until_text = until.isoformat() if until else None
        details = {"code": str(code), "until": until_text}
        _record(row, activity.SYSTEM, "connection.opened", now, details)


def _close(row: ProviderConnection, actor: activity.Actor, now: datetime) -> None:
    row.breaker, row.open_code, row.open_until = Breaker.CLOSED, "", None
    row.opened_at, row.probe_until, row.open_count, row.failed_at = None, None, 0, []
    row.save(
        update_fields=[
            "breaker", "open_code", "open_until", "opened_at", "probe_until", "open_count",
            "failed_at", "last_answer_at",
        ]
    )  # fmt: skip
    _record(row, actor, "connection.closed", now, {})
    live.wake()  # what waited may start


def _record(
    row: ProviderConnection,
    actor: activity.Actor,
    action: str,
    now: datetime,
    details: Mapping[str, object],
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
    live.publish(row.company_id, "inbox")
