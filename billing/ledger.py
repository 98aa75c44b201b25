"""The ledger: what was spent is written down once, exactly, whoever reports it.

A receipt is never fenced: a run that lost its lease still spent what it spent. What makes it safe
is the key: the same key with the same content is the same receipt, with another content it is
refused. Event, key, roll-up, running totals, the run's own totals and the budgets' reaction commit
together: in one statement (`billing_book`, migration 0010) unless somebody must be told.
Read next: `totals.py`, `budgets.py`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from typing import Any

import orjson
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from agents.adapters import base
from billing import durable, holds, incidents, owners, prices, reservations
from billing.models import CostEvent, Spend
from companies import activity, live
from companies.errors import NotFound, Refusal
from companies.ids import new_id

MAX_TOKENS = base.MAX_TOKENS
MAX_MICROS = 10**12  # a million dollars for one call is a fault, not a cost
LATEST = timedelta(minutes=5)  # how far a reporter's clock may run ahead
DEADLOCKS = 4  # how often one receipt may be chosen
OLDEST = timedelta(days=35)  # how late a receipt may come; keys are kept at least as long


@dataclass(frozen=True, slots=True)
class Booked:
    """`event_id` is None when nothing was used, so that nothing was written.

    `exhausted` tells the run that a hard limit is reached now: it should stop here.
    """

    event_id: uuid.UUID | None
    cost_micros: int | None
    status: str
    duplicate: bool = False
    exhausted: bool = False


NOTHING = Booked(None, 0, "none")


def book(
    *,
    company_id: uuid.UUID,
    agent_id: uuid.UUID,
    usage: base.Usage,
    key: str,
    run_id: uuid.UUID | None = None,
    issue_id: uuid.UUID | None = None,
    project_id: uuid.UUID | None = None,
    goal_id: uuid.UUID | None = None,
    billing_code: str = "",
    biller: str = "",
    billing_type: str = CostEvent.BillingType.METERED,
    note: str = "",
    occurred_at: datetime | None = None,
    follows_work: bool = False,
    now: datetime | None = None,
) -> Booked:
    """Book what one call used, once. The cost is what the provider reported, else tokens times
    the price of that moment, else unknown (never 0).

    It occurred at `occurred_at`; else when the call was granted, else now. The ids must already
    be the company's own; the project follows from the issue. `follows_work`: the run may work on
    several issues, and the one it has in hand bears the cost (`owners.py`). A call that
    used nothing leaves no row. Raises Refusal: `cost_key_reused` when the key was used for
    something else, `amount_out_of_range` and `occurred_at_out_of_range` for what cannot be true.
    """
    now = now or timezone.now()
    is_now, occurred_at = occurred_at is None, occurred_at or now
    _check(usage, key, occurred_at, now)
    if _is_nothing(usage):
        return NOTHING
    priced = _price(company_id, usage, billing_type, occurred_at)
    if priced.cost_micros is None and run_id is not None:
        priced = _price_as_granted(run_id, usage, occurred_at)
    event = CostEvent(
        id=new_id(),
        company_id=company_id,
        agent_id=agent_id,
        run_id=run_id,
        issue_id=issue_id,
        project_id=project_id,
        goal_id=goal_id,
        billing_code=billing_code[:80],
        provider=usage.provider[:60],
        biller=(biller or usage.provider)[:60],
        billing_type=billing_type,
        model=usage.model[:120],
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        usage_source=usage.source,
        cost_micros=priced.cost_micros,
        cost_status=priced.status,
        price_source=priced.source,
        price_version=priced.version,
        note=note[:500],
        occurred_at=occurred_at,
        recorded_at=now,
    )
    fingerprint = _fingerprint(event, usage)  # of what was said, wherever the run is by now
    if follows_work and run_id is not None:
        owners.settle(event)
    return _patiently(event, key, fingerprint, now, is_now=is_now)


def correct(
    *,
    event: CostEvent,
    cost_micros: int,
    note: str,
    key: str,
    actor: activity.Actor,
    now: datetime | None = None,
) -> Booked:
    """Add `cost_micros` (which may be negative) to what an event cost, as a row of its own.

    The event itself stays as it was booked. Counts in the period of `now`, so that a closed
    month is never changed afterwards.
    """
    now = now or timezone.now()
    if type(cost_micros) is not int or abs(cost_micros) > MAX_MICROS:
        raise Refusal("amount_out_of_range", "That amount cannot be.", field="costMicros")
    _check_key(key)
    row = CostEvent(
        id=new_id(),
        company_id=event.company_id,
        agent_id=event.agent_id,
        run_id=event.run_id,
        issue_id=event.issue_id,
        project_id=event.project_id,
        goal_id=event.goal_id,
        billing_code=event.billing_code,
        provider=event.provider,
        biller=event.biller,
        billing_type=event.billing_type,
        model=event.model,
        usage_source="none",
        cost_micros=cost_micros,
        cost_status=CostEvent.CostStatus.REPORTED,
        price_source="correction",
        reverses_id=event.id,
        note=note[:500],
        occurred_at=now,
        recorded_at=now,
    )
    with transaction.atomic():
        booked = _write(row, key, _digest([str(event.id), cost_micros, note]), now)
        if not booked.duplicate:
            activity.record(
                company_id=event.company_id,
                actor=actor,
                action="cost.corrected",
                entity_type="cost_event",
                entity_id=event.id,
                entity_name=event.model,
                details={"costMicros": cost_micros, "note": note},
                now=now,
            )
    return booked


def run_key(run_id: uuid.UUID, call: int | str) -> str:
    """The key of a run's n-th model call."""
    return f"run:{run_id}:{call}"


