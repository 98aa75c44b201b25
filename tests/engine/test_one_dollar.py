"""Many runs at once on one dollar, with the real adapter, a real shift and a server that speaks the
protocol: the wall holds at every moment, and the sum is exact."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from django.db.models import Sum

from agents import runs
from agents.models import HeartbeatRun
from billing import audit, budgets, prices
from billing.models import CostEvent, Reservation, Spend, Window
from companies import activity
from companies.models import Company
from tests import factories, mock_llm
from tests.engine.conftest import ask

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

DOLLAR = 1_000_000
RUNS = 80
TOKENS_A_CALL = 1_150 + 25  # what the server reports
PICO = 40_000_000  # a token: 40 micro-dollars, so that a call costs 4.7 cents


def test_many_runs_share_one_dollar_and_never_spend_more(during: Any, acme: Company) -> None:
    prices.set_price(
        company=acme,
        model="m",
        input_pico=PICO,
        output_pico=PICO,
        actor=activity.SYSTEM,
        now=acme.created_at,
    )
    budgets.set_limit(
        company=acme, scope="company", scope_id=acme.id, limit_micros=DOLLAR, actor=activity.SYSTEM
    )
    with mock_llm.serve_in_thread() as server:
        agents = [
            factories.agent(
                acme,
                f"Worker {number}",
                adapter_type="openai",
                adapter_config={
                    "baseUrl": server.url,
                    "model": "m",
                    "tools": False,
                    "maxTokens": 1_000,
                },
                max_concurrent_runs=RUNS,
                on_finish="done",
            )
            for number in range(4)
        ]
        for number in range(RUNS):
            agent = agents[number % 4]
            runs.wake(
                agent=agent,
                issue=factories.issue(
                    acme, "Say it [[mock:text=done;chunks=3;delay=0.05]]", assignee=agent
                ),
                reason="issue_assigned",
                source="assignment",
                actor=activity.SYSTEM,
            )
        seen: list[int] = []

        async def watch(shift: Any) -> None:
            deadline = time.monotonic() + 240
            while not await ask(all_is_over):
                seen.append(await ask(committed))
                assert time.monotonic() < deadline, "the runs did not end"
                await asyncio.sleep(0.2)

        during(watch)

    spent = Spend.objects.get(scope="company", window=Window.MONTH).spent_micros
    booked = CostEvent.objects.aggregate(calls=Sum("cost_micros"))["calls"]
    ended = list(HeartbeatRun.objects.values_list("status", "code"))
    succeeded = [status for status, _ in ended].count("succeeded")
    codes = {f"{status} {code}" for status, code in ended}
    assert succeeded, codes
    assert spent == booked == succeeded * TOKENS_A_CALL * PICO // 10**6
    assert spent <= DOLLAR
    assert max(seen) <= DOLLAR, "kept and spent were more than the limit for a moment"
    assert {code for status, code in ended if status != "succeeded"} <= {"budget_exhausted", ""}
    assert succeeded < RUNS, "a dollar was enough for all: this test shows nothing"
    assert not Reservation.objects.filter(state="held").exists()
    assert audit.drifts() == []


def committed() -> int:
    """What is spent and kept aside of the dollar, at this moment."""
    total = Spend.objects.filter(scope="company", window=Window.MONTH).first()
    return total.spent_micros + total.reserved_micros if total else 0


def all_is_over() -> bool:
    """Nothing runs, and what still waits is held back because nothing is left."""
    if HeartbeatRun.objects.filter(status="running").exists():
        return False
    waiting = HeartbeatRun.objects.filter(status="queued").exists()
    return (
        not waiting
        or Spend.objects.filter(
            scope="company", window=Window.MONTH, spent_micros__gte=DOLLAR
        ).exists()
    )
