"""Pages of a company with months of work behind it are answered from indexes.

A handful of rows is always read as a whole, so the planner is kept from doing that here: what is
tested is that there is another way, and that the statements are written so that it can be found.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agents.models import HeartbeatRun
from companies.models import Company
from issues.models import Issue
from tests.pages.conftest import Scene


@pytest.fixture
def months(acme: Company, scene: Scene) -> None:
    """Work of a year, and statistics that know of it: those of other tests are forgotten."""
    began = datetime(2025, 12, 1, tzinfo=UTC)
    ended = {"company": acme, "agent": scene.ada, "status": "succeeded", "source": "timer"}
    at = [began + timedelta(hours=4 * number) for number in range(2_000)]
    moments = ("not_before", "created_at", "started_at", "finished_at")
    runs = [HeartbeatRun(**ended, **dict.fromkeys(moments, moment)) for moment in at]
    HeartbeatRun.objects.bulk_create(runs, batch_size=500)
    statuses = ("done", "done", "done", "done", "cancelled", "done", "done", "todo", "in_review")
    issues = [
        Issue(
            company=acme,
            number=number,
            identifier=f"ACM-{number}",
            title="Forge an anvil",
            status=statuses[number % len(statuses)],
            created_at=began,
            updated_at=began,
        )
        for number in range(1_000, 2_000)
    ]
    Issue.objects.bulk_create(issues)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE agents_heartbeatrun")
        cursor.execute("ANALYZE issues_issue")


@pytest.fixture
def no_whole_tables(months: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")


@pytest.fixture
def index_alone(no_whole_tables: None) -> None:
    """While nobody has vacuumed, looking into the table seems as good as the index alone."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_bitmapscan = off; SET LOCAL enable_indexscan = off")


def plan(statement: str, values: object = None) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}", values)  # type: ignore[arg-type]
        return "\n".join(row[0] for row in cursor.fetchall())


def plans(browser: Client, path: str) -> list[str]:
    """How the database answers each statement of a page, but for the session's."""
    with CaptureQueriesContext(connection) as captured:
        assert browser.get(f"/c/ACM/{path}").status_code == 200
    statements = [query["sql"] for query in captured.captured_queries]
    return [plan(s.replace("%", "%%"), []) for s in statements if "SAVEPOINT" not in s]


def test_live_runs_are_found_among_all_that_ever_were(acme: Company, months: None) -> None:
    text = HeartbeatRun.objects.for_company(acme.id).live().order_by().explain()
    # Of the indexes that hold only such runs, one for each of the two states.
    assert "BitmapOr" in text
    assert "run_by_company" not in text


def test_what_is_in_review_is_counted_without_the_issues(acme: Company, index_alone: None) -> None:
    text = plan(
        "SELECT count(*) FROM issues_issue"
        " WHERE company_id = %s AND status = 'in_review' AND archived_at IS NULL",
        [acme.id],
    )
    assert "Index Only Scan using issue_on_board" in text


@pytest.mark.parametrize("path", ["issues/", "issues/board"])
def test_a_list_and_a_board_read_the_beginning_of_an_index(
    olgas: Client, no_whole_tables: None, path: str
) -> None:
    (rows,) = [text for text in plans(olgas, path) if "run_by_issue" in text]
    assert rows.count("using issue_on_board") >= 5


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("sort=created", "issue_by_creation"),
        ("sort=updated", "issue_by_update"),
        ("sort=priority", "issue_by_priority"),
    ],
)
def test_a_page_of_the_api_sorts_nothing_to_find_its_issues(
    olgas: Client, acme: Company, no_whole_tables: None, query: str, index: str
) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert olgas.get(f"/api/companies/{acme.id}/issues?limit=5&{query}").status_code == 200
    (statement,) = [q["sql"] for q in captured.captured_queries if "AS MATERIALIZED" in q["sql"]]
    assert f"using {index}" in plan(statement.replace("%", "%%"), [])


@pytest.mark.parametrize("path", ["panels/recent", "agents/"])
def test_how_two_weeks_of_runs_ended_is_read_from_an_index(
    olgas: Client, no_whole_tables: None, path: str
) -> None:
    assert any("run_record" in text for text in plans(olgas, path))


def test_the_index_of_endings_has_all_that_is_counted(db: None) -> None:
    """So that a company's two weeks can be counted without its runs."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'run_record'")
        definition = cursor.fetchone()[0]
    keys, included = definition.split("INCLUDE")
    assert "(company_id, created_at)" in keys
    assert "(agent_id, status)" in included
