"""A command-line agent, from its wake to the comment, the status, the cost and the session."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.models import Agent
from billing.models import CostEvent
from issues.models import Comment, Issue
from tests import factories
from tests.engine.test_sessions import carry

pytestmark = pytest.mark.django_db(transaction=True)

FAKE = Path(__file__).parents[1] / "adapters" / "cli" / "fake_claude.py"
SESSION = "11111111-2222-4333-8444-555555555555"  # of the stand-in


@pytest.fixture
def claude(pia: Agent, tmp_path: Path) -> Agent:
    command = tmp_path / "claude"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{FAKE}" "$@"\n')
    command.chmod(0o755)
    pia.adapter_type = "claude_local"
    pia.adapter_config = {
        "command": str(command),
        "env": {
            "FAKE_LOG": str(tmp_path / "calls.jsonl"),
            "FAKE_DO": "answer Seven boats.\\nStatus: in_review",
        },
    }
    pia.save()
    return pia


@pytest.fixture
def task(acme: Any, claude: Agent) -> Issue:
    return factories.issue(acme, "Count the boats", assignee=claude)


def test_it_works_an_issue_and_goes_on_with_it(
    during: Any, claude: Agent, task: Issue, tmp_path: Path
) -> None:
    first = carry(during, claude, task)
    task.refresh_from_db()

    assert (first.status, first.model) == ("succeeded", "claude-fake")
    assert task.status == "in_review"
    assert Comment.objects.get(issue=task).body == "Seven boats."
    cost = CostEvent.objects.get(run_id=first.pk)
    assert (cost.provider, cost.input_tokens, cost.cost_micros) == ("anthropic", 100, 500_000)
    assert first.session["id"] == SESSION

    second = carry(during, claude, task)

    assert second.session["runs"] == 2
    began, went_on = (
        json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()
    )
    assert "--resume" not in began["argv"]
    assert went_on["argv"][-2:] == ["--resume", SESSION]
    assert went_on["env"]["HOME"] == began["env"]["HOME"]
    assert went_on["env"]["PAPERCLIP_API_KEY"] != began["env"]["PAPERCLIP_API_KEY"]
