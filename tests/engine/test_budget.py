"""Budgets seen from a heartbeat: what is not granted is not done, what runs is stopped in time."""

from __future__ import annotations

from typing import Any

import pytest

from agents import runs
from agents.adapters import base
from agents.models import Agent, HeartbeatRun, Hold
from billing import budgets, prices
from billing.models import CostEvent, Reservation, Spend, Window
from companies import activity
from companies.models import Company
from issues.models import Issue
from tests import factories
from tests.engine.conftest import until
from tests.engine.puppet import Puppet, finish, wait_for_ever

pytestmark = pytest.mark.django_db(transaction=True)


def over(run_id: Any) -> bool:
    return HeartbeatRun.objects.filter(pk=run_id).exclude(status__in=HeartbeatRun.LIVE).exists()


@pytest.fixture
def carried(during: Any, acme: Company, pia: Agent) -> Any:
    """Wake Pia about a fresh issue and return the run as it ended."""

    def carry() -> HeartbeatRun:
        issue: Issue = factories.issue(acme, "Forge an anvil", assignee=pia)
        wake = runs.wake(
            agent=pia,
            issue=issue,
            reason="issue_assigned",
            source="assignment",
            actor=activity.SYSTEM,
        )

        async def watch(shift: Any) -> None:
            await until(lambda: over(wake.run_id))

        during(watch)
        return HeartbeatRun.objects.get(pk=wake.run_id)

    return carry


def limit(company: Company, micros: int) -> None:
    budgets.set_limit(
        company=company,
        scope="company",
        scope_id=company.id,
        limit_micros=micros,
        actor=activity.SYSTEM,
    )


def set_price(company: Company) -> None:
    """The model `m` costs a micro-dollar a token."""
    prices.set_price(
        company=company,
        model="m",
        input_pico=10**6,
        output_pico=10**6,
        actor=activity.SYSTEM,
        now=company.created_at,
    )


def asking(*calls: tuple[int, int]) -> Any:
    """A chat model that asks for so much before each call and then uses so much."""

    async def play(brief: base.Brief) -> Any:
        for number, (worst, used) in enumerate(calls, 1):
            await brief.grant_call(provider="p", model="m", input_tokens=worst, max_output_tokens=0)
            yield base.Usage(number, "p", "m", input_tokens=used)
        yield base.Done(summary="All done.")

    return play


def test_each_call_is_granted_and_settled(carried: Any, puppet: Puppet, acme: Company) -> None:
    set_price(acme)
    puppet.play = asking((100, 40), (100, 60))
    run = carried()
    assert (run.status, run.cost_micros) == ("succeeded", 100)
    assert set(Reservation.objects.values_list("state", flat=True)) == {"settled"}


def test_a_run_ends_cleanly_between_its_calls(carried: Any, puppet: Puppet, acme: Company) -> None:
    set_price(acme)
    limit(acme, 150)
    puppet.play = asking((100, 90), (100, 60))
    run = carried()
    assert (run.status, run.code, run.cost_micros) == ("failed", "budget_exhausted", 90)
    month = Spend.objects.get(scope="company", window=Window.MONTH)
    assert (month.spent_micros, month.reserved_micros) == (90, 0)


def test_a_command_is_stopped_when_what_it_used_reaches_the_limit(
    carried: Any, puppet: Puppet, acme: Company, pia: Agent
) -> None:
    puppet.uses_tools = False
    limit(acme, 100)
    puppet.play = wait_for_ever(base.Usage(1, "p", "m", input_tokens=9, cost_micros=100))
    run = carried()
    assert (run.status, run.code) == ("failed", "budget_exhausted")
    assert Hold.objects.get(agent=pia).reason == "company_budget"


def test_a_local_model_without_a_price_works_where_no_limit_stands(
    carried: Any, puppet: Puppet
) -> None:
    puppet.play = asking((100, 40))
    run = carried()
    assert (run.status, run.unpriced_calls) == ("succeeded", 1)
    assert CostEvent.objects.get().cost_micros is None


def test_it_is_refused_where_one_stands_and_says_why(
    carried: Any, puppet: Puppet, acme: Company
) -> None:
    limit(acme, 10**6)
    puppet.play = asking((100, 40))
    run = carried()
    assert run.code == "budget_exhausted"
    assert "Nobody knows what m costs" in run.message


def test_nothing_starts_where_nothing_is_left(
    carried: Any, puppet: Puppet, acme: Company, pia: Agent
) -> None:
    limit(acme, 0)
    Hold.objects.all().delete()  # as if the hold came a moment too late
    puppet.play = finish()
    run = carried()
    assert (run.status, run.code) == ("cancelled", "budget_exhausted")
    assert puppet.briefs == []


def test_work_that_is_done_is_taken_although_it_used_the_budget_up(
    carried: Any, puppet: Puppet, acme: Company, pia: Agent
) -> None:
    puppet.uses_tools = False
    limit(acme, 500_000)
    paid = base.Usage(1, "p", "m", input_tokens=9, cost_micros=1_000_000)
    puppet.play = finish(paid, summary="Forged.", status="done", result={"anvils": 1})
    run = carried()
    assert (run.status, run.code, run.summary) == ("succeeded", "", "Forged.")
    assert run.result["anvils"] == 1
    assert run.issue is not None
    assert (run.issue.status, run.cost_micros) == ("done", 1_000_000)
    assert CostEvent.objects.get().cost_micros == 1_000_000
    assert Hold.objects.get(agent=pia).reason == "company_budget"  # the next run waits


def test_a_program_that_reports_a_cost_above_its_budget_keeps_its_result(
    during: Any, acme: Company
) -> None:
    words = '{"summary": "Forged.", "status": "done", "cost": 1.0}'
    config = {"command": "/bin/sh", "args": ["-c", f"echo '{words}'"]}
    pete = factories.agent(acme, "Pete", adapter_type="process", adapter_config=config)
    limit(acme, 500_000)
    wake = runs.wake(
        agent=pete,
        issue=factories.issue(acme, "Forge an anvil", assignee=pete),
        reason="issue_assigned",
        source="assignment",
        actor=activity.SYSTEM,
    )

    async def watch(shift: Any) -> None:
        await until(lambda: over(wake.run_id))

    during(watch)
    run = HeartbeatRun.objects.get(pk=wake.run_id)
    assert (run.status, run.summary, run.cost_micros) == ("succeeded", "Forged.", 1_000_000)
    assert run.issue is not None
    assert run.issue.status == "done"
    assert Hold.objects.get(agent=pete).reason == "company_budget"
