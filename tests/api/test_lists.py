"""Lists: pages by key, filters, and a fixed number of statements."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.models import Agent
from companies.models import Company, User
from issues.models import Issue
from tests import factories
from tests.api.conftest import Caller


def walk(caller: Caller, path: str) -> list[Any]:
    """All pages, by following the Link header."""
    found: list[Any] = []
    while path:
        response = caller.send("GET", path)
        assert response.status_code == 200, response.content
        found += response.json()
        link = response.headers.get("Link", "")
        path = link.split(">")[0].removeprefix("<") if link else ""
    return found


@pytest.mark.parametrize("sort", ["created", "updated", "priority"])
def test_pages_follow_each_other_without_gap_or_double(
    sort: str, as_olga: Caller, acme: Company
) -> None:
    for number in range(7):
        factories.issue(acme, priority=number % 3)

    rows = walk(as_olga, f"/api/companies/{acme.id}/issues?limit=3&sort={sort}")

    assert len(rows) == len({row["id"] for row in rows}) == 7


def test_a_row_that_comes_meanwhile_shifts_no_page(as_olga: Caller, acme: Company) -> None:
    factories.issues(acme, 4)
    path = f"/api/companies/{acme.id}/issues?limit=2"
    first = as_olga.send("GET", path)
    factories.issue(acme, "New")

    second = as_olga.send("GET", f"{path}&cursor={first['X-Next-Cursor']}")

    titles = [row["title"] for row in first.json() + second.json()]
    assert titles == ["Issue 4", "Issue 3", "Issue 2", "Issue 1"]


def test_a_cursor_of_another_order_is_refused(as_olga: Caller, acme: Company) -> None:
    factories.issues(acme, 3)
    path = f"/api/companies/{acme.id}/issues?limit=2"
    cursor = as_olga.send("GET", path)["X-Next-Cursor"]

    refused = as_olga.send("GET", f"{path}&sort=updated&cursor={cursor}")

    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_cursor")


def test_the_last_page_has_no_next(as_olga: Caller, acme: Company) -> None:
    factories.issues(acme, 2)

    assert "Link" not in as_olga.send("GET", f"/api/companies/{acme.id}/issues?limit=2").headers


def test_filters_narrow_the_list(as_olga: Caller, acme: Company, ada: Agent, olga: User) -> None:
    factories.issue(acme, "Forge", assignee=ada)
    factories.issue(acme, "Sell", status="done", priority=0)
    factories.issue(acme, "Think", assignee=olga, status="backlog")

    def titles(query: str) -> set[str]:
        path = f"/api/companies/{acme.id}/issues?{query}"
        return {row["title"] for row in as_olga.send("GET", path).json()}

    assert titles("status=todo,done") == {"Forge", "Sell"}
    assert titles(f"assigneeAgentId={ada.id}") == {"Forge"}
    assert titles("assigneeUserId=me") == {"Think"}
    assert titles("priority=critical") == {"Sell"}
    assert titles("q=forg") == {"Forge"}
    assert titles("q=ACM-2") == {"Sell"}


def test_counts_by_status(as_olga: Caller, acme: Company) -> None:
    factories.issues(acme, 2)
    factories.issue(acme, status="done")

    counted = as_olga.send("GET", f"/api/companies/{acme.id}/issues/count").json()

    assert counted == {"count": 3, "byStatus": {"todo": 2, "done": 1}}


def test_a_long_description_is_cut_in_lists_only(as_olga: Caller, acme: Company) -> None:
    long = factories.issue(acme, description="x" * 5_000)

    (row,) = as_olga.send("GET", f"/api/companies/{acme.id}/issues").json()
    whole = as_olga.send("GET", f"/api/issues/{long.id}").json()

    assert row["descriptionTruncated"] is True
    assert len(row["description"]) < 1_000
    assert len(whole["description"]) == 5_000


@pytest.fixture(autouse=True)
def _no_quota(settings: Any) -> None:
    """Once in a while a process takes calls from the shared count; that is no part of a list."""
    settings.API_CALLS_A_MINUTE = 0


def _statements(caller: Caller, path: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert caller.send("GET", path).status_code == 200
    return len(captured)


@pytest.mark.parametrize(
    ("path", "bound"),
    [
        ("issues", 2),
        ("agents", 7),
        ("heartbeat-runs", 3),
        ("live-runs", 3),
        ("activity", 3),
        ("goals", 3),
        ("projects", 3),
        ("dashboard", 3),
    ],
)
def test_a_list_costs_the_same_few_statements_however_long_it_is(
    path: str, bound: int, as_olga: Caller, acme: Company
) -> None:
    path = f"/api/companies/{acme.id}/{path}"
    as_olga.send("GET", path)  # the key's last use is noted once a minute

    def grow(count: int) -> None:
        for _ in range(count):
            agent = factories.agent(acme)
            factories.hold(agent)
            issue = factories.issue(acme, assignee=agent)
            factories.blocker(issue, factories.issue(acme))
            factories.run(agent, issue)
            factories.goal(acme)
            factories.project(acme)

    grow(2)
    few = _statements(as_olga, path)
    grow(10)

    assert _statements(as_olga, path) == few <= bound


def test_one_issue_costs_few_statements(as_olga: Caller, acme: Company, ada: Agent) -> None:
    parent = factories.issue(acme, "Parent", goal=factories.goal(acme))
    child = factories.issue(acme, assignee=ada, parent=parent, project=factories.project(acme))
    as_olga.send("GET", f"/api/issues/{child.id}")

    assert _statements(as_olga, f"/api/issues/{child.id}") <= 10


def test_a_hundred_issues_fit_in_120_kilobytes(as_olga: Caller, acme: Company) -> None:
    for number in range(100):
        factories.issue(acme, f"Issue {number}", description="word " * 100)

    response = as_olga.send("GET", f"/api/companies/{acme.id}/issues?limit=100")

    assert len(response.json()) == 100
    assert len(response.content) < 120 * 1024
    assert Issue.objects.count() == 100


def test_moments_have_milliseconds_and_z(as_olga: Caller, issue: Issue) -> None:
    shown = as_olga.send("GET", "/api/issues/ACM-1").json()["createdAt"]

    assert len(shown) == len("2026-11-30T22:12:22.575Z")
    assert shown.endswith("Z")


def test_a_row_of_a_list_looks_like_the_issue_itself(
    as_olga: Caller, acme: Company, ada: Agent, olga: User
) -> None:
    """Two writers of one shape: the database and Python."""
    blocker = factories.issue(acme, "Iron")
    one = factories.issue(
        acme, 'A "quoted" title \\ ✓', description="short", assignee=ada, status="in_progress",
        project=factories.project(acme), goal=factories.goal(acme), parent=blocker,
        billing_code="x", created_by_user=olga,
    )  # fmt: skip
    factories.blocker(one, blocker)
    run = factories.running(ada, one)
    factories.checkout(one, ada, run)
    made = as_olga.send("POST", f"/api/companies/{acme.id}/labels", {"name": "Bug"}).json()
    as_olga.send("PATCH", f"/api/issues/{one.id}", {"labelIds": [made["id"]]})

    listed = as_olga.send("GET", f"/api/companies/{acme.id}/issues?q=quoted").json()[0]
    whole = as_olga.send("GET", f"/api/issues/{one.id}").json()

    only_listed = {"descriptionTruncated", "lastActivityAt"}
    assert set(listed) - set(whole) == only_listed
    for name in set(listed) - only_listed:
        if name in ("activeRun", "blockerAttention"):  # shorter in a list, never different
            assert listed[name].items() <= whole[name].items(), name
            assert listed[name]["id" if name == "activeRun" else "state"]
        else:
            assert listed[name] == whole[name], name


def test_the_dashboard_counts_what_is(
    as_olga: Caller, acme: Company, ada: Agent, bo: Agent, globex: Company
) -> None:
    factories.hold(bo, "agent_budget")
    factories.running(ada, factories.issue(acme, assignee=ada, status="in_progress"))
    factories.issue(acme, status="done")
    factories.issue(globex)
    factories.interaction(factories.issue(acme))
    ended = timezone.now() - timedelta(days=1)
    for status in ("succeeded", "timed_out", "cancelled"):
        factories.run(ada, status=status, now=ended)

    shown = as_olga.send("GET", f"/api/companies/{acme.id}/dashboard").json()

    assert shown["agents"] == {"active": 1, "running": 1, "paused": 1, "error": 0}
    assert shown["tasks"] == {"open": 2, "inProgress": 1, "inReview": 0, "blocked": 0, "done": 1}
    assert shown["pendingInteractions"] == 1
    assert shown["budgets"] == {"pausedAgents": 1}
    assert len(shown["runActivity"]) == 14
    assert shown["runActivity"][-2] == {
        "date": ended.date().isoformat(), "succeeded": 1, "failed": 1, "other": 1, "total": 3
    }  # fmt: skip


def test_an_empty_company_has_a_dashboard(as_oscar: Caller, globex: Company) -> None:
    shown = as_oscar.send("GET", f"/api/companies/{globex.id}/dashboard").json()

    assert shown["tasks"]["open"] == 0
    assert shown["agents"]["active"] == 0
