"""A run that works on several issues: its cost is split among them, never counted twice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agents.models import Agent, HeartbeatRun
from billing import ledger, owners, reports
from billing.models import CostEvent
from companies.models import Company
from issues.models import Checkout, Issue
from tests import factories
from tests.api.conftest import run_caller
from tests.billing.receipts import book
from tests.billing.test_reservations import NOVEMBER


@pytest.fixture
def run(acme: Company, ada: Agent) -> HeartbeatRun:
    """Of Ada's, about an issue that it has in hand."""
    issue = factories.issue(acme, "Own", assignee=ada)
    run = factories.running(ada, issue, now=NOVEMBER)
    factories.checkout(issue, ada, run, now=NOVEMBER)
    return run


def minute(number: int) -> Any:
    return NOVEMBER + timedelta(minutes=number)


def report(run: HeartbeatRun, call: int, micros: int, at: int) -> ledger.Booked:
    return book(
        run.agent,
        ledger.run_key(run.id, call),
        micros,
        run_id=run.id,
        issue_id=run.issue_id,
        project_id=run.issue.project_id if run.issue else None,
        follows_work=True,
        now=minute(at),
    )


def put_down(checkout: Checkout, at: int) -> None:
    Checkout.objects.filter(pk=checkout.pk).update(released_at=minute(at))


def cost(issue: Issue) -> int:
    return reports.by_issue(company_id=issue.company_id, issue_id=issue.id).spent_micros


def test_the_costs_of_five_issues_add_up_to_the_companys(
    acme: Company, ada: Agent, run: HeartbeatRun
) -> None:
    others = [factories.issue(acme, f"Other {n}", assignee=ada) for n in range(4)]
    report(run, 1, 1, at=1)
    for number, issue in enumerate(others, 2):
        taken = factories.checkout(issue, ada, run, now=minute(10 * number))
        report(run, number, 10**number, at=10 * number + 1)
        put_down(taken, 10 * number + 2)
    report(run, 6, 7, at=90)
    assert run.issue is not None
    assert cost(run.issue) == 8
    assert [cost(issue) for issue in others] == [100, 1_000, 10_000, 100_000]
    assert reports.month(company_id=acme.id, now=NOVEMBER).spent_micros == 111_108


def test_the_issue_that_was_taken_last_bears_it(
    acme: Company, ada: Agent, run: HeartbeatRun
) -> None:
    first, second = (factories.issue(acme, name, assignee=ada) for name in ("One", "Two"))
    factories.checkout(first, ada, run, now=minute(1))
    factories.checkout(second, ada, run, now=minute(2))
    report(run, 1, 50, at=3)
    assert (cost(first), cost(second)) == (0, 50)


def test_a_run_about_nothing_charges_what_it_had_in_hand(acme: Company, ada: Agent) -> None:
    run = factories.running(ada, now=NOVEMBER)
    issue = factories.issue(acme, "Found", assignee=ada)
    report(run, 1, 3, at=1)
    put_down(factories.checkout(issue, ada, run, now=minute(2)), 3)
    report(run, 2, 40, at=4)
    assert cost(issue) == 40
    assert CostEvent.objects.get(cost_micros=3).issue_id is None


def test_project_goal_and_code_go_with_the_issue(
    acme: Company, ada: Agent, run: HeartbeatRun
) -> None:
    rocket = factories.project(acme, "Rocket")
    issue = factories.issue(acme, "Other", assignee=ada, project=rocket, billing_code="X-1")
    factories.checkout(issue, ada, run, now=minute(1))
    report(run, 1, 5, at=2)
    event = CostEvent.objects.get()
    assert (event.project_id, event.billing_code) == (rocket.id, "X-1")


def test_a_receipt_that_is_repeated_later_is_the_same_receipt(
    acme: Company, ada: Agent, run: HeartbeatRun
) -> None:
    report(run, 1, 5, at=1)
    issue = factories.issue(acme, "Other", assignee=ada)
    factories.checkout(issue, ada, run, now=minute(2))
    assert report(run, 1, 5, at=3).duplicate
    assert cost(issue) == 0


def test_a_rivals_run_has_no_part_in_it(spy: Agent, run: HeartbeatRun) -> None:
    theirs = factories.running(spy, factories.issue(spy.company, assignee=spy), now=NOVEMBER)
    event = CostEvent(company_id=run.company_id, run_id=theirs.id, occurred_at=minute(1))
    owners.settle(event)
    assert event.issue_id is None


def test_a_cost_that_an_agent_reports_without_an_issue_is_its_runs(
    acme: Company, ada: Agent
) -> None:
    issue = factories.issue(acme, assignee=ada)
    caller = run_caller(factories.running(ada, issue))
    body = {"agentId": str(ada.id), "provider": "p", "model": "m", "costMicros": 12}
    answer = caller.send("POST", f"/api/companies/{acme.id}/cost-events", body)
    assert (answer.status_code, answer.json()["issueId"]) == (201, str(issue.id))
