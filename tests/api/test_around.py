"""One issue with all that stands around it: what one statement writes is what each route tells."""

from __future__ import annotations

from typing import Any

import pytest

from agents.models import Agent
from companies.models import Company
from issues.models import Blocker
from tests import factories
from tests.api.conftest import Caller, agent_caller


@pytest.fixture
def whole(as_olga: Caller, acme: Company, ada: Agent) -> Any:
    """ACM-4, with something in every set around it."""
    top = factories.issue(acme, "Top", goal=factories.goal(acme))
    middle = factories.issue(acme, "Middle", parent=top, description="Why")
    factories.issue(acme, "Iron", priority=0)
    made = factories.issue(
        acme, 'A "quoted" title ✓', parent=middle, assignee=ada, project=factories.project(acme)
    )
    Blocker.objects.create(company=acme, issue=made, blocking=top)
    Blocker.objects.create(company=acme, issue=middle, blocking=made)
    run = factories.running(ada, made)
    factories.checkout(made, ada, run)
    factories.run(ada, made)
    factories.interaction(made)
    base = f"/api/issues/{made.id}"
    label = as_olga.send("POST", f"/api/companies/{acme.id}/labels", {"name": "Bug"}).json()
    as_olga.send("PATCH", base, {"labelIds": [label["id"]]})
    for key in ("plan", "design"):
        as_olga.send("PUT", f"{base}/documents/{key}", {"body": f"# {key}", "title": key})
    as_olga.send("POST", f"{base}/work-products", {"type": "branch", "title": "Fix"})
    return made


def test_what_stands_around_an_issue_is_what_its_routes_tell(as_olga: Caller, whole: Any) -> None:
    base = f"/api/issues/{whole.id}"
    shown = as_olga.send("GET", base).json()
    documents = as_olga.send("GET", f"{base}/documents").json()

    assert shown["activeRun"] == as_olga.send("GET", f"{base}/active-run").json()
    assert shown["activeRun"]["status"] == "running"
    assert shown["checkoutRunId"] == shown["activeRun"]["id"]
    assert shown["workProducts"] == as_olga.send("GET", f"{base}/work-products").json()
    assert shown["documentSummaries"] == [
        {name: value for name, value in one.items() if name != "body"} for one in documents
    ]
    assert [one["key"] for one in shown["documentSummaries"]] == ["design", "plan"]
    assert [label["name"] for label in shown["labels"]] == ["Bug"]
    assert [one["title"] for one in shown["ancestors"]] == ["Middle", "Top"]
    assert shown["ancestors"][0]["description"] == "Why"
    assert [one["title"] for one in shown["blockedBy"]] == ["Top"]
    assert [one["title"] for one in shown["blocks"]] == ["Middle"]
    assert shown["blockerAttention"]["sampleBlockerIdentifier"] == "ACM-1"
    assert len(shown["reviewAttention"]["paths"]) == 1


def test_an_issue_alone_has_empty_sets_around_it(as_olga: Caller, acme: Company) -> None:
    shown = as_olga.send("GET", f"/api/issues/{factories.issue(acme).id}").json()

    for name in (
        "ancestors", "blockedBy", "blocks", "labels", "labelIds", "documentSummaries",
        "workProducts",
    ):  # fmt: skip
        assert shown[name] == [], name
    for name in ("activeRun", "checkoutRunId", "executionLockedAt"):
        assert shown[name] is None, name


def test_a_chain_of_parents_ends_somewhere(as_olga: Caller, acme: Company) -> None:
    parent = None
    for number in range(25):
        parent = factories.issue(acme, f"Level {number}", parent=parent)
    assert parent is not None

    shown = as_olga.send("GET", f"/api/issues/{parent.id}").json()

    assert [one["title"] for one in shown["ancestors"]] == [f"Level {n}" for n in range(23, 3, -1)]


def test_reading_and_writing_an_issue_cost_few_statements(
    as_olga: Caller, acme: Company, ada: Agent, whole: Any, settings: Any,
    django_assert_num_queries: Any,
) -> None:  # fmt: skip
    settings.API_CALLS_A_MINUTE = 0
    base = f"/api/issues/{whole.id}"
    as_olga.send("GET", base)

    with django_assert_num_queries(3):  # the key, the issue, all around it
        as_olga.send("GET", base)
    with django_assert_num_queries(2):
        as_olga.send("GET", f"/api/companies/{acme.id}/issues")
    new = {"title": "New", "status": "todo", "assigneeAgentId": str(ada.id)}
    # The key, the agent, the number; the issue with its activity and its run.
    with django_assert_num_queries(4):
        created = as_olga.send("POST", f"/api/companies/{acme.id}/issues", new)
    assert created.status_code == 201


def test_a_checkout_that_comes_too_late_costs_few_statements(
    as_ada: Caller, ada: Agent, bo: Agent, acme: Company, settings: Any,
    django_assert_num_queries: Any,
) -> None:  # fmt: skip
    settings.AGENT_CALLS_A_MINUTE = 0
    path = f"/api/issues/{factories.issue(acme).id}/checkout"
    assert as_ada.send("POST", path, {"agentId": str(ada.id)}).status_code == 200
    as_bo = agent_caller(bo)
    as_bo.send("POST", path, {"agentId": str(bo.id)})

    with django_assert_num_queries(2):  # the key, the issue with its holder
        late = as_bo.send("POST", path, {"agentId": str(bo.id)})

    assert late.status_code == 409
    assert late.json()["details"]["checkoutAgentId"] == str(ada.id)
