"""Money kept aside before it is spent: what makes a budget a wall and not a report.

    grant -> HELD --receipt--> SETTLED
                  --nothing was sent--> RELEASED
                  --its run was lost--> UNKNOWN --receipt, a person, a day--> SETTLED, RELEASED

A grant adds the worst case to every total it concerns in one statement that carries its bound, so
that no number of calls at once can pass a limit (`billing_reserve`, migration 0010). A run's
receipts come in the order of its calls, but may come after the next grant: each settles the oldest
(`billing_book`, there as well).
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.db import DatabaseError, connection, transaction

from agents.adapters.base import Code
from agents.models import HeartbeatRun
from billing import durable, totals
from billing.models import Reservation
from billing.totals import Change, Line, Whose
from companies import activity, live
from companies.ids import new_id

OLDEST = timedelta(hours=24)  # how long money waits for a receipt of a lost run
KEEP = timedelta(days=35)
BATCH = 500

# After these the provider may have worked, and charge, although nothing came back.
DOUBTFUL = {Code.STREAM_BROKEN, Code.TIMED_OUT, Code.IDLE, Code.LOST, Code.CANCELLED, Code.INTERNAL}


_GRANT = "SELECT billing_reserve(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
NO_ROOM = "PC402"


def grant(
    *,
    whose: Whose,
    run_id: uuid.UUID,
    kind: str,
    amount_micros: int,
    provider: str,
    model: str,
    run_limit_micros: int | None,
    now: datetime,
) -> bool:
    """Keep `amount_micros` aside on every total, all or nothing; False when a limit has no room.

    For a whole run it takes the place of what was kept for that run before.
    """
    values = [
        new_id(),
        whose.company_id,
        whose.agent_id,
        whose.project_id,
        run_id,
        str(kind),
        provider[:60],
        model[:120],
        amount_micros,
        run_limit_micros,
        now,
    ]
    try:
        if connection.in_atomic_block:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(_GRANT, [*values, False])
        else:
            with connection.cursor() as cursor:
                cursor.execute(_GRANT, [*values, True])
            durable.until_on_disk()
    except DatabaseError as error:
        if durable.sqlstate(error) == NO_ROOM:
            return False
        raise
    return True


def release(*, run_id: uuid.UUID, now: datetime) -> None:
    """Nothing was sent, or the run is over and all its receipts are in: free what it kept."""
    with transaction.atomic():
        mine = Reservation.objects.select_for_update(no_key=True).filter(
            run_id=run_id, state=Reservation.State.HELD
        )
        for reservation in mine:
            freed = end(reservation, Reservation.State.RELEASED, now)
            totals.add(reservation.company_id, freed, now=now)


def write_off(*, reservation: Reservation, actor: activity.Actor, now: datetime) -> Reservation:
    """A person decides that no receipt will come for a lost run: free what it kept."""
    with transaction.atomic():
        fresh = Reservation.objects.select_for_update(no_key=True).get(id=reservation.id)
        if fresh.state == Reservation.State.UNKNOWN:
            freed = end(fresh, Reservation.State.RELEASED, now)
            totals.add(fresh.company_id, freed, now=now)
            _record(fresh, actor, "reservation.written_off", now)
    return fresh


def sweep(*, now: datetime, company_id: uuid.UUID | None = None) -> int:
    """End the grants of runs that are over; return how many changed.

    A run that ended in the open leaves nothing behind. One that was lost, cancelled or cut may
    still cost: its grant waits as `unknown`, at most a day.
    """
    with transaction.atomic():
        over = _over(now, company_id)
        freed: dict[uuid.UUID, list[Line]] = {}
        for reservation, status, code in over:
            old = now - reservation.granted_at > OLDEST
            doubtful = status is None or _is_doubtful(reservation, status, code)
            if doubtful and not old:
                Reservation.objects.filter(id=reservation.id).update(
                    state=Reservation.State.UNKNOWN
                )
                continue
            if reservation.state == Reservation.State.UNKNOWN or doubtful:
                _record(reservation, activity.SYSTEM, "reservation.expired", now)
            lines = end(reservation, Reservation.State.RELEASED, now)
            freed.setdefault(reservation.company_id, []).extend(lines)
        for company, lines in sorted(freed.items()):
            totals.add(company, lines, now=now)
            live.publish(company, "costs")
    return len(over)


def forget(*, now: datetime, limit: int = 5_000) -> int:
    """Delete what ended a month ago; at most `limit`, returns how many. The ledger stays."""
    old = Reservation.objects.filter(ended_at__lt=now - KEEP).order_by("ended_at")
    gone, _ = Reservation.objects.filter(
        id__in=list(old.values_list("id", flat=True)[:limit])
    ).delete()
    return gone


def call_of(run_id: uuid.UUID) -> Reservation | None:
    """The grant that the run's next receipt settles."""
    return (
        Reservation.objects.filter(
            run_id=run_id, kind=Reservation.Kind.CALL, state__in=Reservation.OPEN
        )
        .order_by("granted_at", "id")
        .first()
    )


