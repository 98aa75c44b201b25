"""The examples of an agent's loop, each as a `process` agent of a running instance."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.flows.office import Office

pytestmark = pytest.mark.timeout(300)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COMMANDS = {"agent_loop.sh": "sh", "agent_loop.py": sys.executable}


@pytest.mark.parametrize("example", COMMANDS)
def test_a_loop_takes_an_issue_through(example: str, office: Office) -> None:
    if example.endswith(".sh") and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    agent = office.hire(
        f"Loop {example[-2:]}",
        "process",
        {"command": COMMANDS[example], "args": [str(EXAMPLES / example)]},
    )

    reached = office.see_through(office.give(agent, "What time is it?"), seconds=60)

    (run,) = reached.runs
    log = office.get(f"/heartbeat-runs/{run['id']}/log")["content"]
    assert run["status"] == "succeeded", log
    assert reached.issue["status"] == "done"
    assert any("document" in words for words in reached.words)
    (document,) = office.get(f"/issues/{reached.issue['id']}/documents")
    assert document["key"] == "result"
    assert document["createdByAgentId"] == agent
    assert "Done: What time is it?" in log


def test_the_shell_loop_is_ten_lines() -> None:
    lines = [
        line
        for line in (EXAMPLES / "agent_loop.sh").read_text().splitlines()
        if line and not line.startswith("#") and not line.startswith("  ")
    ]

    assert len(lines) == 10
