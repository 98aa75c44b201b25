"""The incumbent's command-line client against our server: every core command, once.

The table in docs/compatibility.md is written by this test (PAPERCLIP_WRITE_DOCS=1) and compared
with what it found otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.models import Agent, HeartbeatRun
from billing.models import CostEvent
from companies.activity import Actor
from companies.models import Company
from issues import approvals
from issues.models import Comment, Document, Issue
from tests import factories
from tests.api.conftest import Caller
from tests.api.server import serving
from tests.clients.conftest import installed

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.timeout(900)]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
OK, ABSENT = "works", "absent"


@dataclass
class Client:
    """The client with its environment. Remembers what came of each command."""

    script: Path
    env: dict[str, str]
    home: Path
    table: list[tuple[str, str, str]] = field(default_factory=list)

    def run(self, *args: str) -> tuple[int, Any, str]:
        done = subprocess.run(
            ["node", str(self.script), *args, "--json"],
            env={
                "PATH": os.environ["PATH"], "HOME": str(self.home), "DO_NOT_TRACK": "1",
                "PAPERCLIP_NO_BROWSER": "1", **self.env,
            },
            capture_output=True, text=True, timeout=60, cwd=self.home,
        )  # fmt: skip
        try:
            value = json.loads(done.stdout)
        except ValueError:
            value = done.stdout
        return done.returncode, value, done.stderr

    def works(self, name: str, *args: str) -> Any:
        """The command must succeed; returns what it printed."""
        code, value, errors = self.run(*args)
        self.table.append((name, OK if code == 0 else "fails", ""))
        assert code == 0, f"{name}: {errors}\n{value}"
        return value

    def refused(self, name: str, why: str, *args: str) -> None:
        """The command is refused on purpose."""
        code, value, errors = self.run(*args)
        assert code != 0, f"{name}: {value}"
        assert "500" not in errors
        self.table.append((name, ABSENT if "not_supported" in why else "refused", why))


@pytest.fixture
def story(acme: Company, ada: Agent, bo: Agent, issue: Issue) -> dict[str, str]:
    approval = approvals.request(
        company=acme, type="request_board_approval", payload={"title": "Buy"}, requester=ada,
        issues=[issue], actor=Actor("agent", ada.id, "Ada"), now=issue.created_at,
    )  # fmt: skip
    return {
        "company": str(acme.id),
        "ada": str(ada.id),
        "bo": str(bo.id),
        "issue": str(issue.id),
        "goal": str(factories.goal(acme).id),
        "project": str(factories.project(acme).id),
        "approval": str(approval.id),
    }


def test_the_core_commands(
    tmp_path: Path, story: dict[str, str], as_olga: Caller, as_ada: Caller
) -> None:
    script = installed("paperclipai") / "dist" / "index.js"
    (tmp_path / "plan.md").write_text("# Plan\n")
    with serving(tmp_path) as address:
        env = {"PAPERCLIP_API_URL": address, "PAPERCLIP_COMPANY_ID": story["company"]}
        olga = Client(script, {**env, "PAPERCLIP_API_KEY": as_olga.token}, tmp_path)
        ada = Client(script, {**env, "PAPERCLIP_API_KEY": as_ada.token}, tmp_path, olga.table)
        _companies(olga, story)
        _agents(olga, ada, story)
        _issues(olga, ada, story)
        _documents(olga, story)
        _approvals(olga, ada, story)
        _money_and_overview(olga, story)
        _tokens(olga, story)
        _absent(olga, story)
    _compare(olga.table)


def _companies(olga: Client, story: dict[str, str]) -> None:
    company = story["company"]
    listed = olga.works("company list", "company", "list")
    assert company in {row["id"] for row in listed}
    assert olga.works("company get", "company", "get", company)["name"] == "Acme"
    olga.works("company current", "company", "current")
    olga.works("company stats", "company", "stats")
    made = olga.works("company create", "company", "create", "--payload-json", '{"name":"Second"}')
    olga.works(
        "company update", "company", "update", made["id"], "--payload-json", '{"description":"x"}'
    )
    olga.works("company archive", "company", "archive", made["id"])


def _agents(olga: Client, ada: Client, story: dict[str, str]) -> None:
    bo, scope = story["bo"], ("-C", story["company"])
    assert {a["name"] for a in olga.works("agent list", "agent", "list", *scope)} == {"Ada", "Bo"}
    assert olga.works("agent get", "agent", "get", bo)["urlKey"] == "bo"
    new = {"name": "Cy", "role": "researcher", "adapterType": "process",
           "adapterConfig": {"command": "true"}}  # fmt: skip
    payload = json.dumps(new)
    made = olga.works("agent create", "agent", "create", *scope, "--payload-json", payload)
    new["name"] = "Di"
    olga.works("agent hire", "agent", "hire", *scope, "--payload-json", json.dumps(new))
    cy = made["id"]
    title = '{"title":"Scientist"}'
    changed = olga.works("agent update", "agent", "update", cy, "--payload-json", title)
    assert changed["title"] == "Scientist"
    (revision,) = olga.works("agent config-revisions", "agent", "config-revisions", cy)
    assert revision["changedKeys"] == ["title"]
    olga.works("agent config-revision:get", "agent", "config-revision:get", cy, revision["id"])
    olga.works(
        "agent config-revision:rollback", "agent", "config-revision:rollback", cy, revision["id"]
    )
    olga.works("agent configuration", "agent", "configuration", cy)
    olga.works("agent runtime-state", "agent", "runtime-state", cy)
    olga.works("agent runtime-state:reset-session", "agent", "runtime-state:reset-session", cy)
    assert olga.works("agent pause", "agent", "pause", bo)["status"] == "paused"
    assert olga.works("agent resume", "agent", "resume", bo)["status"] == "idle"
    olga.works("agent wake", "agent", "wake", bo)
    olga.works("agent heartbeat:invoke", "agent", "heartbeat:invoke", bo)
    assert HeartbeatRun.objects.filter(agent_id=bo, status="queued").count() == 1
    olga.works("agent terminate", "agent", "terminate", cy)
    assert ada.works("agent me", "agent", "me")["name"] == "Ada"
    assert ada.works("agent inbox", "agent", "inbox")[0]["identifier"] == "ACM-1"
    olga.works("agent-config list", "agent-config", "list", *scope)
    olga.works("org get", "org", "get", *scope)
    olga.works("org svg", "org", "svg", *scope)


def _issues(olga: Client, ada: Client, story: dict[str, str]) -> None:
    issue, scope = story["issue"], ("-C", story["company"])
    assert len(olga.works("issue list", "issue", "list", *scope)) == 1
    olga.works("issue list --status", "issue", "list", *scope, "--status", "todo")
    assert olga.works("issue get", "issue", "get", "ACM-1")["id"] == issue
    made = olga.works(
        "issue create", "issue", "create", *scope, "--title", "FromCLI", "--description", "d",
        "--status", "todo", "--priority", "high",
    )  # fmt: skip
    assert Issue.objects.get(id=made["id"]).title == "FromCLI"
    olga.works(
        "issue update", "issue", "update", made["id"], "--status", "backlog", "--comment", "hello"
    )
    said = olga.works("issue comment", "issue", "comment", issue, "--body", "hi")
    assert Comment.objects.filter(id=said["id"], body="hi").exists()
    olga.works("issue comments", "issue", "comments", issue)
    olga.works("issue comment:get", "issue", "comment:get", issue, said["id"])
    olga.works("issue comment:delete", "issue", "comment:delete", issue, said["id"])
    child = '{"title":"Child"}'
    kid = olga.works("issue child:create", "issue", "child:create", issue, "--payload-json", child)
    taken = ada.works("issue checkout", "issue", "checkout", issue, "--agent-id", story["ada"])
    assert taken["status"] == "in_progress"
    ada.works("issue heartbeat-context", "issue", "heartbeat-context", issue)
    ada.works("issue release", "issue", "release", issue)
    ada.works("issue checkout", "issue", "checkout", issue, "--agent-id", story["ada"])
    olga.works("issue force-release", "issue", "force-release", issue)
    for name in ("runs", "live-runs", "active-run", "approvals", "work-products", "interactions"):
        olga.works(f"issue {name}", "issue", name, issue)
    for name in ("read", "unread", "archive", "unarchive"):
        olga.works(f"issue {name}", "issue", name, issue)
    product = '{"type":"pull_request","provider":"github","title":"PR 1","url":"https://x.test/1"}'
    added = olga.works(
        "issue work-product:create", "issue", "work-product:create", issue,
        "--payload-json", product,
    )  # fmt: skip
    olga.works(
        "issue work-product:update", "issue", "work-product:update", added["id"],
        "--payload-json", '{"status":"merged"}',
    )  # fmt: skip
    olga.works("issue work-product:delete", "issue", "work-product:delete", added["id"])
    label = olga.works(
        "issue label:create", "issue", "label:create", *scope, "--name", "bug", "--color", "#cc0000"
    )
    olga.works("issue label:list", "issue", "label:list", *scope)
    olga.works("issue label:delete", "issue", "label:delete", label["id"])
    question = {"kind": "ask_user_questions", "payload": {"version": 1, "questions": [
        {"id": "q1", "prompt": "Round or square?", "selectionMode": "single",
         "options": [{"id": "a", "label": "Round"}, {"id": "b", "label": "Square"}]}]}}  # fmt: skip
    asked = ada.works(
        "issue interaction:create", "issue", "interaction:create", issue,
        "--payload-json", json.dumps(question),
    )  # fmt: skip
    answers = [{"questionId": "q1", "optionIds": ["a"]}]
    olga.works(
        "issue interaction:respond", "issue", "interaction:respond", issue, asked["id"],
        "--answers-json", json.dumps(answers),
    )  # fmt: skip
    olga.works("issue delete", "issue", "delete", kid["id"], "--yes")


def _documents(olga: Client, story: dict[str, str]) -> None:
    issue = story["issue"]
    put = ("issue", "document:put", issue, "plan", "--body-file", "plan.md", "--title", "Plan")
    olga.works("issue document:put", *put)
    assert Document.objects.get(key="plan").body == "# Plan\n"
    olga.works("issue documents", "issue", "documents", issue)
    olga.works("issue document:get", "issue", "document:get", issue, "plan")
    (revision,) = olga.works(
        "issue document:revisions", "issue", "document:revisions", issue, "plan"
    )
    for name in ("lock", "unlock"):
        olga.works(f"issue document:{name}", "issue", f"document:{name}", issue, "plan")
    olga.works("issue document:restore", "issue", "document:restore", issue, "plan", revision["id"])
    olga.works("issue document:delete", "issue", "document:delete", issue, "plan")


def _approvals(olga: Client, ada: Client, story: dict[str, str]) -> None:
    approval, scope = story["approval"], ("-C", story["company"])
    olga.works("approval list", "approval", "list", *scope)
    olga.works("approval get", "approval", "get", approval)
    olga.works("approval comment", "approval", "comment", approval, "--body", "why?")
    olga.works("approval request-revision", "approval", "request-revision", approval)
    ada.works("approval resubmit", "approval", "resubmit", approval)
    olga.works("approval approve", "approval", "approve", approval)
    ada.refused("approval approve (as an agent)", "people decide", "approval", "approve", approval)


def _money_and_overview(olga: Client, story: dict[str, str]) -> None:
    scope = ("-C", story["company"])
    event = {"agentId": story["ada"], "provider": "anthropic", "model": "claude-sonnet-4-5",
             "inputTokens": 1000, "outputTokens": 200, "costCents": 2,
             "occurredAt": "2026-11-30T12:00:00.000Z"}  # fmt: skip
    olga.works(
        "cost event:create", "cost", "event:create", *scope, "--payload-json", json.dumps(event)
    )
    assert CostEvent.objects.get().cost_micros == 20_000
    for name in ("summary", "by-agent", "by-agent-model", "by-provider", "by-biller",
                 "by-project", "window-spend"):  # fmt: skip
        olga.works(f"cost {name}", "cost", name, *scope)
    olga.works("cost issue", "cost", "issue", story["issue"])
    olga.works("budget overview", "budget", "overview", *scope)
    olga.works("activity list", "activity", "list", *scope)
    olga.works("activity issue", "activity", "issue", story["issue"])
    olga.works("dashboard get", "dashboard", "get", *scope)
    olga.works("sidebar badges", "sidebar", "badges", *scope)
    olga.works("goal list", "goal", "list", *scope)
    olga.works("goal get", "goal", "get", story["goal"])
    olga.works("project list", "project", "list", *scope)
    olga.works("project get", "project", "get", story["project"])
    goal = olga.works("goal create", "goal", "create", *scope, "--title", "Grow")
    olga.works("goal update", "goal", "update", goal["id"], "--status", "active")
    olga.works("goal delete", "goal", "delete", goal["id"], "--yes")
    project = olga.works("project create", "project", "create", *scope, "--name", "Arm")
    olga.works("project update", "project", "update", project["id"], "--status", "planned")
    olga.works("project delete", "project", "delete", project["id"], "--yes")
    olga.works("health", "health")
    olga.works("openapi", "openapi")


def _tokens(olga: Client, story: dict[str, str]) -> None:
    olga.works("whoami", "whoami")
    olga.works("access whoami", "access", "whoami")
    scope = ("-C", story["company"], "--agent", story["bo"])
    key = olga.works("token agent create", "token", "agent", "create", *scope, "--name", "k")
    assert "pcp_" in json.dumps(key)
    (known,) = olga.works("token agent list", "token", "agent", "list", *scope)["keys"]
    olga.works("token agent revoke", "token", "agent", "revoke", known["id"], *scope)
    made = olga.works("token board create", "token", "board", "create", "--name", "second")
    assert "pcb_" in json.dumps(made)
    olga.works("token board list", "token", "board", "list")


def _absent(olga: Client, story: dict[str, str]) -> None:
    why = "not_supported: left out"
    olga.refused(
        "routine list", "not_supported: not yet", "routine", "list", "-C", story["company"]
    )
    olga.refused("issue attachments", "not_supported: not yet", "issue", "attachments",
                 story["issue"])  # fmt: skip
    olga.refused("pipelines list", why, "pipelines", "list")


def _compare(table: list[tuple[str, str, str]]) -> None:
    rows = [f"| `{name}` | {outcome} | {why} |" for name, outcome, why in dict.fromkeys(table)]
    text = "\n".join(["| command | outcome | reason |", "|---|---|---|", *rows]) + "\n"
    if os.environ.get("PAPERCLIP_WRITE_DOCS"):
        head = PAGE.read_text().split("| command |")[0]
        PAGE.write_text(head + text)
    assert text in PAGE.read_text(), "docs/compatibility.md is not what the client found"
