"""A small HTTP/1.1 client for load: keep-alive, asyncio, loopback only, cheap enough to share two
cores with what it measures."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> object:
        return json.loads(self.body)


class Client:
    """One connection, reopened when it breaks."""

    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        self.port = port
        self.head = "".join(f"{k}: {v}\r\n" for k, v in (headers or {}).items())
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def send(self, method: str, path: str, body: bytes, extra: str) -> None:
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection(
                "127.0.0.1", self.port, limit=2**20
            )
        self.writer.write(
            (
                f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n{self.head}{extra}"
                f"content-length: {len(body)}\r\n\r\n"
            ).encode()
            + body
        )
        await self.writer.drain()

    async def head_of_answer(self) -> tuple[int, dict[str, str]]:
        assert self.reader is not None
        raw = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").split("\r\n")
        headers = {
            k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)
        }
        return int(first.split()[1]), headers

    async def chunks(self, headers: dict[str, str]) -> AsyncIterator[bytes]:
        assert self.reader is not None
        if "chunked" in headers.get("transfer-encoding", ""):
            while size := int((await self.reader.readline()).split(b";")[0], 16):
                yield (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
        elif "content-length" in headers:
            yield await self.reader.readexactly(int(headers["content-length"]))
        else:
            while data := await self.reader.read(65536):
                yield data

    async def request(
        self, method: str, path: str, data: object | None = None, extra: str = ""
    ) -> Answer:
        """One request and its whole answer. Raises OSError or IncompleteReadError."""
        body = b"" if data is None else json.dumps(data).encode()
        if body:
            extra += "content-type: application/json\r\n"
        await self.send(method, path, body, extra)
        status, headers = await self.head_of_answer()
        parts = [chunk async for chunk in self.chunks(headers)]
        if headers.get("connection", "").lower() == "close":
            await self.close()
        return Answer(status, headers, b"".join(parts))

    async def events(self, path: str, extra: str = "") -> AsyncIterator[tuple[str, str, dict]]:
        """Server-sent events of a stream as (id, event, data), with our own framing only."""
        await self.send("GET", path, b"", extra + "accept: text/event-stream\r\n")
        status, headers = await self.head_of_answer()
        if status != 200:
            raise RuntimeError(f"the stream answered {status}")
        rest = b""
        async for chunk in self.chunks(headers):
            rest += chunk
            while b"\n\n" in rest:
                block, rest = rest.split(b"\n\n", 1)
                fields = dict(
                    line.split(b": ", 1) for line in block.split(b"\n") if b": " in line[:12]
                )
                if b"data" in fields:
                    yield (
                        fields.get(b"id", b"").decode(),
                        fields.get(b"event", b"message").decode(),
                        json.loads(fields[b"data"]),
                    )

    async def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            with suppress(OSError):
                await self.writer.wait_closed()
        self.writer = self.reader = None


@dataclass(slots=True)
class Load:
    """What a closed loop of clients saw."""

    seconds: float = 0.0
    durations: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    bytes: int = 0

    @property
    def rate(self) -> float:
        return len(self.durations) / self.seconds if self.seconds else 0.0


async def closed_loop(
    *,
    clients: int,
    seconds: float,
    make: Callable[[], Client],
    act: Callable[[Client, int], Awaitable[Answer]],
    expected: tuple[int, ...] = (200, 201, 202),
) -> Load:
    """`clients` connections, each sending its next request when the last was answered."""
    load = Load()
    end = time.perf_counter() + seconds

    async def one(number: int) -> None:
        client, turn = make(), 0
        while (begun := time.perf_counter()) < end:
            try:
                answer = await act(client, number * 1_000_000 + turn)
            except (OSError, asyncio.IncompleteReadError) as error:
                load.failures.append(repr(error))
                await client.close()
                continue
            turn += 1
            if answer.status in expected:
                load.durations.append(time.perf_counter() - begun)
                load.bytes = len(answer.body)
            else:
                load.failures.append(f"{answer.status} {answer.body[:200]!r}")
        await client.close()

    begun = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(clients)))
    load.seconds = time.perf_counter() - begun
    return load
