"""The question before every model call: may it be made, and what is kept aside for it.

A call that a hard limit has no room for is refused here, with what to do about it. What is kept
aside is settled by the receipt (`ledger.py`); how it is kept is `reservations.py`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NoReturn

from django.db import connection
from django.utils import timezone

from agents.models import Agent
from billing import holds, prices, reservations, totals, unseen
from billing.models import Reservation, Window
from billing.totals import Standing, Whose
from billing.unseen import Entry
from companies.errors import Refusal
from companies.format import money

# An issue whose run was refused a call stands blocked, and nothing but a person starts it again; a
# run that was refused as a whole waits for room.
AGAIN = "choose “Try again”: a higher limit alone does not start it."
BY_ITSELF = "it starts by itself then."


class BudgetExhausted(Refusal):
    """A hard limit does not leave room for a model call. `details` says which and why."""

    status = 402
    again_in = timedelta(hours=1)  # when a run that could not start for it tries once more


class RoomTaken(BudgetExhausted):
    """Only what is kept aside for others is in the way, and some of that comes back."""

    again_in = timedelta(minutes=5)


class FirstRunUnderWay(RoomTaken):
    """Nobody knows what a run like this costs, and another one of that kind is being tried."""

    again_in = timedelta(minutes=1)


def check_call(
    *,
    agent: Agent,
    run_id: uuid.UUID | None = None,
    project_id: uuid.UUID | None = None,
    provider: str = "",
    model: str = "",
    input_tokens: int = 0,
    max_output_tokens: int = 0,
    now: datetime | None = None,
) -> None:
    """Asked before each model call: keeps its worst case aside for `run_id`, on the agent, its
    project and the company, until the receipt of the call is booked.

    Without a model it is asked for a whole run: where nobody will see its calls (a command, a
    server), what such runs cost is kept (`unseen.py`). Raises BudgetExhausted when a hard limit has
    no room, or when nobody knows what the model costs and a hard limit of money stands;
    FirstRunUnderWay when nobody knows what the run costs and another such run is under way.
    """
    now = now or timezone.now()
    facts = _facts_of(agent, run_id, project_id, provider, model, now)
    whose, run_limit = Whose(agent.company_id, agent.id, facts.project_id), facts.run_limit_micros
    if not model:
        kind = Reservation.Kind.RUN
        usual = unseen.usual_cost(agent.id) if unseen.is_unseen(agent) else 0
        if usual is None and run_limit is None and run_id is not None and facts.is_limited:
            if _let_first_in(agent, whose, run_id, now):
                return
            usual = unseen.usual_cost(agent.id)
        # No run costs more than its own limit, which stops it.
        known = [each for each in (usual, run_limit) if each is not None]
        amount = min(known, default=0)
    else:
        kind = Reservation.Kind.CALL
        amount = _worst_case(
            whose, facts.own_price, provider, model, input_tokens, max_output_tokens, now
        )
    if run_id is None or amount == 0:
        if run_limit == 0 or (facts.is_limited and not _has_room(whose, amount, now)):
            _refuse(whose, amount, now, kind)
        return
    for attempt in range(2):
        if reservations.grant(
            whose=whose,
            run_id=run_id,
            kind=kind,
            amount_micros=amount,
            provider=provider,
            model=model,
            run_limit_micros=run_limit,
            now=now,
        ):
            return
        # What runs that are over have kept may be all that is missing.
        if attempt == 0 and reservations.sweep(now=now, company_id=whose.company_id) == 0:
            break
    _refuse(whose, amount, now, kind)


def _let_first_in(agent: Agent, whose: Whose, run_id: uuid.UUID, now: datetime) -> bool:
    """A run of which nobody knows what it costs; False when somebody knows by now. Raises
    FirstRunUnderWay, BudgetExhausted."""
    entry = unseen.let_first_in(whose=whose, run_id=run_id, now=now)
    # As above: one that is over may stand in the way.
    if entry in (Entry.BUSY, Entry.FULL) and reservations.sweep(
        now=now, company_id=whose.company_id
    ):
        entry = unseen.let_first_in(whose=whose, run_id=run_id, now=now)
    if entry is Entry.FULL:
        _refuse(whose, 1, now, Reservation.Kind.RUN)
    if entry is Entry.BUSY:
        raise FirstRunUnderWay(
            "budget_exhausted",
            f"Nobody knows yet what a run of {agent.name} costs, and another such run is under way"
            " within the same limit. This one starts when that is over. With a limit for one run,"
            " such runs need not wait for each other.",
            details={"reason": "first_run_under_way"},
        )
    return entry is Entry.FREE


@dataclass(frozen=True, slots=True)
class _Facts:
    """The project of the issue that a run is about, whether any limit stands there, the tightest
    one of one run, and the company's own price of the model."""

    project_id: uuid.UUID | None
    is_limited: bool
    run_limit_micros: int | None
    own_price: prices.Rates | None


_FACTS = """
SELECT facts.*, own.* FROM billing_facts_of_run(%s, %s, %s, %s) facts
  LEFT JOIN billing_own_price(%s, %s, %s, %s) own ON TRUE
"""

