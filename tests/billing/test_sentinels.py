"""What would happen without the guards: each test takes one away and shows the damage, so that
the tests that rely on it are known to be able to fail."""

from __future__ import annotations

from typing import Any

import pytest

from agents.models import Agent
from billing import audit, ledger, reservations, totals
from billing.models import Spend
from companies.models import Company
from tests import factories
from tests.billing.receipts import at_once, book
from tests.billing.test_reservations import ask, known_price, limit, month  # noqa: F401


@pytest.fixture
def books_agree() -> None:
    """Not here: these tests cook the books."""


def test_without_the_bound_a_limit_is_passed(
    acme: Company,
    ada: Agent,
    known_price: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unbound = reservations._GRANT.replace(totals.RESERVE, totals.ADD)
    assert unbound != reservations._GRANT
    monkeypatch.setattr(reservations, "_GRANT", unbound)
    limit(acme, ada, 100)
    for _ in range(3):
        ask(factories.running(ada), 60)
    assert month(ada).reserved_micros == 180


def test_without_the_key_a_receipt_counts_twice(
    ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_claim_key", lambda *args: True)
    book(ada, "k", 100)
    book(ada, "k", 100)
    assert Spend.objects.filter(spent_micros=200).count() == 6


def test_without_the_release_the_wall_closes(
    ada: Agent,
    known_price: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger.reservations, "settle", lambda **fields: reservations.Settled())
    run = factories.running(ada)
    ask(run, 40)
    book(ada, ledger.run_key(run.id, 1), 25, run_id=run.id)
    assert Spend.objects.filter(reserved_micros=40).exists()


@pytest.mark.django_db(transaction=True)
def test_without_the_one_order_of_locks_writers_wait_for_each_other(
    acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = [factories.agent(acme, f"Worker {number}") for number in range(2)]
    projects = [factories.project(acme, f"P{number}") for number in range(2)]
    for number in range(2):  # the rows exist
        book(agents[number], f"first{number}", 1, project_id=projects[number].id)
    flips = iter(range(10**6))

    def shuffled(changes: Any) -> list[totals.Line]:
        lines = sorted(changes, key=lambda line: line.place)
        return lines[::-1] if next(flips) % 2 else lines

    # One statement a line, so that the locks are taken one by one in this order.
    real = totals.add

    def one_by_one(company_id: Any, changes: Any, *, now: Any) -> list[Spend]:
        return [s for line in shuffled(changes) for s in real(company_id, [line], now=now)]

    monkeypatch.setattr(ledger.totals, "add", one_by_one)
    monkeypatch.setattr(ledger, "DEADLOCKS", 1)
    results = at_once(
        [lambda n=n: book(agents[n % 2], f"k{n}", 1, project_id=projects[0].id) for n in range(16)]
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
