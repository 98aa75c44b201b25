"""Documents, approvals and what saying yes means."""

from __future__ import annotations

from typing import Any

import pytest

from agents.models import Agent, HeartbeatRun
from companies.models import Company
from issues.models import Approval, DocumentRevision, Issue
from tests.api.conftest import Caller

PLAN = "/api/issues/ACM-1/documents/plan"


def put(caller: Caller, body: str, **extra: Any) -> Any:
    return caller.send("PUT", PLAN, {"title": "Plan", "body": body, **extra})


def test_a_document_is_new_once_and_then_revised(as_run: Caller, as_olga: Caller) -> None:
    first, second = put(as_run, "one"), put(as_olga, "two")

    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json()["latestRevisionNumber"] == 2
    rows = as_olga.send("GET", f"{PLAN}/revisions").json()
    assert [(row["revisionNumber"], row["body"]) for row in rows] == [(2, "two"), (1, "one")]


def test_the_same_text_again_is_no_revision(as_run: Caller, issue: Issue) -> None:
    put(as_run, "one")
    put(as_run, "one")

    assert DocumentRevision.objects.count() == 1


def test_a_write_on_a_stale_base_is_refused(as_run: Caller, as_olga: Caller) -> None:
    base = put(as_run, "one").json()["latestRevisionId"]
    put(as_olga, "two")

    stale = put(as_run, "mine", baseRevisionId=base)

    assert (stale.status_code, stale.json()["code"]) == (409, "revision_conflict")
    assert stale.json()["details"]["latestRevisionNumber"] == 2


def test_a_write_on_a_stale_version_is_refused(as_olga: Caller, issue: Issue) -> None:
    path = "/api/issues/ACM-1/documents/plan"
    first = as_olga.send("PUT", path, {"body": "One"}, If_Match='"0"')
    as_olga.send("PUT", path, {"body": "Two"}, If_Match=first["ETag"])

    stale = as_olga.send("PUT", path, {"body": "Mine"}, If_Match=first["ETag"])

    assert (first.status_code, first["ETag"]) == (201, '"1"')
    assert (stale.status_code, stale.json()["code"]) == (409, "version_conflict")
    assert stale.json()["details"] == {"version": 2}
    assert as_olga.send("GET", path).json()["body"] == "Two"


def test_a_locked_document_is_kept_from_others(as_run: Caller, as_olga: Caller) -> None:
    put(as_run, "one")
    assert as_olga.send("POST", f"{PLAN}/lock").json()["lockedAt"] is not None

    assert put(as_run, "two").json()["code"] == "document_locked"
    assert as_run.send("POST", f"{PLAN}/unlock").status_code == 403
    assert put(as_olga, "two").status_code == 200
    as_olga.send("POST", f"{PLAN}/unlock")
    assert put(as_run, "three").status_code == 200


def test_an_old_revision_comes_back_as_a_new_one(as_olga: Caller, issue: Issue) -> None:
    old = put(as_olga, "one").json()["latestRevisionId"]
    put(as_olga, "two")

    restored = as_olga.send("POST", f"{PLAN}/revisions/{old}/restore").json()

    assert (restored["body"], restored["latestRevisionNumber"]) == ("one", 3)


def test_a_key_is_a_simple_word(as_olga: Caller, issue: Issue) -> None:
    for key in ("Plan", "a b", "x" * 81, ".."):
        refused = as_olga.send("PUT", f"/api/issues/ACM-1/documents/{key}", {"body": "x"})
        assert refused.status_code in (400, 404), key


@pytest.mark.parametrize("url", ["https://[", "http://", "javascript:alert(1)", "//x.example", "x"])
def test_a_work_product_has_an_address_of_the_web_or_none(
    as_run: Caller, issue: Issue, url: str
) -> None:
    given = {"type": "pull_request", "title": "PR 1", "url": url}
    refused = as_run.send("POST", "/api/issues/ACM-1/work-products", given)

    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_url"), refused.content
    assert not issue.work_products.exists()


def test_labels_are_set_with_the_issue(as_olga: Caller, acme: Company, issue: Issue) -> None:
    made = as_olga.send("POST", f"/api/companies/{acme.id}/labels", {"name": "Bug"}).json()

    changed = as_olga.send("PATCH", "/api/issues/ACM-1", {"labelIds": [made["id"]]}).json()
    listed = as_olga.send("GET", f"/api/companies/{acme.id}/issues").json()
    twice = as_olga.send("POST", f"/api/companies/{acme.id}/labels", {"name": "bug"})

    assert changed["labelIds"] == [made["id"]]
    assert listed[0]["labels"][0]["name"] == "Bug"
    assert (twice.status_code, twice.json()["code"]) == (409, "label_taken")


