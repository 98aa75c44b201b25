"""A budget is a wall: what may be spent is kept aside first, on every total, or not spent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError

from agents.models import Agent, HeartbeatRun
from billing import budgets, ledger, prices, reservations
from billing.budgets import BudgetExhausted
from billing.grants import RoomTaken
from billing.models import Budget, CostEvent, Reservation, Scope, Spend, Window
from companies import activity
from companies.models import Activity, Company
from tests import factories
from tests.billing.receipts import answer_lost, at_once, book

NOVEMBER = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
LAST_SECOND = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)
State = Reservation.State


@pytest.fixture
def known_price(acme: Company) -> None:
    """The model `m` costs a micro-dollar a token, in and out."""
    set_price(acme, "m", 1_000_000)


def set_price(company: Company, model: str, pico: int) -> None:
    prices.set_price(
        company=company,
        model=model,
        input_pico=pico,
        output_pico=pico,
        actor=activity.SYSTEM,
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )


def limit(company: Company, scope: Any, micros: int, **fields: Any) -> Budget:
    return budgets.set_limit(
        **{
            "company": company,
            "scope": type(scope).__name__.lower(),
            "scope_id": scope.id,
            "limit_micros": micros,
            "actor": activity.SYSTEM,
            "now": NOVEMBER,
            **fields,
        }
    )


def ask(run: HeartbeatRun, tokens: int, **fields: Any) -> None:
    """Ask for a call of the model `m` that costs at most so many micro-dollars."""
    budgets.check_call(
        **{
            "agent": run.agent,
            "run_id": run.id,
            "provider": "p",
            "model": "m",
            "input_tokens": tokens,
            "max_output_tokens": 0,
            "now": NOVEMBER,
            **fields,
        }
    )


def receipt(run: HeartbeatRun, call: int, micros: int | None, **fields: Any) -> ledger.Booked:
    key = ledger.run_key(run.id, call)
    return book(run.agent, key, micros, run_id=run.id, **{"now": NOVEMBER, **fields})


def month(scope: Any) -> Spend:
    return Spend.objects.get(
        scope_id=scope.id, window=Window.MONTH, period_start=NOVEMBER.replace(day=1).date()
    )


def states(run: HeartbeatRun) -> list[str]:
    mine = Reservation.objects.filter(run_id=run.id).order_by("granted_at", "id")
    return list(mine.values_list("state", flat=True))


pytestmark = pytest.mark.usefixtures("known_price")


# --- granting --------------------------------------------------------------------------------


def test_a_grant_is_kept_aside_on_agent_project_and_company(acme: Company, ada: Agent) -> None:
    rocket = factories.project(acme, "Rocket")
    run = factories.running(ada, factories.issue(acme, assignee=ada, project=rocket))
    ask(run, 40)
    for scope in (ada, rocket, acme):
        assert (month(scope).reserved_micros, month(scope).spent_micros) == (40, 0)


def test_the_worst_case_counts_the_longest_answer(ada: Agent) -> None:
    run = factories.running(ada)
    ask(run, 40, max_output_tokens=60)
    assert month(ada).reserved_micros == 100


def test_what_does_not_fit_beside_what_is_kept_is_refused(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    first, second = factories.running(ada), factories.running(ada)
    ask(first, 60)
    with pytest.raises(BudgetExhausted, match="may cost more than the agent's monthly") as refused:
        ask(second, 41)
    assert refused.value.code == "budget_exhausted"
    assert refused.value.details["reservedMicros"] == 60
    assert refused.value.message == (
        "The next call may cost more than the agent's monthly budget has left: at worst $0.000041,"
        " and $0.00004 of $0.0001 is left, with $0.00006 kept aside for other calls. Raise it or"
        " wait for the next period, then choose “Try again”: a higher limit alone does not"
        " start it."
    )
    ask(second, 40)
    assert month(ada).reserved_micros == 100


def test_a_refused_grant_keeps_nothing_anywhere(acme: Company, ada: Agent) -> None:
    limit(acme, acme, 10)
    run = factories.running(ada)
    with pytest.raises(BudgetExhausted):
        ask(run, 11)
    assert not Reservation.objects.exists()
    assert not Spend.objects.filter(reserved_micros__gt=0).exists()


def test_the_widest_scope_is_a_wall_as_well(acme: Company, ada: Agent, bo: Agent) -> None:
    limit(acme, acme, 100)
    ask(factories.running(ada), 60)
    with pytest.raises(BudgetExhausted) as refused:
        ask(factories.running(bo), 60)
    assert refused.value.details["scope"] == "company"


def test_a_fresh_month_has_room_and_its_own_wall(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    ask(factories.running(ada), 100, now=LAST_SECOND)
    ask(factories.running(ada), 100, now=DECEMBER)
    with pytest.raises(BudgetExhausted):
        ask(factories.running(ada), 1, now=DECEMBER)


def test_an_agents_daily_cap_is_a_wall(acme: Company, ada: Agent) -> None:
    Agent.objects.filter(id=ada.id).update(max_daily_cost_micros=100)
    ask(factories.running(ada), 100)
    with pytest.raises(BudgetExhausted, match="daily"):
        ask(factories.running(ada), 1)
    ask(factories.running(ada), 100, now=NOVEMBER + timedelta(days=1))


def test_one_run_may_not_cost_more_than_its_cap(acme: Company, ada: Agent) -> None:
    limit(acme, acme, 100, window=Window.RUN)
    run, other = factories.running(ada), factories.running(ada)
    ask(run, 60)
    with pytest.raises(BudgetExhausted, match="run"):
        ask(run, 41)
    receipt(run, 1, 30)
    ask(run, 70)
    assert receipt(run, 2, 70).exhausted
    with pytest.raises(BudgetExhausted, match="run"):
        ask(run, 1)
    ask(other, 100)


def test_a_higher_limit_takes_effect_on_the_next_call(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 50)
    run = factories.running(ada)
    with pytest.raises(BudgetExhausted):
        ask(run, 60)
    limit(acme, ada, 60)
    ask(run, 60)


def test_a_lower_limit_counts_what_is_kept_aside(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    ask(factories.running(ada), 50)
    limit(acme, ada, 60)
    with pytest.raises(BudgetExhausted):
        ask(factories.running(ada), 11)
    ask(factories.running(ada), 10)


# --- settling --------------------------------------------------------------------------------


def test_a_receipt_settles_its_grant(acme: Company, ada: Agent) -> None:
    run = factories.running(ada)
    ask(run, 40)
    receipt(run, 1, 25)
    assert (month(acme).reserved_micros, month(acme).spent_micros) == (0, 25)
    assert states(run) == ["settled"]
    assert Reservation.objects.get().settled_micros == 25


def test_a_cost_above_its_grant_is_booked_in_full(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    run = factories.running(ada)
    ask(run, 40)
    assert receipt(run, 1, 250).exhausted
    assert month(ada).spent_micros == 250


def test_the_same_receipt_twice_settles_once(acme: Company, ada: Agent) -> None:
    run = factories.running(ada)
    ask(run, 40)
    receipt(run, 1, 25)
    ask(run, 30)
    assert receipt(run, 1, 25).duplicate
    assert (month(ada).reserved_micros, month(ada).spent_micros) == (30, 25)


def test_a_receipt_that_comes_after_the_next_grant_settles_its_own(ada: Agent) -> None:
    run = factories.running(ada)
    ask(run, 40)
    ask(run, 60, now=NOVEMBER + timedelta(seconds=1))
    receipt(run, 1, 25)
    assert (month(ada).reserved_micros, month(ada).spent_micros) == (60, 25)
    receipt(run, 2, 60)
    assert month(ada).reserved_micros == 0


def test_a_receipt_from_elsewhere_does_not_open_the_wall(ada: Agent) -> None:
    run = factories.running(ada)
    ask(run, 40)
    book(ada, "api:anything", 5, run_id=run.id, now=NOVEMBER)
    assert (month(ada).reserved_micros, month(ada).spent_micros) == (40, 5)


def test_a_call_is_spent_in_the_period_under_whose_limit_it_was_granted(ada: Agent) -> None:
    run = factories.running(ada)
    ask(run, 40, now=LAST_SECOND)
    receipt(run, 1, 25, now=DECEMBER)
    rows = Spend.objects.filter(scope=Scope.AGENT, window=Window.MONTH)
    assert [(str(row.period_start), row.spent_micros, row.reserved_micros) for row in rows] == [
        ("2026-11-01", 25, 0)
    ]


def test_what_was_granted_before_midnight_is_not_spent_beyond_the_new_months_wall(
    acme: Company, ada: Agent
) -> None:
    limit(acme, ada, 100)
    old, new = factories.running(ada), factories.running(ada)
    ask(old, 100, now=LAST_SECOND)
    ask(new, 100, now=DECEMBER)
    receipt(new, 1, 100, now=DECEMBER)
    receipt(old, 1, 100, now=DECEMBER)
    rows = Spend.objects.filter(scope=Scope.AGENT, window=Window.MONTH)
    assert [row.spent_micros for row in rows] == [100, 100]


def test_a_receipt_that_names_its_moment_counts_there(ada: Agent) -> None:
    run = factories.running(ada)
    ask(run, 40, now=LAST_SECOND)
    receipt(run, 1, 25, now=DECEMBER, occurred_at=DECEMBER)
    rows = Spend.objects.filter(scope=Scope.AGENT, window=Window.MONTH).order_by("period_start")
    assert [(row.spent_micros, row.reserved_micros) for row in rows] == [(0, 0), (25, 0)]


def test_an_answer_under_another_name_costs_what_was_granted(acme: Company, ada: Agent) -> None:
    run = factories.running(ada)
    ask(run, 40)
    booked = receipt(
        run,
        1,
        None,
        usage_provider="p",
        usage_model="m-secret-alias",
        usage_input_tokens=30,
        usage_output_tokens=0,
    )
    assert (booked.cost_micros, booked.status) == (30, "estimated")
    assert CostEvent.objects.get().model == "m-secret-alias"


# --- models without a price ------------------------------------------------------------------


def test_a_model_without_a_price_passes_where_no_limit_stands(ada: Agent) -> None:
    ask(factories.running(ada), 10, model="smollm2", provider="127.0.0.1:8080")
    assert not Reservation.objects.exists()


@pytest.mark.parametrize("scope", ["ada", "acme"])
def test_a_model_without_a_price_does_not_pass_a_hard_limit(
    acme: Company, ada: Agent, scope: str
) -> None:
    limit(acme, {"ada": ada, "acme": acme}[scope], 100)
    with pytest.raises(BudgetExhausted, match="Nobody knows what smollm2 costs") as refused:
        ask(factories.running(ada), 10, model="smollm2")
    assert refused.value.details["reason"] == "model_unpriced"


def test_a_soft_limit_lets_it_pass(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100, is_hard=False)
    ask(factories.running(ada), 10, model="smollm2")


def test_a_price_of_zero_lets_it_pass(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    set_price(acme, "smollm2", 0)
    ask(factories.running(ada), 10, model="smollm2")


def test_a_budget_may_let_some_calls_without_a_price_pass(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100, unpriced_calls=2)
    run = factories.running(ada)
    for call in (1, 2):
        ask(run, 10, model="smollm2")
        receipt(run, call, None, usage_model="smollm2")
    with pytest.raises(BudgetExhausted, match="Nobody knows"):
        ask(run, 10, model="smollm2")


def test_a_free_call_does_not_pass_a_limit_that_is_reached(acme: Company, ada: Agent) -> None:
    set_price(acme, "smollm2", 0)
    limit(acme, ada, 100)
    receipt(factories.running(ada), 1, 100)
    with pytest.raises(BudgetExhausted, match="used up"):
        ask(factories.running(ada), 10, model="smollm2")


# --- runs whose calls nobody sees ------------------------------------------------------------


@pytest.fixture
def cli(acme: Company) -> Agent:
    """A command whose last runs cost 10, 20, … 200 micro-dollars."""
    agent = factories.agent(acme, "Cli", adapter_type="process")
    for number in range(20):
        run = factories.run(agent, status=HeartbeatRun.Status.SUCCEEDED)
        book(agent, f"old{number}", 10 * (number + 1), run_id=run.id, now=LAST_SECOND)
    return agent


def test_a_command_keeps_aside_what_its_runs_usually_cost(cli: Agent) -> None:
    assert budgets.usual_cost(cli.id) == 190
    run = factories.running(cli)
    ask(run, 0, model="")
    assert Reservation.objects.get().kind == Reservation.Kind.RUN
    assert month(cli).reserved_micros == 190


def test_each_receipt_of_a_command_takes_from_what_was_kept(cli: Agent) -> None:
    run = factories.running(cli)
    ask(run, 0, model="")
    receipt(run, 1, 100)
    assert month(cli).reserved_micros == 90
    receipt(run, 2, 150)
    assert month(cli).reserved_micros == 0
    assert Reservation.objects.get().settled_micros == 250


def test_a_command_that_passes_the_limit_is_told_to_stop(acme: Company, cli: Agent) -> None:
    spent = month(cli).spent_micros
    limit(acme, cli, spent + 200)
    run = factories.running(cli)
    ask(run, 0, model="")
    assert not receipt(run, 1, 199).exhausted
    assert receipt(run, 2, 1).exhausted


def test_a_chat_agent_keeps_nothing_for_the_whole_run(acme: Company) -> None:
    chat = factories.agent(acme, "Chat", adapter_type="openai")
    done = factories.run(chat, status=HeartbeatRun.Status.SUCCEEDED)
    book(chat, "old", 100, run_id=done.id, now=NOVEMBER)
    ask(factories.running(chat), 0, model="")
    assert not Reservation.objects.exists()


# --- what becomes of the rest ----------------------------------------------------------------


def end(run: HeartbeatRun, status: str, code: str = "") -> None:
    HeartbeatRun.objects.filter(id=run.id).update(status=status, code=code, finished_at=NOVEMBER)


def test_a_run_that_ended_keeps_nothing(ada: Agent) -> None:
    run = factories.running(ada)
    ask(run, 40)
    budgets.turn(now=NOVEMBER)
    assert states(run) == ["held"]
    end(run, "failed", "connect_failed")
    budgets.turn(now=NOVEMBER)
    assert states(run) == ["released"]
    assert month(ada).reserved_micros == 0


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("lost", "lost"),
        ("unknown", "lost"),
        ("failed", "stream_broken"),
        ("cancelled", "cancelled"),
    ],
)
def test_a_run_that_was_cut_may_still_cost(ada: Agent, status: str, code: str) -> None:
    run = factories.running(ada)
    ask(run, 40)
    end(run, status, code)
    budgets.turn(now=NOVEMBER)
    assert states(run) == ["unknown"]
    assert month(ada).reserved_micros == 40


def test_a_late_receipt_settles_what_was_unknown(ada: Agent) -> None:
    run = factories.running(ada)
    ask(run, 40)
    end(run, "lost", "lost")
    budgets.turn(now=NOVEMBER)
    receipt(run, 1, 33, now=NOVEMBER + timedelta(hours=2))
    assert states(run) == ["settled"]
    assert (month(ada).reserved_micros, month(ada).spent_micros) == (0, 33)


def test_a_person_may_write_off_what_is_unknown(ada: Agent) -> None:
    run = factories.running(ada)
    ask(run, 40)
    end(run, "lost", "lost")
    budgets.turn(now=NOVEMBER)
    for _ in range(2):
        reservations.write_off(
            reservation=Reservation.objects.get(), actor=activity.SYSTEM, now=NOVEMBER
        )
    assert states(run) == ["released"]
    assert Activity.objects.filter(action="reservation.written_off").count() == 1


def test_nothing_stays_unknown_longer_than_a_day_and_its_end_is_told(ada: Agent) -> None:
    run = factories.running(ada)
    ask(run, 40)
    end(run, "lost", "lost")
    budgets.turn(now=NOVEMBER)
    budgets.turn(now=NOVEMBER + timedelta(hours=24))
    assert states(run) == ["unknown"]
    budgets.turn(now=NOVEMBER + timedelta(hours=24, seconds=1))
    assert states(run) == ["released"]
    assert Activity.objects.filter(action="reservation.expired").exists()


def test_room_kept_by_ended_runs_is_found_when_it_is_needed(acme: Company, ada: Agent) -> None:
    limit(acme, ada, 100)
    run = factories.running(ada)
    ask(run, 100)
    end(run, "failed", "rate_limited")
    ask(factories.running(ada), 100)
    assert month(ada).reserved_micros == 100


@pytest.mark.django_db(transaction=True)
def test_a_grant_whose_answer_was_lost_is_freed_with_its_run(acme: Company, ada: Agent) -> None:
    run = factories.running(ada)
    with answer_lost("billing_reserve"), pytest.raises(OperationalError):
        ask(run, 40)
    ask(run, 40)  # the engine asks again
    receipt(run, 1, 25)
    assert (month(ada).reserved_micros, month(ada).spent_micros) == (40, 25)
    end(run, "succeeded")
    budgets.turn(now=NOVEMBER)
    assert month(ada).reserved_micros == 0


# --- all at once -----------------------------------------------------------------------------


@pytest.mark.fault("T23", "250 grants at once on a limit for a hundred")
@pytest.mark.django_db(transaction=True)
def test_a_limit_for_a_hundred_lets_exactly_a_hundred_pass(acme: Company) -> None:
    agents = [factories.agent(acme, f"Worker {number}") for number in range(5)]
    limit(acme, acme, 1_000)
    runs = [factories.running(agents[number % 5]) for number in range(250)]
    results = at_once([lambda r=run: ask(r, 10) for run in runs], workers=10)
    granted = [result for result in results if result is None]
    assert len(granted) == 100
    assert {type(result) for result in results if result is not None} == {RoomTaken}
    assert month(acme).reserved_micros == 1_000


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("workers", [20, 80])
def test_parallel_runs_on_one_dollar_never_spend_a_micro_dollar_more(
    acme: Company, workers: int
) -> None:
    """Each run asks, calls and books until it is refused, as the engine does."""
    agents = [factories.agent(acme, f"Worker {number}") for number in range(4)]
    rockets = [factories.project(acme, f"P{number}") for number in range(2)]
    limit(acme, acme, 1_000_000)
    limit(acme, agents[0], 150_000)

    runs = [
        factories.running(
            agents[number % 4],
            factories.issue(acme, assignee=agents[number % 4], project=rockets[number % 2]),
        )
        for number in range(workers)
    ]

    def work(number: int) -> int:
        run, project, spent = runs[number], rockets[number % 2], 0
        for call in range(1, 60):
            worst = 4_000 + (number * 7 + call * 13) % 5_000
            try:
                ask(run, worst)
            except BudgetExhausted:
                end(run, "failed", "budget_exhausted")
                return spent
            actual = worst - (call * 31) % 4_000
            receipt(run, call, actual, project_id=project.id)
            spent += actual
        return spent

    results = at_once([lambda n=n: work(n) for n in range(workers)], workers=workers)
    assert [result for result in results if isinstance(result, Exception)] == []
    assert sum(results) == month(acme).spent_micros <= 1_000_000
    assert month(agents[0]).spent_micros <= 150_000
    assert month(acme).spent_micros > 900_000, "the wall stood far too early"
    assert month(acme).reserved_micros == 0
