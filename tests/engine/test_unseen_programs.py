"""Twenty programs at once on five dollars, each of which costs one and says so at its end: real
processes in a real shift, and an agent that has no history yet."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from django.utils import timezone

from agents import runs
from agents.models import HeartbeatRun, Hold
from billing import audit, budgets
from billing.models import Reservation, Spend, Window
from companies import activity
from companies.models import Company
from tests import factories
from tests.engine.conftest import ask, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

DOLLAR = 1_000_000
RUNS = 20
PROGRAM = """sleep 0.3; echo '{"summary": "Forged.", "status": "done", "cost": 1.0}'"""


def company_month() -> tuple[int, int]:
    total = Spend.objects.get(scope="company", window=Window.MONTH)
    return total.spent_micros, total.reserved_micros


def minute_passes() -> None:
    """What waits for its next try is tried now."""
    HeartbeatRun.objects.filter(status="queued").update(not_before=timezone.now())


def test_programs_without_a_history_never_pass_the_budget(during: Any, acme: Company) -> None:
    budgets.set_limit(
        company=acme,
        scope="company",
        scope_id=acme.id,
        limit_micros=5 * DOLLAR,
        actor=activity.SYSTEM,
    )
    pete = factories.agent(
        acme,
        "Pete",
        adapter_type="process",
        adapter_config={"command": "/bin/sh", "args": ["-c", PROGRAM]},
        max_concurrent_runs=RUNS,
    )
    for number in range(RUNS):
        runs.wake(
            agent=pete,
            issue=factories.issue(acme, f"Forge anvil {number}", assignee=pete),
            reason="issue_assigned",
            source="assignment",
            actor=activity.SYSTEM,
        )
    seen: list[tuple[int, int]] = []

    async def watch(shift: Any) -> None:
        deadline = time.monotonic() + 150
        while (await ask(company_month))[0] < 5 * DOLLAR:
            assert time.monotonic() < deadline, seen[-3:]
            seen.append(await ask(company_month))
            await asyncio.sleep(0.3)
            await ask(minute_passes)
        await until(lambda: not HeartbeatRun.objects.filter(status="running").exists())

    during(watch)
    budgets.turn()
    assert company_month() == (5 * DOLLAR, 0)
    assert max(spent + kept for spent, kept in seen) <= 5 * DOLLAR
    done = HeartbeatRun.objects.filter(status="succeeded")
    assert done.count() == 5
    assert set(HeartbeatRun.objects.exclude(status="succeeded").values_list("code", flat=True)) <= {
        "budget_exhausted",  # could not start, and is tried again
        "",
    }
    assert Hold.objects.get(agent=pete).reason == "company_budget"
    first = Reservation.objects.order_by("granted_at").first()
    assert first is not None
    assert (first.granted_micros, first.is_guess) == (5 * DOLLAR // 2, True)
    assert Reservation.objects.filter(is_guess=True).count() == 1
    assert audit.drifts() == []