# --- saying yes ------------------------------------------------------------------------------


def ask(caller: Caller, kind: str, payload: dict[str, Any]) -> Any:
    body = {"kind": kind, "payload": payload}
    return caller.send("POST", "/api/issues/ACM-1/interactions", body)


def test_accepted_tasks_become_issues_below(
    as_run: Caller, as_olga: Caller, bo: Agent, issue: Issue
) -> None:
    asked = ask(as_run, "suggest_tasks", {"version": 1, "tasks": [
        {"clientKey": "iron", "title": "Buy iron", "assigneeAgentId": str(bo.id)},
        {"clientKey": "coal", "title": "Buy coal", "parentClientKey": "iron"},
        {"clientKey": "ship", "title": "Buy a ship"},
    ]}).json()  # fmt: skip

    path = f"/api/issues/ACM-1/interactions/{asked['id']}/accept"
    accepted = as_olga.send("POST", path, {"selectedClientKeys": ["iron", "coal"]})

    assert accepted.status_code == 200, accepted.content
    iron, coal = Issue.objects.filter(number__gt=1).order_by("number")
    assert (iron.title, iron.parent, coal.parent) == ("Buy iron", issue, iron)
    assert [t["clientKey"] for t in accepted.json()["result"]["createdTasks"]] == ["iron", "coal"]
    assert HeartbeatRun.objects.filter(agent=bo, issue=iron, status="queued").exists()
    assert as_olga.send("POST", path).status_code == 409
    assert Issue.objects.count() == 3


def test_suggestions_are_checked_when_they_are_made(
    as_run: Caller, issue: Issue, spy: Agent
) -> None:
    bad: list[Any] = [
        [],
        [{"title": "no key"}],
        [{"clientKey": "a", "title": ""}],
        [{"clientKey": "a", "title": "x"}, {"clientKey": "a", "title": "y"}],
        [{"clientKey": "a", "title": "x", "parentClientKey": "b"}],
        [{"clientKey": "a", "title": "x", "priority": "huge"}],
        [{"clientKey": "a", "title": "x", "assigneeAgentId": str(spy.id)}],
        ["x"],
    ]
    for tasks in bad:
        assert ask(as_run, "suggest_tasks", {"tasks": tasks}).status_code in (400, 404), tasks


def test_nobody_confirms_a_text_that_has_changed(as_run: Caller, as_olga: Caller) -> None:
    first = put(as_run, "one").json()["latestRevisionId"]
    target = {"type": "issue_document", "key": "plan", "revisionId": first}
    asked = ask(as_run, "request_confirmation", {"prompt": "Good?", "target": target}).json()
    put(as_run, "two")

    path = f"/api/issues/ACM-1/interactions/{asked['id']}/accept"
    stale = as_olga.send("POST", path)

    assert (stale.status_code, stale.json()["code"]) == (409, "stale_target")
    assert as_olga.send("POST", path.replace("accept", "reject")).status_code == 200


# --- approvals -------------------------------------------------------------------------------


def test_every_outcome_wakes_the_asker(
    as_ada: Caller, as_olga: Caller, acme: Company, ada: Agent, issue: Issue
) -> None:
    for outcome, reason in (
        ("approve", "approval_approved"),
        ("reject", "approval_rejected"),
        ("request-revision", "approval_revision_requested"),
    ):
        body = {"payload": {"title": "Buy"}, "issueIds": [str(issue.id)]}
        asked = as_ada.send("POST", f"/api/companies/{acme.id}/approvals", body).json()
        HeartbeatRun.objects.all().delete()

        decided = as_olga.send("POST", f"/api/approvals/{asked['id']}/{outcome}")

        assert decided.status_code == 200, decided.content
        run = HeartbeatRun.objects.get(agent=ada)
        assert (run.reason, run.issue_id) == (reason, issue.id)
        assert run.payload["approvalId"] == asked["id"]


def test_an_agent_asks_in_its_own_name_only(as_ada: Caller, acme: Company, bo: Agent) -> None:
    body = {"payload": {}, "requestedByAgentId": str(bo.id)}

    refused = as_ada.send("POST", f"/api/companies/{acme.id}/approvals", body)

    assert (refused.status_code, refused.json()["code"]) == (403, "not_yours")