def forget_keys(*, now: datetime, limit: int = 5_000) -> int:
    """Delete keys of receipts that would be too late anyway; at most `limit`, returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM billing_costkey WHERE (company_id, key) IN (SELECT company_id, key "
            "FROM billing_costkey WHERE created_at < %s ORDER BY created_at LIMIT %s)",
            [now - OLDEST - timedelta(days=1), limit],
        )
        return cursor.rowcount


_COLUMNS = CostEvent._meta.concrete_fields


# --- writing -----------------------------------------------------------------------------------


def _patiently(
    event: CostEvent, key: str, fingerprint: str, now: datetime, *, is_now: bool
) -> Booked:
    """Write; again when PostgreSQL chose us to end a deadlock with a verb that locks in another
    order. The key makes a repeat harmless. Inside a caller's transaction there is no again."""
    for attempt in range(DEADLOCKS):
        try:
            return _write(event, key, fingerprint, now, is_now=is_now)
        except DatabaseError as error:
            again = durable.sqlstate(error) == "40P01" and not connection.in_atomic_block
            if not again or attempt == DEADLOCKS - 1:
                raise
    raise AssertionError("unreachable")


MUST_BE_TOLD = "PC403"
RUN_TOO_OLD = "PC410"


def _write(
    event: CostEvent, key: str, fingerprint: str, now: datetime, *, is_now: bool = False
) -> Booked:
    """In one statement; when a mark or a limit is passed by it, in a transaction with what follows
    from that. `is_now`: the caller did not say when it occurred."""
    values = _values(event, key, fingerprint, now, is_now=is_now)
    try:
        if connection.in_atomic_block:
            is_new, exhausted = _book_and_tell(event, values, now)
        else:
            try:
                is_new, exhausted, _ = _book(values, alone=True)
                durable.until_on_disk()
            except DatabaseError as error:
                if durable.sqlstate(error) != MUST_BE_TOLD:
                    raise
                is_new, exhausted = _book_and_tell(event, values, now)
    except DatabaseError as error:
        if durable.sqlstate(error) == RUN_TOO_OLD:
            raise Refusal(
                "occurred_at_out_of_range",
                f"This run is more than {OLDEST.days} days old; correct one of its costs instead.",
                field="runId",
            ) from error
        raise
    if not is_new:
        return _stored(event.company_id, key, fingerprint)
    live.publish(event.company_id, "costs")
    if event.run_id is not None:
        live.publish(event.company_id, "run", event.run_id)
    return Booked(event.id, event.cost_micros, event.cost_status, exhausted=exhausted)


_BOOK = "SELECT is_new, over_run, due FROM billing_book(%s, %s, %s, %s, %s, %s, %s)"


def _values(
    event: CostEvent, key: str, fingerprint: str, now: datetime, *, is_now: bool
) -> list[Any]:
    row = {field.attname: getattr(event, field.attname) for field in _COLUMNS}
    is_own_call = event.run_id is not None and key.startswith(run_key(event.run_id, ""))
    return [orjson.dumps(row).decode(), key, fingerprint, is_own_call, is_now, now - OLDEST]


def _book(values: Sequence[Any], *, alone: bool) -> tuple[bool, bool, list[dict[str, Any]]]:
    """Whether the key was free, whether the run has reached the limit of one run, and the totals
    that somebody must be told about. Waits for a concurrent booking under the same key."""
    with connection.cursor() as cursor:
        cursor.execute(_BOOK, [*values, alone])
        is_new, over_run, due = cursor.fetchone()
    return is_new, over_run, json.loads(due) if isinstance(due, str) else due or []


