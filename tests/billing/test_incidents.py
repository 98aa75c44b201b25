"""People are told before a budget is used up, once, and their answer takes effect at once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agents.models import Agent, Hold
from billing import budgets, incidents
from billing.models import Budget, BudgetIncident
from companies import activity
from companies.errors import Conflict, Invalid
from companies.models import Company
from tests import factories
from tests.billing.receipts import at_once, book

NOVEMBER = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)
OLGA = activity.Actor("user", None, "Olga")


def limit(company: Company, agent: Agent, micros: int = 1_000, **fields: Any) -> Budget:
    return budgets.set_limit(
        **{
            "company": company,
            "scope": "agent",
            "scope_id": agent.id,
            "limit_micros": micros,
            "actor": OLGA,
            "now": NOVEMBER,
            **fields,
        }
    )


def told() -> list[int]:
    rows = BudgetIncident.objects.order_by("created_at", "id")
    return list(rows.values_list("percent", flat=True))


def test_people_are_told_at_half_at_the_budgets_mark_and_at_all_of_it(
    acme: Company, ada: Agent
) -> None:
    limit(acme, ada)
    for number, micros in enumerate((499, 1, 299, 1, 199, 1)):
        book(ada, f"k{number}", micros, now=NOVEMBER)
    assert told() == [50, 80, 100]


def test_a_jump_over_several_marks_is_told_once(acme: Company, ada: Agent) -> None:
    limit(acme, ada)
    book(ada, "a", 900, now=NOVEMBER)
    book(ada, "b", 50, now=NOVEMBER)
    assert told() == [80]


def test_each_mark_is_told_once_a_period(acme: Company, ada: Agent) -> None:
    limit(acme, ada)
    book(ada, "a", 600, now=NOVEMBER)
    book(ada, "b", 10, now=NOVEMBER)
    book(ada, "c", 600, now=DECEMBER)
    assert told() == [50, 50]


def test_a_soft_limit_is_told_as_well(acme: Company, ada: Agent) -> None:
    limit(acme, ada, is_hard=False)
    book(ada, "a", 1_000, now=NOVEMBER)
    assert told() == [100]
    assert not Hold.objects.exists()


def test_who_sets_a_limit_is_not_told_what_they_see(acme: Company, ada: Agent) -> None:
    book(ada, "a", 600, now=NOVEMBER)
    limit(acme, ada)
    assert told() == []
    book(ada, "b", 200, now=NOVEMBER)
    assert told() == [80]


def test_acknowledging_leaves_the_hold(acme: Company, ada: Agent) -> None:
    limit(acme, ada)
    book(ada, "a", 1_000, now=NOVEMBER)
    incident = incidents.acknowledge(
        incident=BudgetIncident.objects.get(), actor=OLGA, now=NOVEMBER
    )
    assert (incident.state, incident.decided_by) == ("acknowledged", "Olga")
    assert Hold.objects.filter(agent=ada).exists()


def test_raising_lets_the_agent_go_on_at_once(acme: Company, ada: Agent) -> None:
    limit(acme, ada)
    book(ada, "a", 1_000, now=NOVEMBER)
    budgets.raise_and_resume(
        incident=BudgetIncident.objects.get(), limit_micros=2_000, actor=OLGA, now=NOVEMBER
    )
    assert not Hold.objects.exists()
    assert BudgetIncident.objects.get().resolution == "raised"
    budgets.check_call(agent=ada, now=NOVEMBER)
    book(ada, "b", 600, now=NOVEMBER)
    assert told() == [100, 80]


@pytest.mark.parametrize("micros", [999, 1_000, 1_200, None, 2**63])
def test_a_raise_that_would_not_help_is_refused(acme: Company, ada: Agent, micros: Any) -> None:
    limit(acme, ada)
    book(ada, "a", 1_200, now=NOVEMBER)
    with pytest.raises(Invalid):
        budgets.raise_and_resume(
            incident=BudgetIncident.objects.get(), limit_micros=micros, actor=OLGA, now=NOVEMBER
        )


def test_keeping_paused_waits_for_the_next_period(acme: Company, ada: Agent) -> None:
    limit(acme, ada)
    book(ada, "a", 1_000, now=NOVEMBER)
    incidents.keep_paused(incident=BudgetIncident.objects.get(), actor=OLGA, now=NOVEMBER)
    budgets.turn(now=NOVEMBER)
    assert Hold.objects.filter(agent=ada).exists()
    budgets.turn(now=DECEMBER)
    assert not Hold.objects.exists()


def test_what_nobody_decided_lapses_with_its_period(acme: Company, ada: Agent) -> None:
    limit(acme, ada)
    book(ada, "a", 1_000, now=NOVEMBER)
    budgets.turn(now=NOVEMBER)
    assert BudgetIncident.objects.get().state == "open"
    budgets.turn(now=DECEMBER)
    assert BudgetIncident.objects.get().resolution == "lapsed"


def test_only_the_first_of_two_decisions_counts(acme: Company, ada: Agent) -> None:
    limit(acme, ada)
    book(ada, "a", 1_000, now=NOVEMBER)
    incident = BudgetIncident.objects.get()
    incidents.keep_paused(incident=incident, actor=OLGA, now=NOVEMBER)
    with pytest.raises(Conflict):
        incidents.acknowledge(incident=incident, actor=OLGA, now=NOVEMBER)


@pytest.mark.django_db(transaction=True)
def test_many_bookings_over_a_mark_at_once_tell_it_once(acme: Company) -> None:
    agents = [factories.agent(acme, f"Worker {number}") for number in range(4)]
    budgets.set_limit(
        company=acme, scope="company", scope_id=acme.id, limit_micros=1_000, actor=OLGA
    )
    results = at_once([lambda n=n: book(agents[n % 4], f"k{n}", 30) for n in range(20)])
    assert [result for result in results if isinstance(result, Exception)] == []
    assert told() == [50]
