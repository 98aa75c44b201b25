"""An issue through the whole house with a real model at its end, by both wire protocols.

The model is tiny: that it answered, what was counted and what became of the issue is asserted.
"""

from __future__ import annotations

import pytest

from tests.adapters.test_real_llm import server
from tests.flows.office import Office

pytestmark = [pytest.mark.real_llm, pytest.mark.timeout(600)]

__all__ = ["server"]

MODEL = "smollm2-135m"


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_an_issue_is_answered_by_a_real_model(kind: str, office: Office, server: str) -> None:
    config = {
        "baseUrl": server,
        "model": MODEL,
        "tools": False,
        "temperature": 0,
        "maxTokens": 200,
        "idleTimeoutSec": 180,
    }
    agent = office.hire(f"Real {kind}", kind, config, onFinish="done")
    issue = office.give(agent, "What is the capital of France?", "Say it in one sentence.")
    reached = office.see_through(issue, seconds=240)
    assert reached.issue["status"] == "done", reached
    assert len(reached.words) == 1
    assert reached.words[0].strip()
    usage = reached.runs[0]["usageJson"]
    assert usage["inputTokens"] > 50
    assert 0 < usage["outputTokens"] <= 200
    assert reached.unpriced == 1  # nobody has told what a local model costs; that is not 0
