"""The model's end of the line: chat completions on loopback, streamed at a steady pace.

It keeps when it sent the first and the last token of each task, on the clock that the users read
too, so that what a product adds can be told from what the model took.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

FIRST_TOKEN_SECONDS = 0.380
TOKENS = 20
TOKENS_A_SECOND = 50
# Until the last token is out.
MODEL_SECONDS = FIRST_TOKEN_SECONDS + (TOKENS - 1) / TOKENS_A_SECOND
_MARK = re.compile(rb"\[load:([0-9a-z-]{1,60})\]")
WORDS = [
    ("Here", " is", " what", " I", " found", " about", " it", ".")[n % 8] for n in range(TOKENS)
]
ANSWER = "".join(WORDS)


def mark(task: str) -> str:
    """What a prompt must contain for the provider to know the task by."""
    return f"[load:{task}]"


@dataclass(slots=True)
class Sent:
    """When a task's answer went out, in seconds of `time.monotonic`."""

    first_token_at: float
    done_at: float = 0.0


class Provider:
    """Answers every `POST` with the same stream; `sent` tells when, by task."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        self.url = ""
        self._lines: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves a connection until its caller has gone, or `hang_up`."""
        line = asyncio.ensure_future(self._serve(reader, writer))
        self._lines.add(line)
        line.add_done_callback(self._lines.discard)

    async def hang_up(self) -> None:
        """Ends all connections."""
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The caller may leave at any moment: that is no failure of ours.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            try:
                while await self._one(reader, writer):
                    pass
            finally:
                writer.close()
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        length = re.search(rb"(?i)content-length:\s*(\d+)", head)
        body = await reader.readexactly(int(length[1]) if length else 0)
        found = _MARK.findall(body)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        # A wall of sleeps would drift by what each write takes.
        due = time.monotonic() + FIRST_TOKEN_SECONDS
        task = found[-1].decode() if found else ""
        for number in range(TOKENS):
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if number == 0:
                self.sent[task] = Sent(time.monotonic())
            writer.write(_frame({"delta": {"content": WORDS[number]}}))
            due += 1 / TOKENS_A_SECOND
        writer.write(_frame({"delta": {}, "finish_reason": "stop"}) + _usage() + _end())
        self.sent[task].done_at = time.monotonic()
        await writer.drain()
        return True


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _event(data: object) -> bytes:
    return _chunk(b"data: " + json.dumps(data).encode() + b"\n\n")


def _frame(choice: dict[str, object]) -> bytes:
    return _event({"id": "load", "model": "load", "choices": [{"index": 0, **choice}]})


def _usage() -> bytes:
    usage = {"prompt_tokens": 200, "completion_tokens": TOKENS, "total_tokens": 200 + TOKENS}
    return _event({"id": "load", "model": "load", "choices": [], "usage": usage})


def _end() -> bytes:
    return _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


@asynccontextmanager
async def running() -> AsyncIterator[Provider]:
    """A provider on a free port of the loopback address."""
    provider = Provider()
    server = await asyncio.start_server(provider.accept, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield provider
    finally:
        server.close()
        await provider.hang_up()
