"""What would happen without the guards: each test takes one away and shows the damage, so that
the tests that rely on it are known to be able to fail."""

from __future__ import annotations

import pytest

from agents.models import Agent
from billing import audit, ledger
from billing.models import Spend
from companies.models import Company
from tests import factories
from tests.billing.receipts import altered, at_once, book
from tests.billing.test_reservations import ask, known_price, limit, month  # noqa: F401


@pytest.fixture
def books_agree() -> None:
    """Not here: these tests cook the books."""


def test_without_the_bound_a_limit_is_passed(
    acme: Company,
    ada: Agent,
    known_price: None,  # noqa: F811
) -> None:
    limit(acme, ada, 100)
    with altered("billing_reserve", "<= LEAST(total", "<= 1000 * LEAST(total"):
        for _ in range(3):
            ask(factories.running(ada), 60)
    assert month(ada).reserved_micros == 180


def test_with_a_bound_looser_by_one_a_limit_is_passed_by_one(
    acme: Company,
    ada: Agent,
    known_price: None,  # noqa: F811
) -> None:
    limit(acme, ada, 100)
    with altered("billing_reserve", "<= LEAST(total", "<= 1 + LEAST(total"):
        ask(factories.running(ada), 60)
        ask(factories.running(ada), 41)
    assert month(ada).reserved_micros == 101


def test_without_the_key_a_receipt_counts_twice(ada: Agent) -> None:
    with altered("billing_book", "IF NOT FOUND THEN", "IF FALSE THEN"):
        book(ada, "k", 100)
        book(ada, "k", 100)
    assert Spend.objects.filter(spent_micros=200).count() == 6


def test_without_the_release_the_wall_closes(
    ada: Agent,
    known_price: None,  # noqa: F811
) -> None:
    run = factories.running(ada)
    ask(run, 40)
    with altered("billing_book", "freed := grant_.open_micros", "freed := 0"):
        book(ada, ledger.run_key(run.id, 1), 25, run_id=run.id)
    assert Spend.objects.filter(reserved_micros=40).exists()


@pytest.mark.django_db(transaction=True)
def test_without_the_one_order_of_locks_writers_wait_for_each_other(
    acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = [factories.agent(acme, f"Worker {number}") for number in range(2)]
    project = factories.project(acme, "P")
    monkeypatch.setattr(ledger, "DEADLOCKS", 1)
    order = "ORDER BY line.scope_place, line.window_place, line.period_start, line.scope_id"
    with altered("billing_book", order, "ORDER BY random()"):
        results = at_once(
            [lambda n=n: book(agents[n % 2], f"k{n}", 1, project_id=project.id) for n in range(400)]
        )
    failed = [result for result in results if isinstance(result, Exception)]
    assert any("deadlock" in str(error) for error in failed)


def test_the_audit_sees_a_reservation_that_no_total_knows(
    ada: Agent,
    known_price: None,  # noqa: F811
) -> None:
    ask(factories.running(ada), 40)
    Spend.objects.filter(scope="agent", window="day").update(reserved_micros=39)
    assert [drift.check for drift in audit.drifts()] == ["reservations = totals"]
