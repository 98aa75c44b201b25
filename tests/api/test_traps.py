"""Traps that control planes of this kind have fallen into, each as a caller meets it."""

from __future__ import annotations

import logging

import pytest

from agents.models import Agent, AgentKey
from companies.models import Activity, Company
from issues.models import Approval, Issue
from tests import factories
from tests.api.conftest import Caller, agent_caller


def test_a_key_is_revoked_under_its_own_agent_only(as_olga: Caller, ada: Agent, bo: Agent) -> None:
    agent_caller(bo)
    bos_key = AgentKey.objects.get(agent=bo)

    refused = as_olga.send("DELETE", f"/api/agents/{ada.id}/keys/{bos_key.id}")

    bos_key.refresh_from_db()
    assert refused.status_code == 404
    assert bos_key.revoked_at is None


def test_a_search_finds_nothing_of_another_company(
    as_olga: Caller, as_ada: Caller, acme: Company, globex: Company
) -> None:
    factories.issue(globex, title="Swordfish")

    for caller in (as_olga, as_ada):
        found = caller.send("GET", f"/api/companies/{acme.id}/search?q=Swordfish")
        assert found.json()["results"] == []
        assert caller.send("GET", f"/api/companies/{globex.id}/search?q=x").status_code == 404


def test_a_name_that_is_taken_elsewhere_tells_nothing(
    as_olga: Caller, acme: Company, globex: Company, spy: Agent
) -> None:
    made = as_olga.send(
        "POST", f"/api/companies/{acme.id}/agents", {"name": spy.name, "adapterType": "demo"}
    )

    assert made.status_code == 201, made.content


@pytest.mark.parametrize("header", ["cleanup-1", "00000000", "%00", "🦀"])
def test_a_run_header_that_is_none_changes_nothing(
    header: str, as_ada: Caller, acme: Company
) -> None:
    refused = as_ada.send(
        "POST", f"/api/companies/{acme.id}/issues", {"title": "x"}, X_Paperclip_Run_Id=header
    )

    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_run_id")
    assert not Issue.objects.exists()
    assert not Activity.objects.filter(action="issue.created").exists()


def test_an_unknown_run_changes_nothing(as_ada: Caller, acme: Company) -> None:
    refused = as_ada.send(
        "POST", f"/api/companies/{acme.id}/issues", {"title": "x"}, X_Paperclip_Run_Id=str(acme.id)
    )

    assert (refused.status_code, refused.json()["code"]) == (422, "run_mismatch")
    assert not Issue.objects.exists()


def test_asking_for_the_same_five_times_is_one_approval(
    as_ada: Caller, as_olga: Caller, acme: Company, issue: Issue
) -> None:
    path = f"/api/companies/{acme.id}/approvals"
    wish = {"payload": {"title": "Buy a motor"}, "issueIds": [str(issue.id)]}

    ids = {as_ada.send("POST", path, wish).json()["id"] for _ in range(5)}
    other = as_ada.send("POST", path, {**wish, "payload": {"title": "Buy two"}}).json()["id"]
    without = as_ada.send("POST", path, {**wish, "issueIds": []}).json()["id"]

    assert len(ids) == 1
    assert len({*ids, other, without}) == 3
    (first,) = ids
    as_olga.send("POST", f"/api/approvals/{first}/reject")
    again = as_ada.send("POST", path, wish).json()["id"]
    assert again != first  # it was decided: asking anew is a new question
    assert Approval.objects.count() == 4


@pytest.mark.parametrize(
    "title", ["\u202egnp.evil", "a\u200bb", "\U0001f980 crab", "e" + "\u0301" * 200, "שלום"]
)
def test_odd_letters_come_back_as_they_were(title: str, as_olga: Caller, acme: Company) -> None:
    made = as_olga.send("POST", f"/api/companies/{acme.id}/issues", {"title": title})

    assert made.status_code == 201, made.content
    assert as_olga.send("GET", f"/api/issues/{made.json()['id']}").json()["title"] == title


def test_a_limit_is_in_the_description_and_in_the_refusal(as_olga: Caller, acme: Company) -> None:
    path = f"/api/companies/{acme.id}/issues"
    schema = as_olga.send("GET", "/api/openapi.json").json()["components"]["schemas"]["NewIssue"]
    limit = schema["properties"]["title"]["maxLength"]

    most = as_olga.send("POST", path, {"title": "x" * limit})
    over = as_olga.send("POST", path, {"title": "x" * (limit + 1)})

    assert (most.status_code, over.status_code) == (201, 400)
    assert str(limit) in over.json()["error"]


def test_neither_keys_nor_bodies_are_logged(
    as_olga: Caller, acme: Company, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    Caller("pcb_Canary-Token-1").send("GET", "/api/companies")
    as_olga.send("POST", "/api/agent-tasks", {"agentId": "Canary-Body-1", "prompt": "x"})
    as_olga.send(
        "POST", f"/api/companies/{acme.id}/agents",
        {"name": "x", "adapterType": "process", "adapterConfig": {"env": {"K": "Canary-Env-1"}}},
    )  # fmt: skip

    said = [record.getMessage() for record in caplog.records if record.name != "django.db.backends"]
    assert not [line for line in said if "Canary" in line or as_olga.token in line]


def test_what_can_be_decided_only_by_people_tells_agents_so(
    as_ada: Caller, as_run: Caller, acme: Company, issue: Issue
) -> None:
    asked = as_ada.send(
        "POST", f"/api/companies/{acme.id}/approvals", {"payload": {"title": "Buy"}}
    ).json()

    for caller in (as_ada, as_run):
        for verb in ("approve", "reject", "request-revision"):
            refused = caller.send("POST", f"/api/approvals/{asked['id']}/{verb}")
            assert refused.status_code == 403
    assert Approval.objects.get().status == "pending"


def test_importing_and_exporting_are_not_there_yet(as_olga: Caller) -> None:
    for path in ("companies/import", "companies/import/preview", "companies/ACM/export"):
        refused = as_olga.send("POST", f"/api/{path}", {})
        assert (refused.status_code, refused.json()["code"]) == (404, "not_supported")
