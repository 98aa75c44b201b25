"""Money against a plain model: whatever the order of grants, receipts, losses, limits and month
turns, the database says to the micro-dollar what forty lines of Python say.

`PAPERCLIP_FUZZ=2000` looks at so many random stories; without it the same few every time. `make
faults` looks at 2,000 (`ARGS=T24`).
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agents.models import HeartbeatRun, Hold
from billing import audit, budgets, ledger, prices, totals
from billing.models import CostEvent, Reservation, Spend, Window
from companies import activity
from companies.errors import Refusal
from tests import factories
from tests.billing.receipts import book

FUZZ = int(os.environ.get("PAPERCLIP_FUZZ", "0"))
SCALE = float(os.environ.get("PAPERCLIP_FAULTS_SCALE", "1"))
START = datetime(2027, 12, 31, 23, 58, tzinfo=UTC)
AMOUNTS = st.integers(min_value=0, max_value=400)
PICKS = st.integers(min_value=0, max_value=10**6)


@dataclass
class Grant:
    """The model's idea of one reservation."""

    agent: int
    project: int | None
    amount: int
    at: datetime
    run: HeartbeatRun
    state: str = "held"
    receipts: int = 0


class Money(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.block = transaction.atomic()
        self.block.__enter__()
        self.now = START
        self.company = factories.company("Acme", "ACM")
        self.agents = [factories.agent(self.company, f"A{number}") for number in range(2)]
        self.projects = [factories.project(self.company, f"P{number}") for number in range(2)]
        prices.set_price(
            company=self.company,
            model="m",
            input_pico=1_000_000,
            output_pico=1_000_000,
            actor=activity.SYSTEM,
            now=START - timedelta(days=1),
        )
        self.grants: list[Grant] = []
        self.spent: Counter[tuple[Any, ...]] = Counter()
        self.limits: dict[tuple[Any, str], int] = {}
        self.sent: list[tuple[Grant, str, int]] = []
        self.events = 0

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.block.__exit__(None, None, None)

    # --- the model -----------------------------------------------------------------------

    def keys(self, agent: int, project: int | None, at: datetime) -> list[tuple[Any, ...]]:
        scopes = [self.agents[agent].id, self.company.id]
        if project is not None:
            scopes.append(self.projects[project].id)
        return [
            (scope, window, totals.period_start(window, at))
            for scope in scopes
            for window in totals.WINDOWS
        ]

    def kept(self, *, swept: bool = False) -> Counter[tuple[Any, ...]]:
        """What is kept aside; `swept`: without what runs that are over have left."""
        kept: Counter[tuple[Any, ...]] = Counter()
        for grant in self.grants:
            if grant.state in ("held", "unknown") and not (swept and self.is_over(grant)):
                for key in self.keys(grant.agent, grant.project, grant.at):
                    kept[key] += grant.amount
        return kept

    def is_over(self, grant: Grant) -> bool:
        lost = grant.run.status == "lost" and self.now - grant.at > timedelta(hours=24)
        return grant.run.status == "failed" or lost

    def fits(self, agent: int, project: int | None, amount: int) -> bool:
        kept = self.kept(swept=amount > 0)  # a call that does not fit looks for such room first
        for key in self.keys(agent, project, self.now):
            limit = self.limits.get(key[:2])
            if limit is not None and (
                self.spent[key] >= limit or self.spent[key] + kept[key] + amount > limit
            ):
                return False
        return True

    def some(self, pick: int, *states: str) -> Grant | None:
        found = [grant for grant in self.grants if grant.state in states]
        return found[pick % len(found)] if found else None

    def is_too_late(self, grant: Grant) -> bool:
        return self.now - grant.at > ledger.OLDEST

    # --- the rules -----------------------------------------------------------------------

    @rule(agent=st.integers(0, 1), project=st.sampled_from([None, 0, 1]), amount=AMOUNTS)
    def ask(self, agent: int, project: int | None, amount: int) -> None:
        run = factories.running(self.agents[agent], now=self.now)
        expected = self.fits(agent, project, amount)
        try:
            budgets.check_call(
                agent=self.agents[agent],
                run_id=run.id,
                project_id=self.projects[project].id if project is not None else None,
                provider="p",
                model="m",
                input_tokens=amount,
                max_output_tokens=0,
                now=self.now,
            )
        except budgets.BudgetExhausted:
            assert not expected, "refused although it fits"
            HeartbeatRun.objects.filter(id=run.id).update(status="failed", finished_at=self.now)
        else:
            assert expected, "granted although it does not fit"
            state = "held" if amount else "nothing"
            self.grants.append(Grant(agent, project, amount, self.now, run, state))
        self.sweep_in_model()  # a refusal looks for room that ended runs have kept

    @rule(pick=PICKS, actual=AMOUNTS)
    def receipt(self, pick: int, actual: int) -> None:
        grant = self.some(pick, "held", "unknown", "nothing", "released", "settled")
        if grant is None:
            return
        grant.receipts += 1
        key = ledger.run_key(grant.run.id, grant.receipts)
        if self.is_too_late(grant):
            with pytest.raises(Refusal, match="days old"):
                self.send(grant, key, actual)
            return
        self.send(grant, key, actual)
        self.events += 1
        at = grant.at if grant.state in ("held", "unknown") else self.now
        for each in self.keys(grant.agent, grant.project, at):
            self.spent[each] += actual
        if grant.state in ("held", "unknown"):
            grant.state = "settled"
        self.sent.append((grant, key, actual))

    def send(self, grant: Grant, key: str, actual: int) -> ledger.Booked:
        project = self.projects[grant.project].id if grant.project is not None else None
        return book(
            self.agents[grant.agent],
            key,
            actual,
            run_id=grant.run.id,
            project_id=project,
            now=self.now,
        )

    @precondition(lambda self: self.sent)
    @rule(pick=PICKS)
    def the_same_receipt_again(self, pick: int) -> None:
        grant, key, actual = self.sent[pick % len(self.sent)]
        if not self.is_too_late(grant):
            assert self.send(grant, key, actual).duplicate
            return
        # Its key may be forgotten by now, and then its run is too old.
        with contextlib.suppress(Refusal):
            assert self.send(grant, key, actual).duplicate

    @precondition(lambda self: self.sent)
    @rule(pick=PICKS)
    def an_altered_receipt(self, pick: int) -> None:
        grant, key, actual = self.sent[pick % len(self.sent)]
        with pytest.raises(Refusal, match=r"already used|days old"):
            self.send(grant, key, actual + 1)

    @precondition(lambda self: self.events)
    @rule(pick=PICKS, amount=st.integers(-50, 50))
    def refund(self, pick: int, amount: int) -> None:
        receipts = list(CostEvent.objects.filter(reverses_id=None).order_by("id"))
        event = receipts[pick % len(receipts)]
        ledger.correct(
            event=event,
            cost_micros=amount,
            note="refund",
            key=f"fix{self.events}",
            actor=activity.SYSTEM,
            now=self.now,
        )
        self.events += 1
        for scope in (event.agent_id, event.project_id, event.company_id):
            if scope is not None:
                for window in totals.WINDOWS:
                    self.spent[scope, window, totals.period_start(window, self.now)] += amount

    @rule(pick=PICKS, lost=st.booleans())
    def a_run_ends(self, pick: int, lost: bool) -> None:
        grant = self.some(pick, "held")
        if grant is None:
            return
        status, code = ("lost", "lost") if lost else ("failed", "auth_failed")
        HeartbeatRun.objects.filter(id=grant.run.id).update(
            status=status, code=code, finished_at=self.now
        )
        grant.run.status = status

    @rule(
        scope=st.sampled_from(["company", "agent", "project"]),
        window=st.sampled_from([Window.DAY, Window.MONTH, Window.LIFETIME]),
        amount=st.integers(0, 1_500),
    )
    def set_limit(self, scope: str, window: str, amount: int) -> None:
        row = {"company": self.company, "agent": self.agents[0], "project": self.projects[0]}[scope]
        budgets.set_limit(
            company=self.company,
            scope=scope,
            scope_id=row.id,
            window=window,
            limit_micros=amount,
            actor=activity.SYSTEM,
            now=self.now,
        )
        self.limits[row.id, window] = amount

    @rule(minutes=st.sampled_from([1, 3, 60, 24 * 60, 31 * 24 * 60]))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        budgets.turn(now=self.now)
        self.sweep_in_model()

    def sweep_in_model(self) -> None:
        """The database may sweep or not; the model follows what it did where both are right."""
        for grant in self.grants:
            if grant.state not in ("held", "unknown"):
                continue
            kept = Reservation.objects.filter(run_id=grant.run.id).first()
            state = kept.state if kept else "released"  # and forgotten
            if grant.run.status == "running":
                assert state == "held"
            elif grant.run.status == "failed":
                assert state in ("held", "released")
            elif self.now - grant.at <= timedelta(hours=24):
                assert state in ("held", "unknown")
            else:
                assert state in ("held", "unknown", "released")
            grant.state = state

    # --- what always holds ---------------------------------------------------------------

    @invariant()
    def the_database_says_what_the_model_says(self) -> None:
        kept = self.kept()
        for row in Spend.objects.all():
            key = (row.scope_id, row.window, row.period_start)
            assert (row.spent_micros, row.reserved_micros) == (self.spent[key], kept[key]), key
        known = {(row.scope_id, row.window, row.period_start) for row in Spend.objects.all()}
        assert {key for key, amount in (self.spent + kept).items() if amount} <= known

    @invariant()
    def the_books_agree(self) -> None:
        assert audit.drifts() == []

    @invariant()
    def every_receipt_is_one_event(self) -> None:
        assert CostEvent.objects.count() == self.events

    @invariant()
    def agents_are_held_by_a_limit_that_is_reached(self) -> None:
        for number, agent in enumerate(self.agents):
            for reason, scope in (("agent_budget", agent.id), ("company_budget", self.company.id)):
                reached = any(
                    self.spent[scope, window, totals.period_start(window, self.now)] >= limit
                    for (owner, window), limit in self.limits.items()
                    if owner == scope
                )
                held = Hold.objects.filter(agent=agent, reason=reason).exists()
                # A refund lifts a hold with the next minute's round.
                assert held or not reached, (number, reason)


def tell(stories: int, *, steps: int, fresh: bool) -> None:
    run_state_machine_as_test(
        Money,
        settings=settings(
            max_examples=stories,
            stateful_step_count=steps,
            derandomize=not fresh,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


@pytest.mark.fault("T24", "random stories of money against a plain model")
@pytest.mark.django_db
@pytest.mark.timeout(0 if FUZZ else 120)
def test_money_follows_the_plain_model() -> None:
    tell(FUZZ or 12, steps=50 if FUZZ else 25, fresh=bool(FUZZ))


@pytest.mark.faults_long
@pytest.mark.fault("T24", "2,000 such stories of 50 steps, others each time")
@pytest.mark.django_db
@pytest.mark.timeout(0)
def test_money_follows_the_plain_model_for_long() -> None:
    tell(max(1, round(2_000 * SCALE)), steps=50, fresh=True)