def _book_and_tell(event: CostEvent, values: Sequence[Any], now: datetime) -> tuple[bool, bool]:
    """Whether the key was free, and whether a limit is reached now."""
    with durable.transaction_with_short_locks():
        is_new, over_run, due = _book(values, alone=False)
        spends = [_spend(event, each) for each in due]
        incidents.note(spends, now=now)
        exhausted = holds.enforce(spends, now=now)
    return is_new, over_run or exhausted


def _spend(event: CostEvent, row: Mapping[str, Any]) -> Spend:
    """A total as the booking has left it."""
    start = date.fromisoformat(row["period_start"])
    return Spend(**{**row, "period_start": start}, company_id=event.company_id)


_STORED = """
SELECT taken.fingerprint, event.id, event.cost_micros, event.cost_status
  FROM billing_costkey taken
  LEFT JOIN billing_costevent event
         ON event.id = taken.event_id AND event.company_id = taken.company_id
 WHERE taken.company_id = %s AND taken.key = %s
"""


def _stored(company_id: uuid.UUID, key: str, fingerprint: str) -> Booked:
    with connection.cursor() as cursor:
        cursor.execute(_STORED, [company_id, key])
        known, event_id, cost_micros, status = cursor.fetchone()
    if known != fingerprint:
        raise Refusal(
            "cost_key_reused", "This key was already used for another cost.", details={"key": key}
        )
    if event_id is None:
        raise NotFound("That cost was archived.")
    return Booked(event_id, cost_micros, status, duplicate=True)


# --- reading the receipt -----------------------------------------------------------------------


def _price(
    company_id: uuid.UUID, usage: base.Usage, billing_type: str, occurred_at: datetime
) -> prices.Priced:
    if billing_type == CostEvent.BillingType.SUBSCRIPTION:
        return prices.Priced(0, CostEvent.CostStatus.REPORTED, "subscription")
    if usage.cost_micros is not None:
        return prices.Priced(usage.cost_micros, CostEvent.CostStatus.REPORTED, "provider")
    return prices.price(
        company_id=company_id,
        provider=usage.provider,
        model=usage.model,
        usage=usage,
        now=occurred_at,
    )


def _price_as_granted(run_id: uuid.UUID, usage: base.Usage, occurred_at: datetime) -> prices.Priced:
    """A server may answer under another name than it was asked for. What was granted was the
    model asked for, at a known price: that price counts, so that no name slips past a limit."""
    granted = reservations.call_of(run_id)
    if granted is None:
        return prices.UNPRICED
    return prices.price(
        company_id=granted.company_id,
        provider=granted.provider,
        model=granted.model,
        usage=usage,
        now=occurred_at,
    )


def _check(usage: base.Usage, key: str, occurred_at: datetime, now: datetime) -> None:
    _check_key(key)
    for name, value in asdict(usage).items():
        if name.endswith("_tokens") and not _within(value, MAX_TOKENS):
            raise Refusal("amount_out_of_range", f"{name} cannot be {value!r:.40}.", field=name)
    if usage.cost_micros is not None and not _within(usage.cost_micros, MAX_MICROS):
        raise Refusal("amount_out_of_range", "That cost cannot be.", field="costMicros")
    if not now - OLDEST <= occurred_at <= now + LATEST:
        raise Refusal(
            "occurred_at_out_of_range",
            f"A cost is booked within {OLDEST.days} days, and never before it occurs.",
            field="occurredAt",
        )


def _check_key(key: str) -> None:
    if not isinstance(key, str) or not 0 < len(key) <= 200 or "\x00" in key:
        raise Refusal("cost_key_invalid", "A key has 1 to 200 characters.", field="key")


def _within(value: object, limit: int) -> bool:
    return type(value) is int and 0 <= value <= limit


def _is_nothing(usage: base.Usage) -> bool:
    """A call that was never answered. With source `none` it was, and what it used is unknown."""
    counted = usage.input_tokens + usage.output_tokens + usage.cache_read_tokens
    return usage.source != "none" and counted == 0 and usage.cost_micros is None


def _fingerprint(event: CostEvent, usage: base.Usage) -> str:
    """Of what was reported, not of the price it got: a repeat after a price change is a repeat."""
    who = (event.agent_id, event.run_id, event.issue_id, event.billing_type)
    said = {name: value for name, value in asdict(usage).items() if name != "call"}
    return _digest([*(str(each) for each in who), said])


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
