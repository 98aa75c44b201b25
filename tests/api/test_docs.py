"""The examples of docs/api.md, run against the real server as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agents.models import Agent, HeartbeatRun
from billing.models import CostEvent
from companies.models import Company
from issues.models import Comment, Issue
from paperclip.api import api
from tests import factories
from tests.api.conftest import Caller
from tests.api.server import serving
from tests.streams.viewing import end, write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


def block(name: str) -> tuple[str, str]:
    """The language and text of the fenced block that carries this name."""
    found = re.search(rf"^```(\w+) {name}\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert found is not None, f"docs/api.md has no example {name}"
    return found[1], found[2]


def run(name: str, env: dict[str, str]) -> str:
    language, text = block(name)
    command = {"sh": ["sh", "-euc", text], "python": [sys.executable, "-c", text]}[language]
    done = subprocess.run(
        command, env={"PATH": os.environ["PATH"], **env}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_do_what_they_say(
    tmp_path: Path, acme: Company, ada: Agent, bo: Agent, as_olga: Caller, as_ada: Caller
) -> None:
    with serving(tmp_path) as address:
        env = {
            "BASE": address,
            "OPERATOR_KEY": as_olga.token,
            "AGENT_KEY": as_ada.token,
            "AGENT_ID": str(ada.id),
            "COMPANY": str(acme.id),
        }

        out = run("operator", env)
        assert '"error"' not in out, out
        issue = Issue.objects.get(identifier="ACM-1")
        assert (issue.title, issue.get_priority_display()) == ("Design the gripper", "critical")

        out = run("agent", {"PAPERCLIP_API_URL": address, "PAPERCLIP_API_KEY": as_ada.token})
        assert "Design the gripper" in out
        issue.refresh_from_db()
        assert issue.status == "done"
        assert Comment.objects.filter(issue=issue, body="Here it is.").exists()

        out = run("task", env)
        made = Issue.objects.get(identifier="ACM-2")
        assert str(HeartbeatRun.objects.get(issue=made).id) in out

        out = run("costs", env)
        assert CostEvent.objects.get().cost_micros == 5250
        assert '"spendMicros":5250' in out

        finished = factories.running(bo, factories.issue(acme, assignee=bo))
        write(finished, 1, 2)
        end(finished)
        out = run("stream", {**env, "RUN_ID": str(finished.id)})
        assert out.splitlines() == ["text piece 1", "text piece 2", "done succeeded"]


def test_every_address_on_the_page_exists() -> None:
    paths = set(api.get_openapi_schema(path_prefix="/api")["paths"])
    shapes = {re.sub(r"\{\w+\}", "{}", path) for path in paths}
    known = shapes | {"/api/heartbeat-runs/{}/stream", "/api/openapi.json"}

    named = set(re.findall(r"(?:GET|POST|PATCH|PUT|DELETE) (/api/[\w/{}.-]+)", PAGE.read_text()))

    assert len(named) > 10
    assert {re.sub(r"\{\w+\}", "{}", path) for path in named} <= known
