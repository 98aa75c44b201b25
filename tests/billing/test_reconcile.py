"""The provider's bill beside the ledger: every difference is shown, nothing is changed."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from agents.models import Agent
from billing import reconcile
from companies.errors import Invalid
from companies.models import Company
from tests.billing.receipts import book

NOVEMBER = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
DAY = date(2026, 11, 15)


def compare(company: Company, text: str) -> list[reconcile.Drift]:
    return reconcile.compare(company_id=company.id, provider="openrouter", text=text)


def test_what_agrees_has_no_difference(acme: Company, ada: Agent) -> None:
    book(ada, "a", 1_500_000, now=NOVEMBER, usage_model="M-1")
    book(ada, "b", 500_000, now=NOVEMBER, usage_model="m-1")
    found = compare(acme, "Date,Model,Cost\n2026-11-15,m-1,1.25\n2026-11-15T10:00:00Z,M-1,0.75\n")
    # Two spellings of a model are one line of the bill.
    assert [(line.day, line.model, line.billed_micros) for line in found] == [
        (DAY, "m-1", 2_000_000)
    ]
    assert found[0].difference_micros == 0


def test_what_only_one_side_knows_is_shown(acme: Company, ada: Agent) -> None:
    book(ada, "a", 100, now=NOVEMBER, usage_model="ours")
    found = compare(acme, "date,model,amount_usd\n2026-11-15,theirs,$0.69\n")
    assert [(line.model, line.billed_micros, line.booked_micros) for line in found] == [
        ("ours", 0, 100),
        ("theirs", 690_000, 0),
    ]


def test_another_providers_costs_are_not_compared(acme: Company, ada: Agent, spy: Agent) -> None:
    book(ada, "a", 100, now=NOVEMBER, usage_provider="openai", usage_model="m")
    book(spy, "b", 100, now=NOVEMBER, usage_model="m")
    (line,) = compare(acme, "date,model,cost\n2026-11-15,m,0.0001\n")
    assert line.booked_micros == 0


def test_an_empty_file_says_nothing(acme: Company) -> None:
    assert compare(acme, "date,model,cost\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "model,cost\nm,1\n",
        "date,model,cost\nyesterday,m,1\n",
        "date,model,cost\n2026-11-15,m,much\n",
        "date,model,cost\n2026-11-15,m,NaN\n",
        "date,model,cost\n2026-11-15,m,1e300\n",
        "date,model,cost\n2026-11-15\n\x00",
    ],
)
def test_a_file_that_cannot_be_read_is_refused(acme: Company, text: str) -> None:
    with pytest.raises(Invalid):
        compare(acme, text)
