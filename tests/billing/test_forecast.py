"""A forecast says how sure it is, and says nothing where it cannot know."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from agents.models import Agent
from billing import budgets, forecast
from companies import activity
from companies.models import Company
from tests import factories
from tests.billing.receipts import book

# A Monday; the month has 13 days after it.
NOW = datetime(2026, 11, 16, 23, 0, tzinfo=UTC)
assert NOW.date() + timedelta(days=14) == date(2026, 11, 30)


def spend(agent: Agent, daily: list[int]) -> None:
    """So much a day; the last number is yesterday's."""
    for number, micros in enumerate(reversed(daily), 1):
        if micros:
            day = NOW - timedelta(days=number)
            book(agent, f"d{number}", micros, now=day)


def test_a_short_past_says_nothing(acme: Company, ada: Agent) -> None:
    spend(ada, [100, 100])
    assert forecast.month_end(company_id=acme.id, now=NOW) is None


def test_a_steady_past_goes_on_without_a_band(acme: Company, ada: Agent) -> None:
    spend(ada, [100] * 10)
    found = forecast.month_end(company_id=acme.id, now=NOW)
    assert found is not None
    # Ten days so far, today still to be spent, 14 days to come.
    assert found.expected_micros == 1_000 + 100 + 1_400
    assert found.low_micros == found.expected_micros == found.high_micros
    assert found.basis_days == 10


def test_a_restless_past_has_a_band_around_it(acme: Company, ada: Agent) -> None:
    spend(ada, [50, 150] * 6)
    found = forecast.month_end(company_id=acme.id, now=NOW)
    assert found is not None
    assert found.low_micros < found.expected_micros < found.high_micros
    assert found.low_micros >= 1_200


def test_weekends_count_as_weekends(acme: Company, ada: Agent) -> None:
    days = [(NOW - timedelta(days=number)).weekday() for number in range(28, 0, -1)]
    spend(ada, [0 if weekday >= 5 else 100 for weekday in days])
    found = forecast.month_end(company_id=acme.id, now=NOW)
    assert found is not None
    # 2 to 15 November holds ten working days; today, and ten working days to come.
    assert found.expected_micros == 1_000 + 100 + 1_000
    assert found.high_micros == found.expected_micros


def test_it_tells_how_long_a_budget_lasts(acme: Company, ada: Agent) -> None:
    budgets.set_limit(
        company=acme,
        scope="company",
        scope_id=acme.id,
        limit_micros=1_500,
        actor=activity.SYSTEM,
        now=NOW,
    )
    spend(ada, [100] * 10)
    found = forecast.month_end(company_id=acme.id, now=NOW)
    assert found is not None
    assert found.days_left == pytest.approx(5.0)


def test_an_agent_has_a_forecast_of_its_own(acme: Company, ada: Agent, bo: Agent) -> None:
    spend(ada, [100] * 10)
    of_bo = forecast.month_end(company_id=acme.id, scope="agent", scope_id=bo.id, now=NOW)
    of_ada = forecast.month_end(company_id=acme.id, scope="agent", scope_id=ada.id, now=NOW)
    assert of_bo is None
    assert of_ada is not None


def test_a_day_far_above_the_weeks_before_is_marked(acme: Company, ada: Agent) -> None:
    spend(ada, [100] * 14 + [1_000, 100])
    assert forecast.unusual_days(company_id=acme.id, now=NOW, days=10) == [
        (NOW - timedelta(days=2)).date()
    ]


# --- before an issue is assigned -------------------------------------------------------------


def finish(company: Company, agent: Agent, costs: list[int], **fields: object) -> None:
    for number, micros in enumerate(costs):
        moment = NOW - timedelta(hours=len(costs) - number)
        done = factories.issue(
            company, status="done", assignee=agent, completed_at=moment, **fields
        )
        book(agent, f"i{done.identifier}", micros, issue_id=done.id, now=moment)


def test_an_issue_is_estimated_from_the_agents_finished_ones(acme: Company, ada: Agent) -> None:
    finish(acme, ada, [100, 110, 120, 130, 140, 150])
    found = forecast.issue_cost(issue=factories.issue(acme), agent_id=ada.id)
    assert found is not None
    assert (found.low_micros, found.expected_micros, found.high_micros) == (100, 125, 150)
    assert found.basis_issues == 6


def test_issues_of_the_same_project_are_better_witnesses(acme: Company, ada: Agent) -> None:
    rocket = factories.project(acme, "Rocket")
    finish(acme, ada, [1_000, 1_000, 1_000], project=rocket)
    finish(acme, ada, [10, 10, 10])
    issue = factories.issue(acme, project=rocket)
    found = forecast.issue_cost(issue=issue, agent_id=ada.id)
    assert found is not None
    assert found.expected_micros == 1_000


def test_it_says_how_often_it_was_right(acme: Company, ada: Agent) -> None:
    finish(acme, ada, [100, 120, 110, 115, 105, 900])
    found = forecast.issue_cost(issue=factories.issue(acme), agent_id=ada.id)
    assert found is not None
    assert found.hit_percent == 67


def test_without_witnesses_there_is_no_estimate(acme: Company, ada: Agent) -> None:
    finish(acme, ada, [100, 100])
    assert forecast.issue_cost(issue=factories.issue(acme), agent_id=ada.id) is None
