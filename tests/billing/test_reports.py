"""What the pages and the API show of the money adds up to what was booked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agents.models import Agent
from billing import budgets, reports
from billing.models import Window
from companies import activity
from companies.models import Company
from tests import factories
from tests.billing.receipts import book

NOVEMBER = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def test_a_month_without_spend_is_zero(acme: Company, now: datetime) -> None:
    assert reports.month(company_id=acme.id, now=now) == reports.Summary(0, 0, 0, 0, 0, None)


def test_every_breakdown_adds_up_to_the_month(acme: Company, ada: Agent, bo: Agent) -> None:
    rocket = factories.project(acme, "Rocket")
    book(ada, "a", 100, project_id=rocket.id, now=NOVEMBER)
    book(ada, "b", 50, now=NOVEMBER, usage_model="other")
    book(bo, "c", 7, now=NOVEMBER, usage_provider="openai")
    book(bo, "d", None, now=NOVEMBER, usage_provider="ollama", usage_model="x-9")
    month = reports.month(company_id=acme.id, now=NOVEMBER)
    assert (month.spent_micros, month.events, month.unpriced_events) == (157, 4, 1)
    for breakdown in (
        reports.by_agent,
        reports.by_project,
        reports.by_model,
        reports.by_provider,
    ):
        lines = breakdown(company_id=acme.id, now=NOVEMBER)
        assert sum(line.spent_micros for line in lines) == 157
        assert sum(line.unpriced_events for line in lines) == 1


def test_what_belongs_to_no_project_has_a_line_of_its_own(acme: Company, ada: Agent) -> None:
    rocket = factories.project(acme, "Rocket")
    book(ada, "a", 100, project_id=rocket.id, now=NOVEMBER)
    book(ada, "b", 50, now=NOVEMBER)
    lines = reports.by_project(company_id=acme.id, now=NOVEMBER)
    assert [(line.name, line.spent_micros) for line in lines] == [
        ("Rocket", 100),
        ("No project", 50),
    ]


def test_last_month_is_not_this_month(acme: Company, ada: Agent) -> None:
    book(ada, "a", 100, now=datetime(2026, 10, 31, 23, 59, 59, tzinfo=UTC))
    assert reports.by_agent(company_id=acme.id, now=NOVEMBER) == []


def test_a_rivals_money_is_not_shown(acme: Company, ada: Agent, spy: Agent) -> None:
    book(spy, "a", 100, now=NOVEMBER)
    assert reports.by_model(company_id=acme.id, now=NOVEMBER) == []
    assert reports.daily(company_id=acme.id, now=NOVEMBER, days=1)[0][1] == 0


def test_the_daily_series_has_every_day(acme: Company, ada: Agent) -> None:
    book(ada, "a", 5, now=NOVEMBER - timedelta(days=2))
    book(ada, "b", 9, now=NOVEMBER)
    days = reports.daily(company_id=acme.id, now=NOVEMBER, days=4)
    assert [micros for _, micros in days] == [0, 5, 0, 9]
    assert days == reports.agent_daily(company_id=acme.id, agent_id=ada.id, now=NOVEMBER, days=4)


def test_an_issue_shows_all_that_it_ever_cost(acme: Company, ada: Agent) -> None:
    issue = factories.issue(acme, assignee=ada)
    book(ada, "a", 5, issue_id=issue.id, now=NOVEMBER - timedelta(days=30))
    book(ada, "b", 9, issue_id=issue.id, now=NOVEMBER)
    line = reports.by_issue(company_id=acme.id, issue_id=issue.id)
    assert (line.spent_micros, line.events) == (14, 2)


def test_cuts_that_only_the_ledger_knows_add_up_as_well(acme: Company, ada: Agent) -> None:
    goal = factories.goal(acme)
    run = factories.running(ada)
    book(ada, "a", 5, now=NOVEMBER, goal_id=goal.id, billing_code="R&D", run_id=run.id)
    book(ada, "b", 9, now=NOVEMBER)
    goals = reports.by_goal(company_id=acme.id, now=NOVEMBER)
    codes = reports.by_billing_code(company_id=acme.id, now=NOVEMBER)
    runs = reports.by_run(company_id=acme.id, agent_id=ada.id, now=NOVEMBER)
    assert [(line.name, line.spent_micros) for line in goals] == [("No goal", 9), (goal.title, 5)]
    assert [(line.name, line.spent_micros) for line in codes] == [("No code", 9), ("R&D", 5)]
    assert [(line.id, line.spent_micros) for line in runs] == [(None, 9), (run.id, 5)]


def test_an_issues_tree_counts_everything_below_it_once(acme: Company, ada: Agent) -> None:
    top = factories.issue(acme, assignee=ada)
    child = factories.issue(acme, assignee=ada, parent=top)
    grandchild = factories.issue(acme, assignee=ada, parent=child)
    for number, issue in enumerate((top, child, grandchild)):
        book(ada, f"k{number}", 10, issue_id=issue.id, now=NOVEMBER)
    assert reports.by_issue_tree(company_id=acme.id, issue_id=top.id).spent_micros == 30
    assert reports.by_issue_tree(company_id=acme.id, issue_id=child.id).spent_micros == 20


def test_limits_show_what_is_left_of_them(acme: Company, ada: Agent) -> None:
    for scope, scope_id, micros in (("agent", ada.id, 100), ("company", acme.id, 1000)):
        budgets.set_limit(
            company=acme,
            scope=scope,
            scope_id=scope_id,
            limit_micros=micros,
            actor=activity.SYSTEM,
            now=NOVEMBER,
        )
    book(ada, "a", 85, now=NOVEMBER)
    company, agent = reports.limits(company=acme, now=NOVEMBER)
    assert (company.name, company.percent, company.state) == ("Acme", 9, "ok")
    assert (agent.name, agent.percent, agent.state) == ("Ada", 85, "warning")
    assert agent.resets_at == datetime(2026, 12, 1, tzinfo=UTC)
    assert agent.budget.window == Window.MONTH
    book(ada, "b", 711, now=NOVEMBER)
    company, agent = reports.limits(company=acme, now=NOVEMBER)
    assert (company.percent, company.state) == (80, "ok")  # 79.6: the mark is not passed
    assert (agent.percent, agent.state) == (796, "reached")
