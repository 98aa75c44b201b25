"""A real program with a real model: real tokens through the whole chain.

The model is tiny: that it answered and what it used is worth asserting, its words are not.
"""

import pytest

from agents import adapters
from tests.adapters.cli.test_real_clis import FOLDER
from tests.adapters.conftest import make_brief, play
from tests.adapters.test_real_llm import server  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.real_llm, pytest.mark.timeout(600)]


def test_claude_code_speaks_with_a_model_of_this_machine(
    server: str,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    command = FOLDER / "node_modules" / ".bin" / "claude"
    if not command.exists():
        pytest.skip(f"CLAUDE CODE IS NOT INSTALLED in {FOLDER}: run scripts/install_clis.sh")
    config = {
        "command": str(command),
        "model": "smollm2-135m",
        "env": {
            "ANTHROPIC_BASE_URL": server.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": "sk-of-nobody",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "200",
        },
        # Its own prompt and tools are longer than this model can read.
        "extraArgs": ["--system-prompt", "You answer in one sentence.", "--tools", ""],
        "timeoutSec": 500,
    }
    brief = make_brief(
        "What is the capital of France?",
        run_id="run-with-a-real-model",
        config=config,
        run_dir=str(tmp_path_factory.mktemp("run")),
        agent_dir=str(tmp_path_factory.mktemp("agent")),
        secrets={},
    )

    played = play(adapters.get("claude_local"), brief)

    (usage,) = played.usages
    assert usage.source == "reported"
    assert usage.model == "smollm2-135m"
    assert usage.input_tokens > 300
    assert usage.output_tokens > 0
    assert usage.cost_micros is None
    if played.error is None:
        assert played.text().strip()
    else:  # it may go on and on
        assert played.error.code == "truncated_output"