# The same for a whole run, which has no model; and is there anything to be looked at further? A
# total has no limit without a budget, but an agent's own daily cap is one.
_LIMITS = """
WITH about AS MATERIALIZED (
    SELECT coalesce(%(project_id)s::uuid, (
        SELECT issue.project_id FROM agents_heartbeatrun run
        JOIN issues_issue issue ON issue.id = run.issue_id WHERE run.id = %(run_id)s)) AS project_id
), budget AS MATERIALIZED (
    SELECT budget.* FROM about JOIN billing_budget budget
        ON (budget.scope = 'company' AND budget.scope_id = %(company_id)s)
        OR (budget.scope = 'agent' AND budget.scope_id = %(agent_id)s)
        OR (budget.scope = 'project' AND budget.scope_id = about.project_id)
)
SELECT about.project_id,
       EXISTS (SELECT 1 FROM budget) OR EXISTS (
           SELECT 1 FROM agents_agent
           WHERE id = %(agent_id)s AND max_daily_cost_micros IS NOT NULL),
       (SELECT min(limit_micros) FROM budget WHERE "window" = 'run' AND is_hard)
FROM about
"""


def _facts_of(
    agent: Agent,
    run_id: uuid.UUID | None,
    project_id: uuid.UUID | None,
    provider: str,
    model: str,
    now: datetime,
) -> _Facts:
    company_id = agent.company_id
    if not model:
        return _limits_of(agent, run_id, project_id)
    with connection.cursor() as cursor:
        values = [company_id, agent.id, run_id, project_id, company_id, provider, model, now]
        cursor.execute(_FACTS, values)
        project, run_limit, *price = cursor.fetchone()
    known = price[1] is not None  # a price names its model
    return _Facts(
        project,
        True,
        run_limit if run_id is not None else None,
        prices.own_rates(price) if known else None,
    )


def _limits_of(agent: Agent, run_id: uuid.UUID | None, project_id: uuid.UUID | None) -> _Facts:
    values = {
        "company_id": agent.company_id,
        "agent_id": agent.id,
        "run_id": run_id,
        "project_id": project_id,
    }
    with connection.cursor() as cursor:
        cursor.execute(_LIMITS, values)
        project, is_limited, run_limit = cursor.fetchone()
    return _Facts(project, is_limited, run_limit if run_id is not None else None, None)


def _worst_case(
    whose: Whose,
    own_price: prices.Rates | None,
    provider: str,
    model: str,
    input_tokens: int,
    max_output_tokens: int,
    now: datetime,
) -> int:
    """The most the call can cost. An unknown price is worth nothing to a wall, so it passes only
    where no hard limit stands, or where the limit lets a number of such calls pass."""
    found = own_price or prices.bundled(provider=provider, model=model, now=now)
    if found is not None:
        worst = prices.worst_micros(
            found, input_tokens=input_tokens, max_output_tokens=max_output_tokens
        )
        if worst is not None:
            return worst
    for each in totals.standing(whose.scopes(), now):
        if each.limit_micros is not None and each.unpriced_events >= each.unpriced_calls:
            raise BudgetExhausted(
                "budget_exhausted",
                f"Nobody knows what {model} costs, and the {each.scope} has a hard limit. Set a "
                "price for this model (0 if it is free), or let some such calls pass the budget.",
                details={"reason": "model_unpriced", "provider": provider, "model": model}
                | _facts(each),
            )
    return 0


def _has_room(whose: Whose, amount: int, now: datetime) -> bool:
    """For a call that keeps nothing aside: is anything left at all?"""
    return all(each.fits(amount) for each in totals.standing(whose.scopes(), now))


def _refuse(whose: Whose, amount: int, now: datetime, kind: str) -> NoReturn:
    """Say which limit it was: the narrowest one without room, else that of one run."""
    waits = kind == Reservation.Kind.RUN
    what, then = ("run", BY_ITSELF) if waits else ("call", f"then {AGAIN}")
    tight = next((e for e in totals.standing(whose.scopes(), now) if not e.fits(amount)), None)
    if tight is None:
        raise BudgetExhausted(
            "budget_exhausted",
            f"This run may not cost more: its next call may cost {money(amount)}, and less than"
            f" that is left of the limit of a run. Raise that limit, {then}",
            details={"reason": "limit_reached", "window": "run", "neededMicros": amount},
        )
    period = holds.PERIODS[tight.window]
    if tight.is_reached or tight.limit_micros is None:
        message = f"The {tight.scope}'s {period} budget is used up."
    else:
        left = tight.limit_micros - tight.spent_micros - tight.reserved_micros
        message = (
            f"The next {what} may cost more than the {tight.scope}'s {period} budget has left: at"
            f" worst {money(amount)}, and {money(max(left, 0))} of {money(tight.limit_micros)} is"
            f" left, with {money(tight.reserved_micros)} kept aside for other calls."
        )
    wait = "" if tight.window == Window.LIFETIME else " or wait for the next period"
    limit = tight.limit_micros
    only_taken = not tight.is_reached and limit is not None and tight.spent_micros + amount <= limit
    raise (RoomTaken if only_taken else BudgetExhausted)(
        "budget_exhausted",
        f"{message} Raise it{wait}{':' if waits else ','} {then}",
        details={"reason": "limit_reached", "neededMicros": amount} | _facts(tight),
    )


def _facts(each: Standing) -> dict[str, object]:
    return {
        "scope": each.scope,
        "scopeId": str(each.scope_id),
        "window": each.window,
        "limitMicros": each.limit_micros,
        "spentMicros": each.spent_micros,
        "reservedMicros": each.reserved_micros,
    }
