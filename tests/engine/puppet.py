"""An adapter whose strings a test pulls: what it says, when it waits, how it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from agents import adapters
from agents.adapters import base


class Puppet:
    """`play` gets the brief and yields events. One for each test, see the `puppet` fixture."""

    type = "puppet"
    label = "Puppet"
    description = "For tests."
    Config = base.Config
    uses_tools = True
    needs_folder = True
    simulated = True

    def __init__(self, retry_safe: bool = True) -> None:
        self.retry_safe = retry_safe
        self.briefs: list[base.Brief] = []
        self.cleaned: list[str] = []
        self.play: Callable[[base.Brief], AsyncGenerator[base.Event, None]] = finish()

    async def run(self, brief: base.Brief) -> AsyncGenerator[base.Event, None]:
        self.briefs.append(brief)
        try:
            async for event in self.play(brief):
                yield event
        finally:
            self.cleaned.append(brief.run_id)

    async def test(self, config: Any, secrets: Mapping[str, str]) -> list[base.Check]:
        return []

    async def aclose(self) -> None:
        return None


def finish(*events: base.Event, **done: Any) -> Any:
    """Says the events and ends well."""

    async def play(brief: base.Brief) -> AsyncGenerator[base.Event, None]:
        for event in events:
            yield event
        yield base.Done(**{"summary": "All done.", **done})

    return play


def fail(code: base.Code, *events: base.Event, **error: Any) -> Any:
    async def play(brief: base.Brief) -> AsyncGenerator[base.Event, None]:
        for event in events:
            yield event
        raise base.AdapterError(code, "It went wrong.", **error)

    return play


def wait_for_ever(*events: base.Event) -> Any:
    async def play(brief: base.Brief) -> AsyncGenerator[base.Event, None]:
        for event in events:
            yield event
        await asyncio.Event().wait()

    return play


def register(monkeypatch: Any, puppet: Puppet) -> None:
    monkeypatch.setitem(adapters._ADAPTERS, "puppet", puppet)
