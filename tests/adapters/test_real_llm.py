"""A run against a real model on this machine: real tokens, real usage, real stops.

The model is tiny. Its numbers and its protocol are worth asserting, its wisdom is not.
"""

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents import adapters
from agents.adapters.base import AdapterError, Brief, Code, Task, Text
from tests.adapters.conftest import Played, make_brief, play

pytestmark = [pytest.mark.real_llm, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).parents[2] / "scripts" / "real_llm.sh"
LOADING_SECONDS = 120


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    built = subprocess.run([SCRIPT, "path"], capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip("NO REAL MODEL HERE, nothing was proved: run scripts/real_llm.sh build first")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [SCRIPT, "serve"],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_loaded(port, process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_loaded(port: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + LOADING_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "the model server ended by itself"
        with suppress(httpx.TransportError):
            if httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200:
                return
        time.sleep(0.1)
    raise AssertionError("the model server did not become ready")


def brief_for(kind: str, url: str, **changes: Any) -> Brief:
    task = Task(
        id="issue-1",
        identifier="ACM-1",
        title="What is the capital of France?",
        description="Answer in one short sentence.",
        status="in_progress",
        priority="medium",
    )
    settings = {
        "baseUrl": url,
        "model": "smollm2-135m",
        "temperature": 0,
        "maxTokens": 200,
        "idleTimeoutSec": 300,
        "tools": False,
        **changes,
    }
    return make_brief(
        config=adapters.validate(kind, settings), task=task, thread=(), instructions=""
    )


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_real_model_answers_an_issue(kind: str, server: str) -> None:
    began = time.monotonic()
    played = play(adapters.get(kind), brief_for(kind, server))
    took = time.monotonic() - began
    assert played.error is None
    assert played.done is not None
    (usage,) = played.usages
    print(f"\n{kind}: {usage.output_tokens} tokens in {took:.1f} s: {played.text()[:200]!r}")
    assert len(played.of(Text)) > 3
    assert "Paris" in played.done.summary
    assert played.done.summary == played.text().strip()
    assert played.done.status == "in_review"
    assert (usage.model, usage.source) == ("smollm2-135m", "reported")
    assert usage.input_tokens > 100
    assert 0 < usage.output_tokens <= 200


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_real_token_limit_is_told_as_what_it_is(kind: str, server: str) -> None:
    played = play(adapters.get(kind), brief_for(kind, server, maxTokens=3))
    assert isinstance(played.error, AdapterError)
    assert played.error.code is Code.TRUNCATED_OUTPUT
    assert played.usages[0].output_tokens == 3


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_real_model_with_tools_ends_one_way_or_another(kind: str, server: str) -> None:
    """So small a model seldom calls a tool rightly; whatever it does must be bearable."""
    brief = brief_for(kind, server, tools=True, maxTurns=3)
    played: Played = play(adapters.get(kind), brief)
    print(f"\n{kind}: {len(played.steps) // 2} tool calls, {played.error or played.done}")
    assert played.usages
    bearable = {Code.TRUNCATED_OUTPUT, Code.TURN_LIMIT, Code.BAD_RESULT, Code.PROVIDER_OVERLOADED}
    assert played.done is not None or (played.error and played.error.code in bearable)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_too_long_a_conversation_is_told_as_what_it_is(kind: str, server: str) -> None:
    brief = brief_for(kind, server)
    long = make_brief("boats and harbours " * 5000, config=brief.config)
    played = play(adapters.get(kind), long)
    assert played.error is not None
    assert played.error.code is Code.CONTEXT_TOO_LONG


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_testing_the_configuration_passes(kind: str, server: str) -> None:
    adapter = adapters.get(kind)
    parsed = adapter.Config.model_validate({"baseUrl": server, "model": "smollm2-135m"})

    async def work() -> list:
        try:
            return await adapter.test(parsed, {})
        finally:
            await adapter.aclose()

    checks = asyncio.run(work())
    assert [check.ok for check in checks] == [True, True]
