"""Runs whose calls nobody sees: commands, agents of their own, servers.

A chat model asks before each call; these report afterwards, often only at their end. So what such a
run usually costs is kept aside before it starts, and after each report as much as its dearest one
so far, or the run is stopped. Without a history its limit of one run is kept, or it is the only
such run at each of its limits and keeps half of what is left there.
Not for calls that are asked for: `grants.py`. Why so: decision 10.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from enum import Enum

from django.db import connection, transaction
from django.db.models import Q, QuerySet

from agents import adapters
from agents.models import Agent, HeartbeatRun
from billing import reservations, totals
from billing.models import Reservation, Scope
from billing.totals import Standing, Whose

SIMILAR_RUNS = 50  # of an agent, from which the cost of the next is estimated


def is_unseen(agent: Agent) -> bool:
    """A chat model's calls are each asked for; other agents make theirs unseen."""
    try:
        return not adapters.get(agent.adapter_type).uses_tools
    except adapters.UnknownAdapter:
        return False  # it will not run at all


def usual_cost(agent_id: uuid.UUID) -> int | None:
    """What 95 of 100 runs of this agent stay below, in micro-dollars; None without a history.

    A run that failed before it cost anything says nothing, and an unknown cost is not 0.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT percentile_disc(0.95) WITHIN GROUP (ORDER BY cost_micros) FROM "
            "(SELECT cost_micros FROM agents_heartbeatrun WHERE agent_id = %s "
            "AND finished_at IS NOT NULL AND started_at IS NOT NULL "
            "AND (cost_micros > 0 OR (status = %s AND unpriced_calls = 0)) "
            "ORDER BY created_at DESC, id DESC LIMIT %s) recent",
            [agent_id, HeartbeatRun.Status.SUCCEEDED, SIMILAR_RUNS],
        )
        found = cursor.fetchone()[0]
    return None if found is None else int(found)


def limits(whose: Whose, now: datetime) -> list[Standing]:
    """The hard limits of money that it concerns, as they stand."""
    standing = totals.standing(whose.scopes(), now)
    return [each for each in standing if each.limit_micros is not None]


class Entry(Enum):
    """Whether a run of which nobody knows the cost may start."""

    FREE = "free"
    KNOWN = "somebody knows by now"
    BUSY = "another such run is under way at one of its limits"
    FULL = "nothing is left"


def let_first_in(*, whose: Whose, run_id: uuid.UUID, now: datetime) -> Entry:
    """Let one run start that may cost anybody knows what: it keeps aside all that is left of its
    agent's own limits, or half of what is left of those it shares, whichever is less.

    The company's first runs are looked at one by one, until the transaction is over: without that,
    all who look at the same moment would find themselves alone.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('first run ' || %s, 0))",
                [str(whose.company_id)],
            )
        if usual_cost(whose.agent_id) is not None:
            return Entry.KNOWN  # the first has ended while we looked
        walls = limits(whose, now)
        if not walls:
            return Entry.FREE
        if _others(whose, run_id, walls).exists():
            return Entry.BUSY
        amount = min(_share(each) for each in walls)
        if amount <= 0 or not _keep(whose, run_id, amount, now):
            return Entry.FULL
        _whole(run_id).update(is_guess=True)
    return Entry.FREE


def top_up(*, run_id: uuid.UUID, micros: int, now: datetime) -> bool:
    """Keep at least `micros` aside for what a run reports next; False when a limit has no room for
    that, and the run should be stopped. One that is over needs nothing any more.
    """
    with transaction.atomic():
        run = (
            HeartbeatRun.objects.select_for_update(no_key=True, of=("self",))
            .select_related("issue")
            .filter(pk=run_id, status=HeartbeatRun.Status.RUNNING)
            .first()
        )
        kept = _whole(run_id).first()
        if run is None or (kept is not None and kept.open_micros >= micros):
            return True
        project_id = run.issue.project_id if run.issue else None
        whose = Whose(run.company_id, run.agent_id, kept.project_id if kept else project_id)
        if kept is None and not limits(whose, now):
            return True
        if not _keep(whose, run_id, micros, now):
            return False
        if kept is not None and kept.is_guess:
            _whole(run_id).update(is_guess=True)
    return True


# --- inside ------------------------------------------------------------------------------------


def _keep(whose: Whose, run_id: uuid.UUID, micros: int, now: datetime) -> bool:
    return reservations.grant(
        whose=whose,
        run_id=run_id,
        kind=Reservation.Kind.RUN,
        amount_micros=micros,
        provider="",
        model="",
        run_limit_micros=None,
        now=now,
    )


def _share(wall: Standing) -> int:
    assert wall.limit_micros is not None
    left = wall.limit_micros - wall.spent_micros - wall.reserved_micros
    return left if wall.scope == Scope.AGENT else (left + 1) // 2


def _whole(run_id: uuid.UUID) -> QuerySet[Reservation]:
    return Reservation.objects.filter(
        run_id=run_id, kind=Reservation.Kind.RUN, state=Reservation.State.HELD
    )


def _others(whose: Whose, run_id: uuid.UUID, walls: Sequence[Standing]) -> QuerySet[Reservation]:
    """First runs under way that can spend from one of these limits."""
    scopes = {Scope(each.scope) for each in walls}
    rows = Reservation.objects.for_company(whose.company_id).filter(
        is_guess=True, state=Reservation.State.HELD
    )
    if Scope.COMPANY not in scopes:
        shared = Q()
        if Scope.AGENT in scopes:
            shared |= Q(agent_id=whose.agent_id)
        if Scope.PROJECT in scopes:
            shared |= Q(project_id=whose.project_id)
        rows = rows.filter(shared)
    return rows.exclude(run_id=run_id)
