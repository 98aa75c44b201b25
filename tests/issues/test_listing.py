"""Lists and boards: every issue once, in the order that is asked for, at a bounded price."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from urllib.parse import parse_qsl

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.models import Agent
from companies.models import Company, User
from issues import lines, listing
from issues.models import Issue
from tests import factories

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
STATUSES = listing.ORDER


@pytest.fixture
def many(acme: Company, ada: Agent, olga: User) -> list[Issue]:
    """Three pages of issues, of every status, priority and assignee, and one that is archived."""
    made = factories.issues(acme, 130)
    for n, one in enumerate(made):
        one.status = STATUSES[n % len(STATUSES)]
        one.priority = n % 4
        one.updated_at = NOW - timedelta(minutes=n * 37 % 101)
        person = one.status != "in_progress" and n % 3 == 0
        one.assignee_user = olga if person else None
        one.assignee_agent = ada if one.status == "in_progress" or n % 3 == 1 else None
    made[0].archived_at = NOW
    fields = ["status", "priority", "updated_at", "archived_at", "assignee_agent", "assignee_user"]
    Issue.objects.bulk_update(made, fields)
    return made[1:]


def walk(company: Company, user: User, query: listing.Query) -> list[lines.Row]:
    """All pages, one after the other."""
    rows: list[lines.Row] = []
    for _ in range(20):
        page = listing.page(company=company, user_id=user.pk, query=query, now=NOW)
        assert len(page.rows) <= listing.PAGE
        rows += page.rows
        if not page.next:
            return rows
        query = listing.Query.parse(dict(parse_qsl(page.next.removeprefix("?"))))
    raise AssertionError("the pages do not end")


def place(issue: Issue, query: listing.Query) -> tuple[object, ...]:
    group = {
        "status": STATUSES.index(issue.status),
        "priority": issue.priority,
        "assignee": issue.assignee_agent.name
        if issue.assignee_agent
        else issue.assignee_user.email
        if issue.assignee_user
        else "~",
        "none": 0,
    }[query.group]
    moment = issue.updated_at if query.sort == "updated" else issue.created_at
    rank = issue.priority if query.sort == "priority" else -moment.timestamp()
    return group, rank, -issue.id.int


@pytest.mark.parametrize(
    ("status", "sort", "group"),
    [*product(["open", "all", "todo"], listing.SORTS, ["status"]),
     *product(["open"], listing.SORTS, ["assignee", "priority", "none"])],
)  # fmt: skip
def test_the_pages_show_each_issue_once_and_in_order(
    acme: Company, olga: User, many: list[Issue], status: str, sort: str, group: str
) -> None:
    query = listing.Query(status=status, sort=sort, group=group)
    wanted = {"open": listing.OPEN, "all": STATUSES}.get(status, (status,))
    expected = sorted(
        (one for one in many if one.status in wanted), key=lambda one: place(one, query)
    )
    assert [row.identifier for row in walk(acme, olga, query)] == [e.identifier for e in expected]


def test_filters_hold_on_every_page(acme: Company, olga: User, many: list[Issue]) -> None:
    mine = walk(acme, olga, listing.Query(status="all", assignee="me"))
    assert {row.identifier for row in mine} == {
        one.identifier for one in many if one.assignee_user == olga
    }
    high = walk(acme, olga, listing.Query(priority="high"))
    assert {row.priority for row in high} == {1}
    assert walk(acme, olga, listing.Query(assignee="nonsense")) == []


def test_a_column_of_the_board_begins_with_what_weighs_most(
    acme: Company, olga: User, many: list[Issue]
) -> None:
    columns = listing.board(company=acme, user_id=olga.pk, query=listing.Query(), now=NOW)
    assert [group.key for group, _ in columns] == list(listing.COLUMNS)
    for group, total in columns:
        here = [one for one in many if one.status == group.key]
        if group.key == "done":
            here.sort(key=lambda one: (one.updated_at, one.id), reverse=True)
        else:
            here.sort(key=lambda one: (one.priority, -one.id.int))
        assert total == len(here)
        assert [row.id for row in group.rows] == [one.id for one in here[: listing.COLUMN]]


def test_a_line_tells_cost_run_and_children(acme: Company, olga: User, ada: Agent) -> None:
    parent = factories.issue(acme, "Forge", status="in_progress", assignee=ada)
    factories.issue(acme, "Heat", parent=parent, status="done")
    factories.issue(acme, "Hammer", parent=parent)
    factories.run(ada, parent, status="succeeded", cost_micros=1_000)
    factories.running(ada, parent, cost_micros=500)
    row = walk(acme, olga, listing.Query(status="in_progress"))[0]
    assert (row.cost_micros, row.running, row.children) == (1_500, True, (1, 2))
    assert (row.assignee, row.assignee_kind, row.chip) == (ada.name, "agent", None)


def test_lines_of_another_company_are_not_found(acme: Company, spy: Agent, issue: Issue) -> None:
    foreign = factories.issue(spy.company)
    found = lines.by_id([foreign.id, issue.id], company=acme, now=NOW)
    assert [row.id for row in found] == [issue.id]


def test_a_list_and_a_board_ask_the_same_few_questions_however_long(
    acme: Company, olga: User, many: list[Issue]
) -> None:
    for show, most in ((listing.page, 5), (listing.board, 6)):
        with CaptureQueriesContext(connection) as captured:
            show(company=acme, user_id=olga.pk, query=listing.Query(), now=NOW)
        assert len(captured) <= most