def test_a_decision_holds(as_ada: Caller, as_olga: Caller, acme: Company) -> None:
    path = f"/api/companies/{acme.id}/approvals"
    asked = as_ada.send("POST", path, {"payload": {}}).json()
    as_olga.send("POST", f"/api/approvals/{asked['id']}/approve", {"decisionNote": "ok"})

    again = as_olga.send("POST", f"/api/approvals/{asked['id']}/approve")
    other = as_olga.send("POST", f"/api/approvals/{asked['id']}/reject")

    assert again.status_code == 200
    assert (other.status_code, other.json()["code"]) == (409, "already_decided")
    assert Approval.objects.get().decision_note == "ok"


def test_a_hire_waits_for_its_approval(
    as_ada: Caller, as_olga: Caller, acme: Company, ada: Agent
) -> None:
    path = f"/api/companies/{acme.id}/agent-hires"
    body = {"name": "Cy", "adapterType": "demo"}
    assert as_ada.send("POST", path, body).json()["code"] == "may_not_hire"
    Agent.objects.filter(id=ada.id).update(can_hire=True)

    asked = as_ada.send("POST", path, body).json()

    assert asked["agent"]["status"] == "pending_approval"
    assert asked["agent"]["reportsTo"] == str(ada.id)
    as_olga.send("POST", f"/api/approvals/{asked['approval']['id']}/approve")
    assert as_olga.send("GET", f"/api/agents/{asked['agent']['id']}").json()["status"] == "idle"


def test_a_set_up_can_be_rolled_back(as_olga: Caller, bo: Agent) -> None:
    path = f"/api/agents/{bo.id}"
    as_olga.send("PATCH", path, {"title": "Smith"})
    as_olga.send("PATCH", path, {"title": "Baker", "instructions": "Bake."})
    newest, oldest = as_olga.send("GET", f"{path}/config-revisions").json()
    assert newest["changedKeys"] == ["title", "instructions"]

    back = as_olga.send("POST", f"{path}/config-revisions/{oldest['id']}/rollback").json()

    assert (back["title"], back["instructions"]) == ("Smith", None)
    latest = as_olga.send("GET", f"{path}/config-revisions").json()[0]
    assert (latest["source"], latest["rolledBackFromRevisionId"]) == ("rollback", oldest["id"])


# --- the command line's login ----------------------------------------------------------------


def test_a_client_is_let_in_by_a_person_and_only_then(as_olga: Caller, anonymous: Caller) -> None:
    asked = anonymous.send("POST", "/api/cli-auth/challenges", {"clientName": "cli"}).json()
    client = Caller(asked["boardApiToken"])
    path = f"/api/cli-auth/challenges/{asked['id']}"
    assert client.send("GET", "/api/cli-auth/me").status_code == 401
    assert anonymous.send("POST", f"{path}/approve", {"token": asked["token"]}).status_code == 401
    assert as_olga.send("POST", f"{path}/approve", {"token": "guess"}).status_code == 404

    as_olga.send("POST", f"{path}/approve", {"token": asked["token"]})

    polled = anonymous.send("GET", f"{path}?token={asked['token']}").json()
    assert polled["status"] == "approved"
    assert client.send("GET", "/api/cli-auth/me").json()["user"]["name"] == "Olga"
    assert client.send("POST", "/api/cli-auth/revoke-current").status_code == 200
    assert client.send("GET", "/api/cli-auth/me").status_code == 401


def test_a_person_sees_who_asks_before_saying_yes(olga: Any, anonymous: Caller) -> None:
    asked = anonymous.send(
        "POST", "/api/cli-auth/challenges", {"clientName": "my laptop", "command": "connect"}
    ).json()
    browser = Caller()
    assert browser.get(asked["approvalPath"]).status_code == 302
    browser.force_login(olga)

    page = browser.get(asked["approvalPath"])
    assert b"my laptop" in page.content
    assert browser.get(asked["approvalPath"].replace("token=", "token=x")).status_code == 404
    said = browser.post(
        asked["approvalPath"].split("?")[0], {"token": asked["token"], "answer": "yes"}
    )

    assert b"It is in" in said.content
    assert Caller(asked["boardApiToken"]).send("GET", "/api/cli-auth/me").status_code == 200
