"""The loop that every agent follows over HTTP, in its order."""

from __future__ import annotations

from agents.models import Agent, HeartbeatRun
from billing.models import CostEvent
from companies.models import Activity, Company
from issues.models import Comment, Issue
from tests import factories
from tests.api.conftest import Caller


def test_an_agent_learns_who_it_is(as_ada: Caller, ada: Agent, acme: Company) -> None:
    me = as_ada.send("GET", "/api/agents/me").json()

    assert me["id"] == str(ada.id)
    assert me["companyId"] == str(acme.id)
    assert me["urlKey"] == "ada"
    assert me["chainOfCommand"] == []


def test_the_inbox_holds_what_is_assigned_and_open(
    as_ada: Caller, acme: Company, ada: Agent, bo: Agent, issue: Issue
) -> None:
    factories.issue(acme, "Bo's", assignee=bo)
    factories.issue(acme, "Done", assignee=ada, status="done")

    inbox = as_ada.send("GET", "/api/agents/me/inbox-lite").json()

    assert [row["identifier"] for row in inbox] == ["ACM-1"]
    assert inbox[0]["dependencyReady"] is True
    assert inbox[0]["updatedAt"].endswith("Z")


def test_an_operator_has_no_inbox_of_an_agent(as_olga: Caller) -> None:
    refused = as_olga.send("GET", "/api/agents/me/inbox-lite")

    assert (refused.status_code, refused.json()["code"]) == (403, "agents_only")


def test_a_checkout_puts_the_issue_in_progress(
    as_run: Caller, ada: Agent, adas_run: HeartbeatRun
) -> None:
    body = {"agentId": str(ada.id), "expectedStatuses": ["todo", "backlog", "blocked"]}

    taken = as_run.send("POST", "/api/issues/ACM-1/checkout", body)

    assert taken.status_code == 200
    assert taken.json()["status"] == "in_progress"
    assert taken.json()["checkoutRunId"] == str(adas_run.id)
    again = as_run.send("POST", "/api/issues/ACM-1/checkout", body)
    assert again.status_code == 200


def test_a_checkout_of_somebody_elses_issue_tells_who_has_it(
    as_ada: Caller, acme: Company, ada: Agent, bo: Agent
) -> None:
    taken = factories.issue(acme, assignee=bo, status="in_progress")
    factories.checkout(taken, bo)

    refused = as_ada.send(
        "POST", f"/api/issues/{taken.id}/checkout",
        {"agentId": str(ada.id), "expectedStatuses": ["todo"]},
    )  # fmt: skip

    assert refused.status_code == 409
    assert refused.json()["details"]["assigneeAgentId"] == str(bo.id)
    assert refused.json()["details"]["status"] == "in_progress"


def test_an_agent_cannot_check_out_for_another(as_ada: Caller, bo: Agent, issue: Issue) -> None:
    refused = as_ada.send("POST", f"/api/issues/{issue.id}/checkout", {"agentId": str(bo.id)})

    assert (refused.status_code, refused.json()["code"]) == (403, "other_agent")


def test_the_context_is_compact_and_has_a_comment_cursor(as_run: Caller, issue: Issue) -> None:
    last = factories.comment(issue, "Any news?")

    context = as_run.send("GET", "/api/issues/ACM-1/heartbeat-context").json()

    assert context["issue"]["identifier"] == "ACM-1"
    assert context["commentCursor"]["totalComments"] == 1
    assert context["commentCursor"]["latestCommentId"] == str(last.id)


def test_comments_after_the_known_one(as_run: Caller, issue: Issue) -> None:
    first = factories.comment(issue, "one")
    factories.comment(issue, "two")

    rows = as_run.send("GET", f"/api/issues/ACM-1/comments?after={first.id}&order=asc").json()

    assert [row["body"] for row in rows] == ["two"]


def test_a_change_carries_status_and_comment_in_one(
    as_run: Caller, ada: Agent, adas_run: HeartbeatRun, issue: Issue
) -> None:
    as_run.send("POST", "/api/issues/ACM-1/checkout", {"agentId": str(ada.id)})

    done = as_run.send("PATCH", "/api/issues/ACM-1", {"status": "done", "comment": "Forged."})

    assert done.status_code == 200, done.content
    assert done.json()["status"] == "done"
    assert done.json()["changes"]["status"] == {"from": "in_progress", "to": "done"}
    assert done.json()["comment"]["authorAgentId"] == str(ada.id)
    assert done.json()["comment"]["createdByRunId"] == str(adas_run.id)


