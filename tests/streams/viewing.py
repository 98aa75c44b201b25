"""A viewer without a network: drives the streams' ASGI application as a server would."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson
from django.db import connections

from agents.models import HeartbeatRun, RunEvent
from companies import live
from paperclip.streams import app, hub

R = TypeVar("R")
PATIENCE_SECONDS = 10


@dataclass
class Viewer:
    """One open stream: what came so far, and a way to leave."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def events(self) -> list[dict[str, Any]]:
        """The complete events: {"event", "id", "data"}."""
        found = []
        for block in self.body.decode().split("\n\n")[:-1]:
            lines = [line.split(": ", 1) for line in block.split("\n") if line[:1] != ":"]
            if any(line[0] == "data" for line in lines):  # else only a position
                event = dict(lines)
                event["data"] = orjson.loads(event["data"])
                found.append(event)
        return found

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.events() if event["event"] == name]

    def seqs(self) -> list[int]:
        return [int(event["id"]) for event in self.events() if "id" in event]

    async def until(self, seen: Callable[[Viewer], bool]) -> Viewer:
        """Wait until the stream has brought what `seen` looks for."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not seen(self):
                self._news.clear()
                await self._news.wait()
        return self

    async def until_end(self) -> Viewer:
        return await self.until(lambda viewer: viewer.ended)

    async def leave(self) -> None:
        self._left.set()
        if self._task is not None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._task


def look(
    path: str, *, token: str = "", method: str = "GET", body: bytes = b"", **headers: str
) -> Viewer:
    """Open a stream; it runs until it ends or the viewer leaves."""
    viewer = Viewer()
    path, _, query = path.partition("?")
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    if token:
        sent.append((b"authorization", f"Bearer {token}".encode()))
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "headers": [*sent, (b"host", b"localhost")],
        "http_version": "1.1", "scheme": "http", "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }  # fmt: skip
    given = False

    async def receive() -> dict[str, Any]:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        await viewer._left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            viewer.status = message["status"]
            viewer.headers = dict(message["headers"])
        else:
            viewer.body += message.get("body", b"")
            viewer.ended = not message.get("more_body", False)
        viewer._news.set()

    viewer._task = asyncio.create_task(app(scope, receive, send))
    return viewer


@contextlib.asynccontextmanager
async def running_hub() -> AsyncIterator[hub.Hub]:
    await hub.start()
    try:
        yield hub.current()
    finally:
        await hub.stop()


async def in_thread(work: Callable[[], R]) -> R:
    """Run database work beside the loop, and leave no connection behind."""

    def tidy() -> R:
        try:
            return work()
        finally:
            live.flush()
            connections.close_all()

    return await asyncio.to_thread(tidy)


def write(run: HeartbeatRun, *seqs: int, kind: str = "text", publish: bool = True) -> None:
    """Output of a run, as the engine's writer leaves it."""
    RunEvent.objects.bulk_create(
        [
            RunEvent(
                run_id=run.id, company_id=run.company_id, run_created_at=run.created_at, seq=seq,
                epoch=run.epoch, kind=kind, text=f"piece {seq}", data=None, at=run.created_at,
            )
            for seq in seqs
        ]
    )  # fmt: skip
    if publish:
        live.publish(run.company_id, "run", run.id)


def end(run: HeartbeatRun, status: str = "succeeded", code: str = "") -> None:
    HeartbeatRun.objects.filter(id=run.id).update(
        status=status, finished_at=run.created_at, code=code, cost_micros=42
    )
    live.publish(run.company_id, "run", run.id)
