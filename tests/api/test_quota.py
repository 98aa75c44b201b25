"""How many calls a caller may make: one count for all processes, told in every answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext

from companies.errors import RateLimited
from companies.models import Company
from companies.quota import Quota
from issues.models import Issue
from tests.api.conftest import Caller

NOW = datetime(2026, 3, 4, 12, 0, 20, tzinfo=UTC)


@pytest.fixture
def processes(db: None) -> list[Quota]:
    return [Quota() for _ in range(3)]


def calls(quotas: list[Quota], *, limit: int, tries: int, now: datetime = NOW) -> int:
    """How many of so many calls, spread over the processes, were granted."""
    granted = 0
    for number in range(tries):
        try:
            quotas[number % len(quotas)].take("user:olga", limit=limit, now=now)
        except RateLimited:
            continue
        granted += 1
    return granted


@pytest.mark.parametrize("limit", [1, 7, 99, 250])
def test_all_processes_together_never_grant_more(limit: int, processes: list[Quota]) -> None:
    granted = calls(processes, limit=limit, tries=4 * limit + 50)

    assert granted == limit


def test_the_next_minute_is_a_new_one(processes: list[Quota]) -> None:
    calls(processes, limit=5, tries=20)

    assert calls(processes, limit=5, tries=20, now=NOW + timedelta(seconds=60)) == 5


def test_callers_do_not_share(processes: list[Quota]) -> None:
    calls(processes, limit=5, tries=20)

    assert processes[0].take("user:oscar", limit=5, now=NOW).left == 4


def test_most_calls_ask_the_database_nothing(processes: list[Quota]) -> None:
    with CaptureQueriesContext(
        connection,
    ) as asked:
        calls(processes[:1], limit=1_000, tries=1_500)

    assert len(asked) == 100  # one a block, and none for who is over the limit


def test_who_is_over_the_limit_hears_when_to_come_back(
    as_olga: Caller, as_vera: Caller, acme: Company, settings: object
) -> None:
    settings.API_CALLS_A_MINUTE = 2  # type: ignore[attr-defined]
    with time_machine.travel(NOW, tick=False):
        answers = [as_olga.send("GET", "/api/companies") for _ in range(2)]
        over = as_olga.send("POST", f"/api/companies/{acme.id}/issues", {"title": "x"})
        other = as_vera.send("GET", "/api/companies")

    told = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [[answer[name] for name in told] for answer in answers] == [
        ["2", "1", "40"],
        ["2", "0", "40"],
    ]
    assert (over.status_code, over.json()["code"]) == (429, "rate_limited")
    assert (over["Retry-After"], over["RateLimit-Remaining"]) == ("40", "0")
    assert other.status_code == 200
    assert not Issue.objects.exists()


def test_an_agent_has_a_limit_of_its_own(as_ada: Caller, settings: object) -> None:
    settings.AGENT_CALLS_A_MINUTE = 1  # type: ignore[attr-defined]

    first, second = (as_ada.send("GET", "/api/agents/me").status_code for _ in range(2))

    assert (first, second) == (200, 429)
