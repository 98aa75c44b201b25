"""The ledger books each receipt once, exactly, and never refuses one that is late."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.models import Agent, HeartbeatRun
from billing import audit, ledger, prices, totals
from billing.models import CostEvent, CostKey, Scope, Spend, Window
from companies import activity
from companies.errors import Refusal
from companies.models import Activity, Company, Project
from tests import factories
from tests.billing.receipts import answer_lost, at_once, book


def spent(scope: str, scope_id: uuid.UUID, window: str = Window.LIFETIME) -> int:
    return Spend.objects.get(scope=scope, scope_id=scope_id, window=window).spent_micros


def test_the_providers_own_cost_comes_first(ada: Agent) -> None:
    booked = book(ada, "k", 41, usage_provider="openai", usage_model="gpt-5")
    event = CostEvent.objects.get(id=booked.event_id)
    assert (event.cost_micros, event.cost_status, event.price_source) == (
        41,
        "reported",
        "provider",
    )


def test_a_name_that_no_database_takes_does_not_lose_the_cost(ada: Agent) -> None:
    booked = book(ada, "k", 1_000, usage_model="\x00m\ud800")
    event = CostEvent.objects.get(id=booked.event_id)
    assert (event.cost_micros, event.model) == (1_000, "\ufffdm\ufffd")


def test_without_it_the_price_list_decides_and_is_named(ada: Agent) -> None:
    booked = book(
        ada,
        "k",
        None,
        usage_provider="openai",
        usage_model="gpt-5",
        usage_input_tokens=1150,
        usage_cache_read_tokens=1000,
        usage_cache_write_tokens=30,
        usage_output_tokens=25,
    )
    event = CostEvent.objects.get(id=booked.event_id)
    assert event.cost_micros == 563  # 562.5, half up
    assert (event.cost_status, event.price_source) == ("estimated", "genai-prices")
    assert event.price_version == prices.bundle_info()["version"]


def test_an_unknown_price_is_never_zero(ada: Agent) -> None:
    booked = book(ada, "k", None, usage_provider="ollama", usage_model="x-9")
    assert (booked.cost_micros, booked.status) == (None, "unpriced")
    total = Spend.objects.get(scope=Scope.COMPANY, window=Window.MONTH)
    assert (total.spent_micros, total.events, total.unpriced_events) == (0, 1, 1)


def test_a_subscription_costs_nothing_and_its_tokens_count(ada: Agent) -> None:
    booked = book(ada, "k", 900, billing_type=CostEvent.BillingType.SUBSCRIPTION)
    assert booked.cost_micros == 0
    assert Spend.objects.get(scope=Scope.AGENT, window=Window.MONTH).tokens == 15


def test_a_call_that_used_nothing_leaves_no_row(ada: Agent) -> None:
    booked = book(ada, "k", None, usage_input_tokens=0, usage_output_tokens=0)
    assert booked.event_id is None
    assert not CostEvent.objects.exists()
    assert not CostKey.objects.exists()


def test_a_cost_counts_for_agent_project_and_company_in_all_periods(
    ada: Agent, bo: Agent, acme: Company
) -> None:
    project = Project.objects.create(company=acme, name="Rocket")
    book(ada, "a", 100, project_id=project.id)
    book(bo, "b", 20)
    for window in totals.WINDOWS:
        assert spent(Scope.AGENT, ada.id, window) == 100
        assert spent(Scope.AGENT, bo.id, window) == 20
        assert spent(Scope.PROJECT, project.id, window) == 100
        assert spent(Scope.COMPANY, acme.id, window) == 120


def test_small_costs_are_not_rounded_away(ada: Agent, acme: Company) -> None:
    for number in range(100):
        book(ada, f"k{number}", 4)
    assert spent(Scope.COMPANY, acme.id) == 400


def test_a_runs_totals_are_booked_even_after_its_lease_is_lost(ada: Agent, now: datetime) -> None:
    run = factories.run(ada, status=HeartbeatRun.Status.LOST, finished_at=now)
    book(ada, ledger.run_key(run.id, 1), 30, run_id=run.id)
    book(ada, ledger.run_key(run.id, 2), None, run_id=run.id, usage_model="x-9")
    run.refresh_from_db()
    assert (run.cost_micros, run.unpriced_calls) == (30, 1)
    assert (run.input_tokens, run.output_tokens) == (20, 10)


def test_the_same_receipt_twice_is_one_cost(ada: Agent, acme: Company) -> None:
    first = book(ada, "k", 100)
    again = book(ada, "k", 100)
    assert again == ledger.Booked(first.event_id, 100, "reported", duplicate=True)
    assert spent(Scope.COMPANY, acme.id) == 100


def test_a_repeat_after_a_price_change_is_still_a_repeat(
    ada: Agent, acme: Company, now: datetime
) -> None:
    prices.set_price(
        company=acme,
        model="m",
        input_pico=10**6,
        output_pico=0,
        actor=activity.SYSTEM,
        now=now,
    )
    first = book(ada, "k", None, usage_model="m")
    prices.set_price(
        company=acme,
        model="m",
        input_pico=5 * 10**6,
        output_pico=0,
        effective_at=now + timedelta(microseconds=1),
        actor=activity.SYSTEM,
        now=now,
    )
    assert book(ada, "k", None, usage_model="m").cost_micros == first.cost_micros == 10


@pytest.mark.parametrize("altered", [{"cost_micros": 101}, {"usage_output_tokens": 6}])
def test_the_same_key_for_another_cost_is_refused(ada: Agent, altered: dict[str, Any]) -> None:
    book(ada, "k", 100)
    with pytest.raises(Refusal) as refused:
        book(ada, "k", **{"cost_micros": 100, **altered})
    assert (refused.value.code, refused.value.status) == ("cost_key_reused", 422)


def test_two_companies_may_use_the_same_key(ada: Agent, spy: Agent) -> None:
    assert not book(ada, "k").duplicate
    assert not book(spy, "k").duplicate


@pytest.mark.parametrize("amount", [-1, 2**63, 10**12 + 1, 1.5, float("nan"), "7", True])
def test_an_amount_that_cannot_be_is_refused(ada: Agent, amount: Any) -> None:
    for fields in ({"cost_micros": amount}, {"usage_input_tokens": amount}):
        with pytest.raises(Refusal) as refused:
            book(ada, "k", **{"cost_micros": 1, **fields})
        assert refused.value.code == "amount_out_of_range"
    assert not CostEvent.objects.exists()


@pytest.mark.parametrize("key", ["", "x" * 201, "a\x00b"])
def test_a_key_that_cannot_be_is_refused(ada: Agent, key: str) -> None:
    with pytest.raises(Refusal, match="key"):
        book(ada, key)


@pytest.mark.parametrize("away", [timedelta(minutes=6), timedelta(days=-36)])
def test_a_cost_outside_its_time_is_refused(ada: Agent, now: datetime, away: timedelta) -> None:
    with pytest.raises(Refusal) as refused:
        book(ada, "k", now=now, occurred_at=now + away)
    assert refused.value.code == "occurred_at_out_of_range"


def test_a_late_receipt_counts_in_the_month_in_which_it_was_spent(ada: Agent) -> None:
    first_of_month = datetime(2026, 11, 1, 0, 0, 5, tzinfo=UTC)
    book(
        ada, "k", 7, now=first_of_month, occurred_at=datetime(2026, 10, 31, 23, 59, 59, tzinfo=UTC)
    )
    months = Spend.objects.filter(scope=Scope.AGENT, window=Window.MONTH)
    assert [str(month.period_start) for month in months] == ["2026-10-01"]


def test_a_receipt_of_a_run_of_long_ago_is_refused(ada: Agent, now: datetime) -> None:
    """Its key would be forgotten, and a repeat of it would count again."""
    run = factories.run(ada, status="failed", now=now - timedelta(days=36))
    with pytest.raises(Refusal, match="35 days old"):
        book(ada, ledger.run_key(run.id, 1), 30, run_id=run.id, now=now)
    run.refresh_from_db()
    assert run.cost_micros == 0


def test_the_ledger_cannot_be_changed(ada: Agent) -> None:
    booked = book(ada, "k")
    events = CostEvent.objects.filter(id=booked.event_id)
    for change in (lambda: events.update(cost_micros=1), lambda: events.delete()):
        with pytest.raises(DatabaseError), transaction.atomic():
            change()


def test_a_correction_is_a_row_of_its_own(ada: Agent, acme: Company, now: datetime) -> None:
    booked = book(ada, "k", 100)
    event = CostEvent.objects.get(id=booked.event_id)
    for _ in range(2):  # the same correction twice is one
        ledger.correct(
            event=event, cost_micros=-30, note="refund", key="fix", actor=activity.SYSTEM, now=now
        )
    assert spent(Scope.COMPANY, acme.id) == 70
    assert CostEvent.objects.get(reverses_id=event.id).note == "refund"
    assert Activity.objects.filter(action="cost.corrected").count() == 1


def test_a_refused_booking_leaves_nothing_behind(ada: Agent, monkeypatch: Any) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(ledger.holds, "enforce", broken)
    with pytest.raises(RuntimeError):
        book(ada, "k")
    assert not CostEvent.objects.exists()
    assert not CostKey.objects.exists()
    assert not Spend.objects.exists()


# --- all at once -----------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_the_same_receipt_from_everywhere_at_once_is_one_cost(ada: Agent, acme: Company) -> None:
    results = at_once([lambda: book(ada, "k", 100)] * 10, workers=10)
    assert sorted(result.duplicate for result in results) == [False] + [True] * 9
    assert len({result.event_id for result in results}) == 1
    assert spent(Scope.COMPANY, acme.id) == 100


@pytest.mark.fault("T26", "receipts sent 1 to 5 times by 8 writers, one in ten of them altered")
@pytest.mark.django_db(transaction=True)
def test_many_receipts_sent_several_times_by_many_writers_add_up_exactly(acme: Company) -> None:
    dice = random.Random(11)
    agents = [factories.agent(acme, f"Worker {number}") for number in range(4)]
    projects = [Project.objects.create(company=acme, name=f"P{number}") for number in range(2)]
    sends, refusals, expected = [], 0, 0
    for number in range(120):
        agent, project = dice.choice(agents), dice.choice([None, *projects])
        run_fields = {"project_id": project.id if project else None}
        cost = dice.randrange(1, 10_000)
        expected += cost
        for copy in range(dice.randrange(1, 6)):
            altered = copy > 0 and dice.random() < 0.1
            refusals += altered
            sends.append((agent, f"k{number}", cost, altered, run_fields))
    originals = {}
    for send in sends:
        originals.setdefault(send[1], send)
    # The true one of each goes first, so that it is known which of two stories is the altered one.
    at_once([lambda s=s: book(s[0], s[1], s[2], **s[4]) for s in originals.values()])
    dice.shuffle(sends)
    results = at_once([lambda s=s: book(s[0], s[1], s[2] + s[3], **s[4]) for s in sends])
    refused = [result for result in results if isinstance(result, Exception)]
    assert {type(error) for error in refused} <= {Refusal}
    assert len(refused) == refusals
    assert CostEvent.objects.count() == 120
    assert spent(Scope.COMPANY, acme.id) == expected
    assert sum(spent(Scope.AGENT, a.id) for a in agents if Spend.objects.filter(scope_id=a.id)) == (
        expected
    )


@pytest.mark.django_db(transaction=True)
def test_a_commit_whose_answer_was_lost_is_found_done(ada: Agent, acme: Company) -> None:
    with answer_lost("billing_book"), pytest.raises(OperationalError):
        book(ada, "k", 100)
    assert book(ada, "k", 100).duplicate
    assert spent(Scope.COMPANY, acme.id) == 100


@pytest.mark.django_db(transaction=True)
def test_a_booking_is_one_statement_that_its_locks_do_not_outlive(ada: Agent) -> None:
    with CaptureQueriesContext(connection) as queries:
        book(ada, "k", 100)
    assert [q["sql"].split("(")[0] for q in queries] == [
        "SELECT is_new, over_run, due FROM billing_book",
        "SELECT pg_logical_emit_message",
    ]


# --- the proof -------------------------------------------------------------------------------


def test_the_check_says_that_the_books_agree(ada: Agent, capsys: Any) -> None:
    book(ada, "k")
    call_command("billing_check")
    assert "ok  ledger = days" in capsys.readouterr().out


def test_the_check_finds_a_single_lost_micro_dollar(ada: Agent) -> None:
    book(ada, "k", 100)
    row = Spend.objects.get(scope=Scope.AGENT, window=Window.MONTH)
    Spend.objects.filter(id=row.id).update(spent_micros=99)
    assert [(d.check, d.ledger, d.total) for d in audit.drifts()] == [("days = totals", 100, 99)]
    with pytest.raises(CommandError, match="1 place"):
        call_command("billing_check")
    Spend.objects.filter(id=row.id).update(spent_micros=100)


def test_the_check_finds_a_run_whose_total_differs(ada: Agent) -> None:
    run = factories.run(ada)
    book(ada, "k", 100, run_id=run.id)
    HeartbeatRun.objects.filter(id=run.id).update(cost_micros=101)
    assert [drift.check for drift in audit.drifts()] == ["ledger = runs"]
    HeartbeatRun.objects.filter(id=run.id).update(cost_micros=100)


def test_the_night_says_in_the_log_what_disagrees(ada: Agent, caplog: Any) -> None:
    book(ada, "k", 100)
    assert audit.watch(now=timezone.now())
    Spend.objects.filter(scope=Scope.AGENT, window=Window.MONTH).update(spent_micros=99)
    assert not audit.watch(now=timezone.now())
    assert "days = totals" in caplog.text
    Spend.objects.filter(scope=Scope.AGENT, window=Window.MONTH).update(spent_micros=100)


def test_rows_that_no_month_took_raise_an_alarm(ada: Agent, capsys: Any) -> None:
    book(ada, "k", now=datetime(2031, 1, 1, tzinfo=UTC))
    call_command("billing_check")
    assert "The DEFAULT partition of billing_costevent holds 1" in capsys.readouterr().err


def test_booking_needs_few_statements(ada: Agent, django_assert_max_num_queries: Any) -> None:
    run = factories.run(ada)
    with django_assert_max_num_queries(9):
        book(ada, "k", 100, run_id=run.id)


def test_totals_are_read_as_the_tenant_sees_them(ada: Agent, spy: Agent, acme: Company) -> None:
    book(ada, "a")
    book(spy, "b")
    assert {row.company_id for row in Spend.objects.for_company(acme.id)} == {acme.id}
