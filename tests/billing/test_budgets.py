"""A limit that is reached stops who it concerns, says so, and goes away by itself or by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents import roster
from agents.models import Agent, Hold
from billing import budgets, ledger
from billing.models import Budget, CostKey, Reservation, Scope, Spend, Window
from companies import activity
from companies.errors import Invalid, NotFound
from companies.models import Activity, Company
from tests import factories
from tests.billing.receipts import at_once, book

NOVEMBER = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
LAST_SECOND = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, 0, 0, 0, tzinfo=UTC)


def limit(company: Company, scope: Any, micros: int, **fields: Any) -> Budget:
    """A hard monthly limit of a company, an agent or a project."""
    kind = {"Company": "company", "Agent": "agent", "Project": "project"}[type(scope).__name__]
    return budgets.set_limit(
        **{
            "company": company,
            "scope": kind,
            "scope_id": scope.id,
            "limit_micros": micros,
            "actor": activity.SYSTEM,
            "now": NOVEMBER,
            **fields,
        }
    )


def holds(agent: Agent) -> list[str]:
    return sorted(Hold.objects.filter(agent=agent).values_list("reason", flat=True))


# --- reaching it -----------------------------------------------------------------------------


def test_a_reached_limit_holds_the_agent_and_says_so(acme: Company, ada: Agent, bo: Agent) -> None:
    limit(acme, ada, 100)
    book(ada, "a", 99, now=NOVEMBER)
    assert holds(ada) == []
    book(ada, "b", 1, now=NOVEMBER)
    assert holds(ada) == ["agent_budget"]
    assert holds(bo) == []
    assert "budget" in Hold.objects.get(agent=ada).note


def test_a_companys_limit_holds_all_its_agents_and_no_one_elses(
    acme: Company, ada: Agent, bo: Agent, spy: Agent
) -> None:
    gone = factories.agent(acme, "Gone", status=Agent.Status.TERMINATED)
    limit(acme, acme, 100)
    book(ada, "a", 100, now=NOVEMBER)
    assert holds(ada) == holds(bo) == ["company_budget"]
    assert holds(spy) == holds(gone) == []


def test_a_projects_limit_holds_who_has_no_other_work(acme: Company, ada: Agent, bo: Agent) -> None:
    rocket, anvil = factories.project(acme, "Rocket"), factories.project(acme, "Anvil")
    factories.issue(acme, assignee=ada, project=rocket)
    factories.issue(acme, assignee=bo, project=rocket)
    factories.issue(acme, assignee=bo, project=anvil)
    limit(acme, rocket, 100)
    book(ada, "a", 100, project_id=rocket.id, now=NOVEMBER)
    assert holds(ada) == ["project_budget"]
    assert holds(bo) == []
    with pytest.raises(budgets.BudgetExhausted):
        budgets.check_call(agent=bo, project_id=rocket.id, now=NOVEMBER)
    budgets.check_call(agent=bo, project_id=anvil.id, now=NOVEMBER)


def test_new_work_elsewhere_frees_an_agent_from_a_projects_limit(acme: Company, ada: Agent) -> None:
    rocket, anvil = factories.project(acme, "Rocket"), factories.project(acme, "Anvil")
    factories.issue(acme, assignee=ada, project=rocket)
    limit(acme, rocket, 100)
    book(ada, "a", 100, project_id=rocket.id, now=NOVEMBER)
    factories.issue(acme, assignee=ada, project=anvil)
    budgets.turn(now=NOVEMBER)
    assert holds(ada) == []


def test_a_run_knows_its_project_by_its_issue(acme: Company, ada: Agent) -> None:
    rocket = factories.project(acme, "Rocket")
    run = factories.running(ada, factories.issue(acme, assignee=ada, project=rocket))
    limit(acme, rocket, 0)
    with pytest.raises(budgets.BudgetExhausted):
        budgets.check_call(agent=ada, run_id=run.id, now=NOVEMBER)


def test_the_next_call_is_refused_with_the_limit_named(acme: Company, ada: Agent) -> None:
    limit(acme, acme, 100)
    budgets.check_call(agent=ada, now=NOVEMBER)
    book(ada, "a", 130, now=NOVEMBER)
    with pytest.raises(budgets.BudgetExhausted) as refused:
        budgets.check_call(agent=ada, now=NOVEMBER)
    assert refused.value.code == "budget_exhausted"
    assert refused.value.details["scope"] == "company"
    assert refused.value.details["limitMicros"] == 100


def test_a_total_without_a_next_period_is_not_waited_for(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100, window=Window.LIFETIME)
    book(ada, "a", 130, now=NOVEMBER)
    with pytest.raises(budgets.BudgetExhausted) as refused:
        budgets.check_call(agent=ada, now=NOVEMBER)
    assert refused.value.message == (
        "The agent's total budget is used up. Raise it: it starts by itself then."
    )


def test_a_limit_of_nothing_allows_nothing(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 0)
    assert holds(ada) == ["agent_budget"]
    with pytest.raises(budgets.BudgetExhausted):
        budgets.check_call(agent=ada, now=NOVEMBER)


def test_a_limit_of_nothing_allows_nothing_in_a_fresh_month_either(
    acme: Company, ada: Agent
) -> None:
    limit(acme, ada, 0)
    with pytest.raises(budgets.BudgetExhausted):
        budgets.check_call(agent=ada, now=DECEMBER)
    budgets.turn(now=DECEMBER)
    assert holds(ada) == ["agent_budget"]


def test_a_soft_limit_holds_nobody(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100, is_hard=False)
    book(ada, "a", 500, now=NOVEMBER)
    assert holds(ada) == []
    budgets.check_call(agent=ada, now=NOVEMBER)


def test_what_was_spent_beyond_a_limit_is_booked_in_full(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    book(ada, "a", 5_000, now=NOVEMBER)
    assert Spend.objects.get(scope=Scope.AGENT, window=Window.MONTH).spent_micros == 5_000


def test_a_lifetime_limit_counts_all_months(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100, window=Window.LIFETIME)
    book(ada, "a", 60, now=NOVEMBER)
    book(ada, "b", 40, now=DECEMBER)
    assert holds(ada) == ["agent_budget"]


def test_an_agents_daily_cap_stops_it_until_tomorrow(acme: Company, ada: Agent) -> None:
    Agent.objects.filter(id=ada.id).update(max_daily_cost_micros=100)
    book(ada, "a", 100, now=NOVEMBER)
    assert holds(ada) == ["agent_budget"]
    with pytest.raises(budgets.BudgetExhausted, match="daily"):
        budgets.check_call(agent=ada, now=NOVEMBER)
    tomorrow = NOVEMBER + timedelta(days=1)
    budgets.turn(now=tomorrow)
    assert holds(ada) == []
    budgets.check_call(agent=ada, now=tomorrow)


@pytest.mark.parametrize("scope", ["company", "agent", "project"])
def test_a_run_is_stopped_by_the_limit_of_whomever_it_is_for(
    acme: Company, ada: Agent, scope: str, django_assert_num_queries: Any
) -> None:
    """And where nobody has a limit, asking costs one statement."""
    project = factories.project(acme)
    run = factories.running(ada, factories.issue(acme, assignee=ada, project=project))
    with django_assert_num_queries(1):
        budgets.check_call(agent=ada, run_id=run.id, now=NOVEMBER)
    limit(acme, factories.agent(acme), 0)
    limit(acme, factories.project(acme), 0)
    budgets.check_call(agent=ada, run_id=run.id, now=NOVEMBER)
    limit(acme, {"company": acme, "agent": ada, "project": project}[scope], 0)
    with pytest.raises(budgets.BudgetExhausted, match=scope):
        budgets.check_call(agent=ada, run_id=run.id, now=NOVEMBER)


def test_a_token_limit_stops_a_subscription_that_costs_nothing(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 10**9, limit_tokens=100_000)
    fields = {"billing_type": "subscription_included", "now": NOVEMBER}
    book(ada, "a", None, usage_input_tokens=99_000, usage_output_tokens=999, **fields)
    assert holds(ada) == []
    book(ada, "b", None, usage_input_tokens=1, usage_output_tokens=0, **fields)
    assert holds(ada) == ["agent_budget"]


def test_a_thread_that_is_sent_again_from_the_cache_does_not_count_as_tokens(
    acme: Company, ada: Agent
) -> None:
    for turn in range(10):
        book(
            ada,
            f"k{turn}",
            usage_input_tokens=51_000,
            usage_cache_read_tokens=50_000,
            usage_output_tokens=200,
            now=NOVEMBER,
        )
    assert Spend.objects.get(scope=Scope.AGENT, window=Window.MONTH).tokens == 12_000


def test_a_booking_past_the_limit_of_a_big_company_stays_cheap(
    acme: Company, ada: Agent, django_assert_max_num_queries: Any
) -> None:
    for number in range(30):
        factories.agent(acme, f"Worker {number}")
    limit(acme, acme, 100)
    book(ada, "a", 100, now=NOVEMBER)
    assert Hold.objects.filter(reason="company_budget").count() == 31
    with django_assert_max_num_queries(30):
        book(ada, "b", 100, now=NOVEMBER)


# --- getting out of it -----------------------------------------------------------------------


def test_a_higher_limit_lifts_the_hold_at_once(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    book(ada, "a", 100, now=NOVEMBER)
    limit(acme, ada, 101)
    assert holds(ada) == []
    budgets.check_call(agent=ada, now=NOVEMBER)


def test_a_limit_below_what_is_spent_holds_at_once(acme: Company, ada: Agent) -> None:
    book(ada, "a", 100, now=NOVEMBER)
    limit(acme, ada, 50)
    assert holds(ada) == ["agent_budget"]


def test_removing_a_limit_lifts_its_holds(acme: Company, ada: Agent, bo: Agent) -> None:
    budget = limit(acme, acme, 100)
    book(ada, "a", 100, now=NOVEMBER)
    budgets.remove_limit(budget=budget, actor=activity.SYSTEM, now=NOVEMBER)
    assert holds(ada) == holds(bo) == []


def test_one_of_two_limits_is_enough_to_hold(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    limit(acme, ada, 100, window=Window.LIFETIME)
    book(ada, "a", 100, now=NOVEMBER)
    limit(acme, ada, 200)
    assert holds(ada) == ["agent_budget"]
    limit(acme, ada, 200, window=Window.LIFETIME)
    assert holds(ada) == []


def test_the_months_turn_lifts_budget_holds_and_no_others(
    acme: Company, ada: Agent, bo: Agent
) -> None:
    limit(acme, acme, 100)
    roster.hold(
        agent=ada, reason=Hold.Reason.OPERATOR, actor=activity.SYSTEM, now=NOVEMBER, note="holiday"
    )
    book(ada, "a", 100, now=LAST_SECOND)
    budgets.turn(now=LAST_SECOND)
    assert holds(ada) == ["company_budget", "operator"]
    budgets.turn(now=DECEMBER)
    assert holds(ada) == ["operator"]
    assert holds(bo) == []


@pytest.mark.fault("T18", "the last second of a month")
def test_a_cost_of_the_last_second_is_not_of_the_new_month(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    book(ada, "a", 99, now=LAST_SECOND)
    book(ada, "b", 50, now=DECEMBER)
    months = Spend.objects.filter(scope=Scope.AGENT, window=Window.MONTH).order_by("period_start")
    assert [month.spent_micros for month in months] == [99, 50]
    assert [month.limit_micros for month in months] == [100, 100]
    assert holds(ada) == []


def test_a_late_receipt_of_last_month_holds_nobody_now(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    book(ada, "a", 500, now=DECEMBER, occurred_at=LAST_SECOND)
    assert holds(ada) == []


def test_the_minutes_round_keeps_a_hold_that_is_due(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    book(ada, "a", 100, now=NOVEMBER)
    for minute in range(3):
        budgets.turn(now=NOVEMBER + timedelta(minutes=minute))
    assert holds(ada) == ["agent_budget"]


def test_an_agent_that_joins_later_is_held_by_the_next_round(acme: Company, ada: Agent) -> None:
    limit(acme, acme, 100)
    book(ada, "a", 100, now=NOVEMBER)
    carl = factories.agent(acme, "Carl")
    budgets.turn(now=NOVEMBER)
    assert holds(carl) == ["company_budget"]


@pytest.mark.fault("T18", "the leap day")
def test_leap_day_is_a_day_of_february(acme: Company, ada: Agent) -> None:
    leap_day = datetime(2028, 2, 29, 23, 59, 59, tzinfo=UTC)
    book(ada, "a", 5, now=leap_day)
    month = Spend.objects.get(scope=Scope.AGENT, window=Window.MONTH)
    assert str(month.period_start) == "2028-02-01"


def test_keys_and_ended_grants_are_forgotten_when_a_receipt_would_be_too_late(
    acme: Company, ada: Agent
) -> None:
    run = factories.running(ada)
    fields = {"provider": "openai", "model": "gpt-5", "input_tokens": 1_000}
    budgets.check_call(agent=ada, run_id=run.id, now=NOVEMBER, **fields)
    book(ada, ledger.run_key(run.id, 1), 5, run_id=run.id, now=NOVEMBER)
    budgets.turn(now=NOVEMBER + timedelta(days=35))
    assert (CostKey.objects.count(), Reservation.objects.count()) == (1, 1)
    budgets.turn(now=NOVEMBER + timedelta(days=36, seconds=1))
    assert (CostKey.objects.count(), Reservation.objects.count()) == (0, 0)
    assert Spend.objects.filter(spent_micros=5).exists()


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("micros", [-1, 2**63, 1.5, True, None])
def test_a_limit_that_cannot_be_is_refused(acme: Company, ada: Agent, micros: Any) -> None:
    with pytest.raises(Invalid):
        limit(acme, ada, micros)


def test_a_limit_for_a_rivals_agent_is_not_found(
    acme: Company, globex: Company, spy: Agent
) -> None:
    with pytest.raises(NotFound):
        limit(acme, spy, 100)
    with pytest.raises(NotFound):
        limit(acme, globex, 100)


def test_setting_a_limit_is_written_to_the_activity(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    limit(acme, ada, 200)
    actions = Activity.objects.filter(entity_type="budget").order_by("id")
    assert [row.action for row in actions] == ["budget.created", "budget.updated"]


# --- all at once -----------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_bookings_of_many_agents_and_limits_that_change_never_wait_for_each_other(
    acme: Company,
) -> None:
    agents = [factories.agent(acme, f"Worker {number}") for number in range(4)]
    projects = [factories.project(acme, f"P{number}") for number in range(2)]
    limit(acme, acme, 5_000, now=None)

    def spend(number: int) -> Any:
        return book(agents[number % 4], f"k{number}", 70, project_id=projects[number % 2].id)

    def change(number: int) -> Any:
        return limit(acme, [acme, *agents][number % 5], 3_000 + number * 100, now=None)

    tasks: list[Any] = [lambda n=n: spend(n) for n in range(100)]
    tasks += [lambda n=n: change(n) for n in range(20)]
    tasks += [lambda: budgets.turn() for _ in range(5)]
    tasks.sort(key=lambda task: hash(task))
    results = at_once(tasks)
    assert [result for result in results if isinstance(result, Exception)] == []
    assert Spend.objects.get(scope=Scope.COMPANY, window=Window.MONTH).spent_micros == 7_000
