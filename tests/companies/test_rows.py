"""Rows that a statement of one's own selects: instances as Django's own queries give them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, ProgrammingError, connection, transaction
from django.db.models import signals
from django.db.transaction import TransactionManagementError

from agents.models import Agent, HeartbeatRun
from companies import rows
from companies.ids import new_id
from issues.models import Issue

pytestmark = pytest.mark.django_db


def read(what: Any, issue: Issue) -> Any:
    statement = (
        f"SELECT {rows.columns(what, 'i')}, {rows.columns(HeartbeatRun, 'r')}, i.title"
        " FROM issues_issue i LEFT JOIN agents_heartbeatrun r ON r.issue_id = i.id"
        " WHERE i.id = %(id)s"
    )
    ((found, run, title),) = rows.fetch(statement, {"id": issue.id}, what, HeartbeatRun)
    assert (run, title) == (None, issue.title)
    return found


def test_a_whole_row_is_what_the_orm_gives(issue: Issue, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        found = read(Issue, issue)
        fields = {name: value for name, value in vars(found).items() if name != "_state"}
    (expected,) = Issue.objects.filter(pk=issue.pk).values()
    assert fields == expected
    assert (found, found._state.adding, found._state.db) == (issue, False, "default")
    assert found.assignee_agent == issue.assignee_agent
    found.title = "Another"
    found.save()
    assert Issue.objects.get(pk=issue.pk).title == "Another"


def test_of_a_part_the_rest_is_read_when_it_is_asked_for(
    issue: Issue, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(1):
        found = read(rows.part(Issue, "id", "title", "status"), issue)
        assert (found.title, found.status) == (issue.title, issue.status)
    assert found.get_deferred_fields() > {"description", "version"}
    with django_assert_num_queries(1):
        assert found.version == issue.version
    rows.update(found, {"status"})
    assert Issue.objects.get(pk=issue.pk).description == issue.description


def test_a_part_names_fields_that_there_are() -> None:
    with pytest.raises(AssertionError):
        rows.part(Issue, "id", "colour")


@pytest.mark.parametrize("model", [Agent, HeartbeatRun, Issue])
def test_nobody_listens_to_instances_that_are_made(model: Any) -> None:
    """They would not hear of these."""
    for signal in (signals.pre_init, signals.post_init):
        assert not signal.has_listeners(model)


def test_a_statement_of_ones_own_fails_like_one_of_djangos() -> None:
    with pytest.raises(ProgrammingError), transaction.atomic():
        rows.ask("SELECT * FROM nothing_of_ours", [])
    with pytest.raises(IntegrityError), transaction.atomic():
        rows.ask("INSERT INTO companies_company (id) VALUES (%s) RETURNING id", [new_id()])
    with pytest.raises(TransactionManagementError), transaction.atomic():
        transaction.set_rollback(True)
        rows.ask("SELECT %s::int", [1])
    assert rows.ask("SELECT %(one)s::int, NULL", {"one": 1}) == [(1, None)]


def test_who_counts_statements_or_listens_to_them_sees_them_all(
    django_assert_num_queries: Any,
) -> None:
    heard: list[str] = []

    def listen(execute: Any, sql: str, *rest: Any) -> Any:
        heard.append(sql)
        return execute(sql, *rest)

    with django_assert_num_queries(1):
        rows.ask("SELECT 1", [])
    with connection.execute_wrapper(listen):
        rows.ask("SELECT 2", [])
    assert heard == ["SELECT 2"]


def test_a_moment_without_a_time_zone_is_warned_of_as_django_does(issue: Issue) -> None:
    assert rows.values(issue)["new_created_at"] == issue.created_at
    issue.created_at = issue.created_at.replace(tzinfo=None)
    with pytest.raises(RuntimeWarning, match="naive"):
        rows.values(issue)
