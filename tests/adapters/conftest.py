"""What the tests of adapters share: a mock model, a brief, and a way to play a run."""

import asyncio
import dataclasses
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from agents.adapters import outbound
from agents.adapters.base import (
    Adapter,
    AdapterError,
    Brief,
    Done,
    Event,
    Message,
    Step,
    Task,
    Text,
    ToolResult,
    ToolSpec,
    Usage,
)
from tests.mock_llm import Served, serve_in_thread


@pytest.fixture(scope="session")
def _mock_server() -> Iterator[Served]:
    with serve_in_thread() as served:
        yield served


@pytest.fixture
def mock_llm(_mock_server: Served) -> Served:
    """The mock model; its list of requests begins empty."""
    _mock_server.state.requests.clear()
    _mock_server.state.tries.clear()
    return _mock_server


@pytest.fixture(autouse=True)
def _loopback_allowed() -> Iterator[None]:
    before = outbound.policy()
    outbound.configure(allow=["loopback"])
    yield
    outbound.configure(allow=before.allow)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeats come at once."""
    monkeypatch.setattr("agents.adapters.line.jitter", lambda attempt: 0.0)
    monkeypatch.setattr("agents.adapters.http.jitter", lambda attempt: 0.0)


OBJECT = {"type": "object", "properties": {"body": {"type": "string"}}}
TOOLS = (
    ToolSpec("comment", "Write a comment on the issue.", OBJECT),
    ToolSpec("look", "Look something up.", OBJECT, acts=False),
    ToolSpec("set_status", "Set the issue's status.", OBJECT),
    ToolSpec("ask_operator", "Ask a person.", OBJECT),
)


class Toolbox:
    """Tools that note what was asked of them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, object]]] = []

    async def __call__(self, name: str, arguments: dict[str, object]) -> ToolResult:
        self.calls.append((name, dict(arguments)))
        return ToolResult(f"{name} done", closes=name in ("set_status", "ask_operator"))


def make_task(description: str = "") -> Task:
    return Task(
        id="issue-1",
        identifier="ACM-1",
        title="Count the boats",
        description=description,
        status="in_progress",
        priority="high",
        project="Harbour",
        goal="Know our boats",
        ancestors=("ACM-0 Know the harbour",),
    )


def make_brief(prompt: str = "", **changes: object) -> Brief:
    """A brief whose issue says `prompt`."""
    brief = Brief(
        run_id="run-1",
        agent_id="agent-1",
        company_id="company-1",
        agent_name="Ada",
        company_name="Acme",
        reason="issue_assigned",
        config={},
        instructions="Be brief.",
        task=make_task(prompt),
        thread=(Message("operator", "Olga", "Please hurry.", "2026-11-30T10:00:00Z"),),
        tools=TOOLS,
        call_tool=Toolbox(),
        secrets={"KEY": "sk-test-not-a-real-key"},
    )
    return dataclasses.replace(brief, **changes)


class Played:
    """The events of a run and how it ended."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.error: AdapterError | None = None

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def text(self, channel: str = "answer") -> str:
        return "".join(event.text for event in self.of(Text) if event.channel == channel)

    @property
    def done(self) -> Done | None:
        return next(iter(self.of(Done)), None)

    @property
    def usages(self) -> list[Usage]:
        return self.of(Usage)

    @property
    def steps(self) -> list[Step]:
        return self.of(Step)


async def play_async(adapter: Adapter, brief: Brief) -> Played:
    played = Played()
    try:
        async with aclosing(adapter.run(brief)) as events:
            async for event in events:
                played.events.append(event)
    except AdapterError as error:
        played.error = error
    return played


def play(adapter: Adapter, brief: Brief) -> Played:
    """Run it to its end in an event loop of its own."""

    async def work() -> Played:
        try:
            return await play_async(adapter, brief)
        finally:
            await adapter.aclose()

    return asyncio.run(work())
