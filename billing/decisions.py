"""What a person decides about money that is kept for a lost run and gets no receipt."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from agents.adapters import base
from agents.models import HeartbeatRun
from billing import ledger, reservations, totals
from billing.models import Reservation
from companies import activity, live
from companies.errors import Conflict, Invalid

State = Reservation.State


def release(*, reservation: Reservation, actor: activity.Actor, now: datetime) -> Reservation:
    """Nothing was spent: free what is kept. Raises Conflict when it is not waiting any more."""
    fresh = reservations.write_off(reservation=reservation, actor=actor, now=now)
    if fresh.state != State.RELEASED:
        raise _decided(fresh)
    live.publish(fresh.company_id, "costs")
    return fresh


def book(
    *, reservation: Reservation, cost_micros: int, actor: activity.Actor, now: datetime
) -> ledger.Booked:
    """The provider's page says what it cost: book that in the period of the grant and free the
    rest. Raises Invalid for an amount that cannot be, Conflict when it is not waiting any more."""
    if type(cost_micros) is not int or not 0 <= cost_micros <= ledger.MAX_MICROS:
        raise Invalid("amount_out_of_range", "A cost is an amount from 0 up.", field="cost")
    with transaction.atomic():
        # Run, reservation, totals: the order in which receipts lock.
        HeartbeatRun.objects.select_for_update(no_key=True).filter(id=reservation.run_id).first()
        fresh = Reservation.objects.select_for_update(no_key=True).get(id=reservation.id)
        if fresh.state != State.UNKNOWN:
            raise _decided(fresh)
        freed = reservations.end(fresh, State.SETTLED, now, settled=cost_micros)
        totals.add(fresh.company_id, freed, now=now)
        booked = ledger.book(
            company_id=fresh.company_id,
            agent_id=fresh.agent_id,
            run_id=fresh.run_id,
            project_id=fresh.project_id,
            usage=base.Usage(
                call=0,
                provider=fresh.provider or "unknown",
                model=fresh.model or "unknown",
                cost_micros=cost_micros,
                source="none",
            ),
            key=f"decided:{fresh.id}",
            note=f"Booked by {actor.name} for a run that was lost.",
            occurred_at=fresh.granted_at,
            now=now,
        )
        activity.record(
            company_id=fresh.company_id,
            actor=actor,
            action="reservation.booked",
            entity_type="reservation",
            entity_id=fresh.id,
            entity_name=fresh.model,
            details={"runId": str(fresh.run_id), "costMicros": cost_micros},
            now=now,
        )
    return booked


def _decided(reservation: Reservation) -> Conflict:
    return Conflict(
        "reservation_decided",
        "This one does not wait for a decision any more.",
        details={"state": reservation.state},
    )
