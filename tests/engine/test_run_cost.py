"""What a run costs the database: statements counted, so that nobody adds one without seeing it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents import claims, runs, workers
from agents.models import Agent, HeartbeatRun
from companies.models import Company
from issues.models import Issue
from paperclip.engine.closing import Ending, close_run
from paperclip.engine.opening import open_run
from tests import factories

pytestmark = pytest.mark.django_db

OPENING = 3
CLOSING = 5


@pytest.fixture
def claimed(ada: Agent, issue: Issue) -> runs.Claimed:
    Agent.objects.filter(pk=ada.pk).update(on_finish="done")
    factories.run(ada, issue)
    worker = workers.register(instance="here", slot=0, pid=1, capacity=1)
    (one,) = runs.claim(worker_id=worker, limit=1)
    return one


def statements(captured: CaptureQueriesContext) -> list[str]:
    """Without what only surrounds a transaction, which a savepoint is in a test."""
    return [
        query["sql"] for query in captured if not query["sql"].startswith(("SAVEPOINT", "RELEASE"))
    ]


def test_a_run_begins_with_few_statements(claimed):
    """Read the run and what lies around it, check its issue out, ask the budget."""
    with CaptureQueriesContext(connection) as captured:
        open_run(claimed)
    assert len(statements(captured)) <= OPENING, "\n".join(statements(captured))


def test_a_run_ends_with_few_statements(claimed):
    """Read the run, lock its issue, look, write there, finish."""
    open_run(claimed)
    with CaptureQueriesContext(connection) as captured:
        close_run(claimed, Ending("succeeded", summary="All done.", wish="done"))
    assert len(statements(captured)) <= CLOSING, "\n".join(statements(captured))
    assert HeartbeatRun.objects.get().status == "succeeded"


def test_a_run_without_an_issue_costs_five_statements(ada):
    """Read it, its agent's inbox, its limits; read it, finish it."""
    factories.run(ada)
    worker = workers.register(instance="here", slot=0, pid=1, capacity=1)
    (one,) = runs.claim(worker_id=worker, limit=1)
    with CaptureQueriesContext(connection) as captured:
        open_run(one)
        close_run(one, Ending("succeeded", summary="All done."))
    assert len(statements(captured)) <= 5, "\n".join(statements(captured))
    assert HeartbeatRun.objects.get().status == "succeeded"


class Counting(psycopg.Cursor[Any]):
    """The claims' own cursor, which Django's count does not see."""

    count = 0

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        Counting.count += 1
        return super().execute(*args, **kwargs)


@pytest.mark.parametrize("agents", [1, 20])
def test_a_batch_of_claims_costs_as_many_statements_as_one(acme, monkeypatch, agents):
    """The turn, the look, the take."""
    Company.objects.update(max_concurrent_agents=20)
    for _ in range(agents):
        agent = factories.agent(acme)
        factories.run(agent, factories.issue(acme, assignee=agent))
    worker = workers.register(instance="here", slot=0, pid=1, capacity=100)
    monkeypatch.setattr(Counting, "count", 0)
    monkeypatch.setattr(claims, "_cursor", lambda: Counting(connection.connection))
    assert len(runs.claim(worker_id=worker, limit=20)) == agents
    assert Counting.count == 3
