"""Every route × every caller × own, foreign and malformed ids."""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from agents import roster, runs
from agents.models import Agent, AgentKey, AgentRevision, HeartbeatRun
from billing import budgets
from billing.models import BudgetIncident
from companies import cli_login
from companies.activity import SYSTEM, Actor
from companies.models import Company, OperatorKey, User
from issues import approvals, documents, marks
from issues.models import Interaction, Issue
from paperclip.api import api
from tests import factories
from tests.api import contract
from tests.api.conftest import Caller, agent_caller, operator, run_caller
from tests.api.matrix import COLUMNS, MATRIX


def routes() -> Iterator[str]:
    """Every operation that the API serves, as the matrix names it."""
    for path, methods in api.get_openapi_schema(path_prefix="")["paths"].items():
        for method in methods:
            yield f"{method.upper()} {path}"


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    assert set(routes()) == set(MATRIX)


@pytest.fixture
def story(
    olga: User, acme: Company, ada: Agent, issue: Issue, adas_run: HeartbeatRun
) -> dict[str, str]:
    """An object of each kind, in acme."""
    as_ada_key = agent_caller(ada)
    assert as_ada_key.token
    operator(olga)
    asked = factories.interaction(issue, asked_by=ada)
    confirm = factories.interaction(issue, asked_by=ada, kind=Interaction.Kind.CONFIRMATION)
    Agent.objects.filter(id=ada.id).update(can_hire=True)
    now, by = issue.created_at, Actor("user", olga.id, "Olga")
    document, _ = documents.put(issue=issue, key="plan", body="Old", actor=by, now=now)
    approval = approvals.request(
        company=acme, type="request_board_approval", payload={}, requester=ada,
        issues=[issue], actor=by, now=now,
    )  # fmt: skip
    permit = approvals.request(
        company=acme, type="request_board_approval", payload={"title": "Deploy"}, requester=ada,
        issues=[issue], single_use=True, actor=by, now=now,
    )  # fmt: skip
    approvals.decide(approval=permit, outcome="approved", actor=by, now=now)
    product = marks.add_product(issue=issue, type="pr", title="PR 0", actor=by, now=now)
    label = marks.create_label(company=acme, name="old", color="#cc0000", actor=by, now=now)
    roster.update(agent=ada, changes={"title": "Chief"}, actor=by, now=now)
    login = cli_login.ask(command="", client_name="cli", address="", now=timezone.now())
    budget = budgets.set_limit(
        company=acme, scope="agent", scope_id=ada.id, limit_micros=1_000_000, actor=by, now=now
    )
    incident = BudgetIncident.objects.create(
        company=acme, budget=budget, period_start=now.date(), percent=100,
        spent_micros=1, limit_micros=1_000_000, created_at=now,
    )  # fmt: skip
    return {
        "incident": str(incident.id),
        "login": str(login.login.id),
        "secret": login.secret,
        "set_up": str(AgentRevision.objects.get(agent=ada).id),
        "adapter": "demo",
        "doc": document.key,
        "revision": str(document.revisions.get().id),
        "approval": str(approval.id),
        "permit": str(permit.id),
        "product": str(product.id),
        "label": str(label.id),
        "company": str(acme.id),
        "agent": str(ada.id),
        "issue": str(issue.id),
        "run": str(adas_run.id),
        "goal": str(factories.goal(acme).id),
        "connection": str(factories.provider(acme).pk),
        "project": str(factories.project(acme).id),
        "comment": str(factories.comment(issue).id),
        "question": str(asked.id),
        "confirmation": str(confirm.id),
        "adas_key": str(AgentKey.objects.get(agent=ada).id),
        "olgas_key": str(OperatorKey.objects.get(user=olga).id),
    }


@pytest.fixture
def callers(
    olga: User, otto: User, vera: User, as_oscar: Caller, as_spy: Caller, adas_run: HeartbeatRun
) -> dict[str, Caller]:
    ended = factories.running(adas_run.agent)
    ghost = run_caller(ended)
    runs.cancel(run=ended, actor=SYSTEM, reason="", now=timezone.now())
    assert runs.finish(run_id=ended.pk, epoch=ended.epoch, status="cancelled", now=timezone.now())
    return {
        "nobody": Caller(),
        "stranger": as_oscar,
        "spy": as_spy,
        "viewer": operator(vera),
        "owner": operator(olga),
        "operator": operator(otto),
        "agent": agent_caller(adas_run.agent),
        "run": run_caller(adas_run),
        "ghost": ghost,
    }


@contextlib.contextmanager
def undone() -> Iterator[None]:
    """What happens inside is taken back, so that each caller meets the same world."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def fill(value: Any, names: dict[str, str]) -> Any:
    text = json.dumps(value)
    return json.loads(re.sub(r"\{(\w+)\}", lambda m: names[m[1]], text))


@pytest.mark.parametrize("route", MATRIX)
def test_each_caller_may_or_may_not(
    route: str, story: dict[str, str], callers: dict[str, Caller]
) -> None:
    row = MATRIX[route]
    found = {}

    for column in COLUMNS:
        with undone():
            response = callers[column].send(
                route.split()[0], "/api" + fill(row.path, story), fill(row.body, story)
            )
        found[column] = response.status_code
        if response.status_code >= 400:
            assert set(response.json()) == {"error", "code", "details"}
        else:
            contract.check(route, response)

    assert found == dict(zip(COLUMNS, row.cells, strict=True))


def _with_ids() -> list[str]:
    return [route for route, row in MATRIX.items() if "{" in row.path]


@pytest.mark.parametrize("route", _with_ids())
def test_an_unknown_id_is_not_found(route: str, story: dict[str, str], as_olga: Caller) -> None:
    row = MATRIX[route]
    unknown = {name: str(uuid.uuid4()) for name in story}

    response = as_olga.send(
        route.split()[0], "/api" + fill(row.path, unknown), fill(row.body, story)
    )

    assert response.status_code == 404, response.content


BAD = ("not-an-id", "%00", "a" * 300, "%F0%9F%92%A9", "..%2f")


@pytest.mark.parametrize("route", _with_ids())
def test_a_malformed_id_is_the_callers_fault(
    route: str, story: dict[str, str], as_olga: Caller
) -> None:
    row = MATRIX[route]
    for bad in BAD:
        malformed = dict.fromkeys(story, bad)

        response = as_olga.send(
            route.split()[0], "/api" + fill(row.path, malformed), fill(row.body, story)
        )

        assert response.status_code in (400, 404, 405), (bad, response.content)
        assert set(response.json()) == {"error", "code", "details"}
