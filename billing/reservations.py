"""Money kept aside before it is spent: what makes a budget a wall and not a report.

    grant -> HELD --receipt--> SETTLED
                  --nothing was sent--> RELEASED
                  --its run was lost--> UNKNOWN --receipt, a person, a day--> SETTLED, RELEASED

A grant adds the worst case to every total it concerns in one statement that carries its bound, so
that no number of calls at once can pass a limit. A run's receipts come in the order of its calls,
but may come after the next grant: each settles the oldest.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Sum

from agents.adapters.base import Code
from agents.models import HeartbeatRun
from billing import totals
from billing.models import Budget, Reservation, Window
from billing.totals import Change, Line, Whose
from companies import activity, live

OLDEST = timedelta(hours=24)  # how long money waits for a receipt of a lost run
BATCH = 500

# After these the provider may have worked, and charge, although nothing came back.
DOUBTFUL = {Code.STREAM_BROKEN, Code.TIMED_OUT, Code.IDLE, Code.LOST, Code.CANCELLED, Code.INTERNAL}


def grant(
    *,
    whose: Whose,
    run_id: uuid.UUID,
    kind: str,
    amount_micros: int,
    provider: str,
    model: str,
    now: datetime,
) -> Reservation | None:
    """Keep `amount_micros` aside on every total, all or nothing; None when a limit has no room."""
    try:
        with transaction.atomic():
            freed = _end_estimate(run_id, now)
            kept = totals.lines(whose, Change(reserved_micros=amount_micros), now)
            if not totals.reserve(whose.company_id, [*freed, *kept], now=now):
                raise _NoRoomError
            if not _fits_run(whose, run_id, amount_micros):
                raise _NoRoomError
            return Reservation.objects.create(
                company_id=whose.company_id,
                agent_id=whose.agent_id,
                project_id=whose.project_id,
                run_id=run_id,
                kind=kind,
                provider=provider[:60],
                model=model[:120],
                granted_micros=amount_micros,
                open_micros=amount_micros,
                granted_at=now,
            )
    except _NoRoomError:
        return None


class _NoRoomError(Exception):
    """Rolls back what the other totals already got."""


def settle(
    *, run_id: uuid.UUID, cost_micros: int | None, is_own_call: bool, now: datetime
) -> list[Line]:
    """In the ledger's transaction: a receipt of this run came. Returns what becomes free.

    The oldest grant of a call ends with a receipt of the run's own calls; that of a whole run
    shrinks by what each receipt says.
    """
    held = (
        Reservation.objects.select_for_update(no_key=True)
        .filter(run_id=run_id, state__in=Reservation.OPEN)
        .order_by("granted_at", "id")
    )
    for reservation in held:
        if reservation.kind == Reservation.Kind.RUN:
            part = min(reservation.open_micros, max(0, cost_micros or 0))
            freed = _lines(reservation, -part)
            reservation.open_micros -= part
            reservation.settled_micros += cost_micros or 0
            reservation.save(update_fields=["open_micros", "settled_micros"])
            return freed
        if is_own_call:
            return _end(reservation, Reservation.State.SETTLED, now, settled=cost_micros or 0)
    return []


def release(*, run_id: uuid.UUID, now: datetime) -> None:
    """Nothing was sent, or the run is over and all its receipts are in: free what it kept."""
    with transaction.atomic():
        mine = Reservation.objects.select_for_update(no_key=True).filter(
            run_id=run_id, state=Reservation.State.HELD
        )
        for reservation in mine:
            freed = _end(reservation, Reservation.State.RELEASED, now)
            totals.add(reservation.company_id, freed, now=now)


def write_off(*, reservation: Reservation, actor: activity.Actor, now: datetime) -> Reservation:
    """A person decides that no receipt will come for a lost run: free what it kept."""
    with transaction.atomic():
        fresh = Reservation.objects.select_for_update(no_key=True).get(id=reservation.id)
        if fresh.state == Reservation.State.UNKNOWN:
            freed = _end(fresh, Reservation.State.RELEASED, now)
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
            lines = _end(reservation, Reservation.State.RELEASED, now)
            freed.setdefault(reservation.company_id, []).extend(lines)
        for company, lines in sorted(freed.items()):
            totals.add(company, lines, now=now)
            live.publish(company, "costs")
    return len(over)


def call_of(run_id: uuid.UUID) -> Reservation | None:
    """The grant that the run's next receipt settles."""
    return (
        Reservation.objects.filter(
            run_id=run_id, kind=Reservation.Kind.CALL, state__in=Reservation.OPEN
        )
        .order_by("granted_at", "id")
        .first()
    )


# --- inside ------------------------------------------------------------------------------------


def _end_estimate(run_id: uuid.UUID, now: datetime) -> list[Line]:
    """A new grant takes the place of what was kept for the whole run."""
    estimates = Reservation.objects.select_for_update(no_key=True).filter(
        run_id=run_id, kind=Reservation.Kind.RUN, state=Reservation.State.HELD
    )
    freed = [_end(each, Reservation.State.RELEASED, now) for each in estimates]
    return [line for lines in freed for line in lines]


def _end(reservation: Reservation, state: str, now: datetime, settled: int = 0) -> list[Line]:
    """Write the end; the guard is the row's lock, which the caller holds."""
    freed = _lines(reservation, -reservation.open_micros)
    reservation.state = state
    reservation.open_micros = 0
    reservation.settled_micros += settled
    reservation.ended_at = now
    reservation.save(update_fields=["state", "open_micros", "settled_micros", "ended_at"])
    return freed


def _lines(reservation: Reservation, micros: int) -> list[Line]:
    """On the totals of the periods in which it was granted."""
    if micros == 0:
        return []
    whose = Whose(reservation.company_id, reservation.agent_id, reservation.project_id)
    return totals.lines(whose, Change(reserved_micros=micros), reservation.granted_at)


def _fits_run(whose: Whose, run_id: uuid.UUID, amount_micros: int) -> bool:
    """The cap of one run. The agent's totals are locked by now, so nobody else grants for it."""
    limit = run_limit(whose.scopes())
    if limit is None:
        return True
    spent = HeartbeatRun.objects.filter(id=run_id).values_list("cost_micros", flat=True).first()
    mine = Reservation.objects.filter(run_id=run_id, state__in=Reservation.OPEN)
    kept = mine.aggregate(kept=Sum("open_micros"))["kept"] or 0
    return (spent or 0) < limit and (spent or 0) + kept + amount_micros <= limit


def run_limit(scopes: Iterable[tuple[str, uuid.UUID]]) -> int | None:
    """The tightest hard limit for one run among these scopes."""
    caps = Budget.objects.filter(
        window=Window.RUN, is_hard=True, scope_id__in=[scope_id for _, scope_id in scopes]
    )
    return min(caps.values_list("limit_micros", flat=True), default=None)


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