def end(reservation: Reservation, state: str, now: datetime, settled: int = 0) -> list[Line]:
    """Write how one ended and return what that frees. The guard is the row's lock, which the caller
    holds."""
    freed = _lines(reservation, -reservation.open_micros)
    reservation.state = state
    reservation.open_micros = 0
    reservation.settled_micros += settled
    reservation.ended_at = now
    reservation.save(update_fields=["state", "open_micros", "settled_micros", "ended_at"])
    return freed


# --- inside ------------------------------------------------------------------------------------


def _lines(reservation: Reservation, micros: int) -> list[Line]:
    """On the totals of the periods in which it was granted."""
    if micros == 0:
        return []
    whose = Whose(reservation.company_id, reservation.agent_id, reservation.project_id)
    return totals.lines(whose, Change(reserved_micros=micros), reservation.granted_at)


def _over(now: datetime, company_id: uuid.UUID | None) -> list[tuple[Reservation, str | None, str]]:
    """Held grants whose run is over and unknown ones past their age, locked, with the run's end."""
    mine = Reservation.objects.filter(company_id=company_id) if company_id else Reservation.objects
    live_runs = HeartbeatRun.objects.live().values("id")
    held = mine.filter(state=Reservation.State.HELD).exclude(run_id__in=live_runs)
    aged = mine.filter(state=Reservation.State.UNKNOWN, granted_at__lt=now - OLDEST)
    ids = [*held.values_list("id", flat=True)[:BATCH], *aged.values_list("id", flat=True)[:BATCH]]
    rows = list(
        Reservation.objects.select_for_update(no_key=True, skip_locked=True)
        .filter(id__in=ids, state__in=Reservation.OPEN)
        .order_by("id")
    )
    ends = {
        run_id: (status, code)
        for run_id, status, code in HeartbeatRun.objects.filter(
            id__in=[row.run_id for row in rows]
        ).values_list("id", "status", "code")
    }
    return [(row, *ends.get(row.run_id, (None, ""))) for row in rows]


def _is_doubtful(reservation: Reservation, status: str, code: str) -> bool:
    if reservation.kind == Reservation.Kind.RUN and status == HeartbeatRun.Status.SUCCEEDED:
        return False
    lost = status in (HeartbeatRun.Status.LOST, HeartbeatRun.Status.UNKNOWN)
    return lost or code in DOUBTFUL or status == HeartbeatRun.Status.CANCELLED


def _record(reservation: Reservation, actor: activity.Actor, action: str, now: datetime) -> None:
    activity.record(
        company_id=reservation.company_id,
        actor=actor,
        action=action,
        entity_type="reservation",
        entity_id=reservation.id,
        entity_name=reservation.model,
        details={"runId": str(reservation.run_id), "openMicros": reservation.open_micros},
        now=now,
    )