def test_every_change_of_a_run_names_the_run_in_the_activity(
    as_run: Caller, adas_run: HeartbeatRun
) -> None:
    as_run.send("POST", "/api/issues/ACM-1/comments", {"body": "On it."})

    assert Activity.objects.get(action="issue.commented").run_id == adas_run.id


def test_an_agent_delegates_with_a_child(
    as_run: Caller, bo: Agent, acme: Company, issue: Issue
) -> None:
    made = as_run.send(
        "POST", f"/api/companies/{acme.id}/issues",
        {"title": "Buy iron", "parentId": str(issue.id), "assigneeAgentId": str(bo.id)},
    )  # fmt: skip

    assert made.status_code == 201, made.content
    assert made.json()["parentId"] == str(issue.id)
    assert HeartbeatRun.objects.filter(agent=bo, status="queued").count() == 1


def test_an_agent_asks_and_a_person_answers(
    as_run: Caller, as_olga: Caller, ada: Agent, issue: Issue
) -> None:
    as_run.send("POST", "/api/issues/ACM-1/checkout", {"agentId": str(ada.id)})
    asked = as_run.send(
        "POST", "/api/issues/ACM-1/interactions",
        {"kind": "request_confirmation", "payload": {"version": 1, "prompt": "Melt the old one?"}},
    )  # fmt: skip
    assert asked.status_code == 201, asked.content

    path = f"/api/issues/ACM-1/interactions/{asked.json()['id']}"
    assert as_run.send("POST", f"{path}/accept").status_code == 403
    accepted = as_olga.send("POST", f"{path}/accept", {"reason": "Go on"})

    assert accepted.json()["status"] == "accepted"
    assert as_olga.send("POST", f"{path}/reject").status_code == 409
    assert HeartbeatRun.objects.filter(agent=ada, status="queued").count() == 1


def test_a_cost_is_booked_once(
    as_run: Caller, ada: Agent, adas_run: HeartbeatRun, acme: Company, issue: Issue
) -> None:
    body = {
        "agentId": str(ada.id),
        "issueId": str(issue.id),
        "provider": "anthropic",
        "model": "claude-sonnet-4-5",
        "inputTokens": 1000,
        "outputTokens": 200,
        "costCents": 2,
    }
    path = f"/api/companies/{acme.id}/cost-events"

    first = as_run.send("POST", path, body, Idempotency_Key="call-1")
    second = as_run.send("POST", path, body, Idempotency_Key="call-1")

    assert first.status_code == 201, first.content
    assert second["Idempotent-Replayed"] == "true"
    assert second.json() == first.json()
    assert first.json()["costMicros"] == 20_000
    assert first.json()["heartbeatRunId"] == str(adas_run.id)
    assert CostEvent.objects.count() == 1


def test_release_gives_the_issue_back(as_run: Caller, ada: Agent, issue: Issue) -> None:
    as_run.send("POST", "/api/issues/ACM-1/checkout", {"agentId": str(ada.id)})

    freed = as_run.send("POST", "/api/issues/ACM-1/release", {})

    assert (freed.status_code, freed.json()["status"]) == (200, "todo")
    assert freed.json()["checkoutRunId"] is None


def test_a_run_token_dies_with_its_run(as_run: Caller, adas_run: HeartbeatRun) -> None:
    assert as_run.send("GET", "/api/agents/me").status_code == 200

    HeartbeatRun.objects.filter(id=adas_run.id).update(
        status="succeeded", finished_at=adas_run.created_at
    )

    assert as_run.send("GET", "/api/agents/me").status_code == 401


def test_a_run_token_is_nobodys_in_an_archived_company(
    as_run: Caller, adas_run: HeartbeatRun
) -> None:
    assert as_run.get("/api/agents/me").status_code == 200
    adas_run.company.status = "archived"
    adas_run.company.save(update_fields=["status"])
    assert as_run.get("/api/agents/me").status_code == 401


def test_the_run_header_must_be_the_run_of_the_token(as_run: Caller, bo: Agent) -> None:
    other = factories.running(bo)

    refused = as_run.send(
        "POST", "/api/issues/ACM-1/comments", {"body": "x"}, X_Paperclip_Run_Id=str(other.id)
    )

    assert (refused.status_code, refused.json()["code"]) == (422, "run_mismatch")
    assert not Comment.objects.exists()


def test_a_long_lived_key_may_name_a_running_run_of_its_agent(
    as_ada: Caller, adas_run: HeartbeatRun
) -> None:
    said = as_ada.send(
        "POST", "/api/issues/ACM-1/comments", {"body": "x"}, X_Paperclip_Run_Id=str(adas_run.id)
    )

    assert said.json()["createdByRunId"] == str(adas_run.id)
