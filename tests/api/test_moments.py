"""Moments from outside: what nobody could carry further is refused before it is stored."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agents.models import Agent, AgentKey
from billing.models import CostEvent, ModelPrice
from companies import moments
from companies.errors import Invalid
from companies.models import Company, OperatorKey
from tests.api.conftest import Caller

BEYOND = ("9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00", "1899-12-31T23:59:59Z")
LAST = "9999-12-31T23:59:59Z"


@pytest.mark.parametrize("moment", BEYOND)
def test_a_key_that_expires_beyond_time_is_refused(
    as_olga: Caller, ada: Agent, moment: str
) -> None:
    keys = OperatorKey.objects.count()
    for path in (f"/api/agents/{ada.id}/keys", "/api/board-api-keys"):
        refused = as_olga.send("POST", path, {"name": "y", "expiresAt": moment})
        assert refused.status_code == 400, refused.content
        assert refused.json()["details"]["issues"][0]["path"] == ["expiresAt"]
        assert as_olga.send("GET", path).status_code == 200
    assert not AgentKey.objects.exists()
    assert OperatorKey.objects.count() == keys


def test_the_last_moment_of_the_calendar_is_kept_as_it_is(as_olga: Caller, ada: Agent) -> None:
    for path in (f"/api/agents/{ada.id}/keys", "/api/board-api-keys"):
        made = as_olga.send("POST", path, {"name": "y", "expiresAt": LAST})
        assert made.status_code == 201, made.content
        shown = [row["expiresAt"] for row in as_olga.send("GET", path).json()]
        assert "9999-12-31T23:59:59.000Z" in shown


@pytest.mark.parametrize("moment", BEYOND)
def test_prices_and_costs_know_the_same_bounds(
    as_olga: Caller, acme: Company, ada: Agent, moment: str
) -> None:
    price = {"model": "zz", "inputUsdPerMillion": 1, "outputUsdPerMillion": 1}
    refused = as_olga.send("POST", "/api/companies/ACM/prices", {**price, "effectiveAt": moment})
    assert refused.status_code == 400, refused.content
    assert refused.json()["details"]["issues"][0]["path"] == ["effectiveAt"]
    assert not ModelPrice.objects.exists()
    assert as_olga.send("GET", "/api/companies/ACM/prices").status_code == 200

    cost = {"agentId": str(ada.id), "provider": "p", "model": "zz", "occurredAt": moment}
    refused = as_olga.send("POST", "/api/companies/ACM/cost-events", cost)
    assert refused.status_code == 400, refused.content
    assert not CostEvent.objects.exists()


def test_an_offset_is_kept_as_its_moment_in_utc(as_olga: Caller, acme: Company) -> None:
    price = {"model": "zz", "inputUsdPerMillion": 1, "outputUsdPerMillion": 1}
    made = as_olga.send(
        "POST", "/api/companies/ACM/prices", {**price, "effectiveAt": "2020-03-01T01:00:00+02:00"}
    )
    assert made.status_code == 201, made.content
    assert ModelPrice.objects.get().effective_at == datetime(2020, 2, 29, 23, tzinfo=UTC)


@pytest.mark.parametrize("text", [*BEYOND, "2020-01-01", "2020-01-01T00:00:00", "x", "", "9" * 400])
def test_what_an_address_tells_is_a_moment_or_nothing(text: str) -> None:
    assert moments.parse(text) is None


def test_the_last_day_has_no_next_one() -> None:
    assert moments.day("9999-12-31") is None
    assert moments.day("2024-02-29") == (
        datetime(2024, 2, 29, tzinfo=UTC),
        datetime(2024, 3, 1, tzinfo=UTC),
    )


def test_a_verb_refuses_with_the_name_of_its_field() -> None:
    with pytest.raises(Invalid) as refusal:
        moments.sound(datetime.fromisoformat(BEYOND[0]), "expiresAt")
    assert (refusal.value.code, refusal.value.field) == ("moment_out_of_range", "expiresAt")
