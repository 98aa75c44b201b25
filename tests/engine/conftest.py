"""A shift to watch: it works in the test's own event loop, on the test's database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from django.db import connections
from django.utils import timezone

from agents.models import Agent
from companies import clock, live
from companies.models import Company
from paperclip.engine.shift import Shift
from tests import factories
from tests.engine import puppet as puppets


@pytest.fixture
def puppet(monkeypatch: pytest.MonkeyPatch) -> puppets.Puppet:
    made = puppets.Puppet()
    puppets.register(monkeypatch, made)
    return made


@pytest.fixture
def pia(acme: Company, puppet: puppets.Puppet) -> Agent:
    """An agent of acme that does what the puppet does."""
    return factories.agent(acme, "Pia", adapter_type="puppet", on_finish="done")


@pytest.fixture(autouse=True)
def data_dir(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return tmp_path


@pytest.fixture
def during() -> Iterator[Callable[..., Any]]:
    """Runs a shift while a coroutine watches it; the shift drains afterwards.

    `during(watch)` gives `watch` the shift and the `until` helper, and returns how it ended.
    """

    def run(watch: Callable[..., Awaitable[None]], **options: Any) -> str:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_during(watch, options))

    yield run
    clock.agree(timezone.now())  # a shift that lived on a test's time had corrected ours
    live.close()


async def _during(watch: Callable[..., Awaitable[None]], options: dict[str, Any]) -> str:
    shift = Shift(**{"instance": "here", "grace_seconds": 0.2, **options})
    work = asyncio.create_task(shift.work())
    try:
        await watch(shift)
    finally:
        shift.drain()
        ending = await asyncio.wait_for(work, 30)
    return ending


async def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait until a condition holds; the condition may ask the database."""
    deadline = time.monotonic() + seconds
    while not await ask(condition):
        if time.monotonic() > deadline:
            raise AssertionError("it did not come to be in time")
        await asyncio.sleep(0.02)


async def ask(verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A blocking verb's answer, from a thread that leaves no connection behind."""

    def asked() -> Any:
        try:
            return verb(*args, **kwargs)
        finally:
            connections.close_all()

    return await asyncio.to_thread(asked)
