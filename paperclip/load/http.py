"""HTTP/1.1 over asyncio for many callers at once: keep-alive, JSON, server-sent events.

Not a general client. It shares the machine with what it measures, and a general one would use as
much of it as the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_LINE_LIMIT = 2**20
BROKEN = (OSError, asyncio.IncompleteReadError, ValueError)


class Unexpected(Exception):
    """The server answered something else than was asked for; the text says what."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection to one server, opened when it is needed and again when it broke.

    Its requests raise one of `BROKEN` when the connection ends early.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(base_url)
        self._host = parts.hostname or "127.0.0.1"
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._head = f"host: {parts.netloc}\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in headers.items()
        )
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def request(self, method: str, path: str, data: object | None = None) -> Answer:
        """Sends `data` as JSON and returns the whole answer."""
        status, headers = await self._ask(method, path, data, "application/json")
        body = b"".join([chunk async for chunk in self._chunks(headers)])
        if headers.get("connection", "").lower() == "close":
            await self.close()
        return Answer(status, headers, body)

    async def events(
        self, method: str, path: str, data: object, extra: Mapping[str, str]
    ) -> AsyncIterator[tuple[str, Any]]:
        """Yields the events of a stream as (name, data), sending `extra` headers too. Raises
        Unexpected for another answer."""
        status, headers = await self._ask(method, path, data, "text/event-stream", extra)
        if status != 200:
            body = b"".join([chunk async for chunk in self._chunks(headers)])
            raise Unexpected(f"{status} {body[:300].decode(errors='replace')}")
        rest = b""
        async for chunk in self._chunks(headers):
            *blocks, rest = (rest + chunk).split(b"\n\n")
            for block in blocks:
                fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
                if b"data" in fields:
                    name = fields.get(b"event", b"message").decode()
                    yield name, json.loads(fields[b"data"])

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        self._reader = self._writer = None

    async def _ask(
        self,
        method: str,
        path: str,
        data: object | None,
        accept: str,
        extra: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, str]]:
        if self._writer is None or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, limit=_LINE_LIMIT
            )
        body = b"" if data is None else json.dumps(data).encode()
        kind = "content-type: application/json\r\n" if body else ""
        more = "".join(f"{name}: {value}\r\n" for name, value in (extra or {}).items())
        head = (
            f"{method} {path} HTTP/1.1\r\n{self._head}accept: {accept}\r\n{kind}{more}"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        await self._writer.drain()
        assert self._reader is not None
        try:
            first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        except BaseException:
            self._writer.close()
            raise
        pairs = (line.partition(":") for line in lines if line)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def _chunks(self, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        assert self._reader is not None
        if "chunked" in headers.get("transfer-encoding", ""):
            while size := int((await self._reader.readline()).split(b";")[0], 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readline()
        else:
            yield await self._reader.readexactly(int(headers.get("content-length", 0)))
