"""A TCP proxy that misbehaves as asked, between a process of the product and PostgreSQL.

It listens on a free port of the loopback and connects to the server's unix socket (or host). Its
event loop lives in a thread of its own; modes are changed from the test's thread at any time:

    pass_on     as it should be
    delay       each piece of data comes `delay_seconds` late
    black_hole  connections stay open, nothing passes in either direction
    refuse      new connections are reset at once
    drop_acks   a COMMIT reaches the server, its answer is swallowed and the connection reset

`reset_share` breaks a connection at a random piece of data, `reset_all` all of them now.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

PASS_ON, DELAY, BLACK_HOLE, REFUSE, DROP_ACKS = (
    "pass_on", "delay", "black_hole", "refuse", "drop_acks",
)  # fmt: skip
PIECE_BYTES = 65_536


@dataclass(eq=False)
class Link:
    """One connection of a client and its counterpart at the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    committing: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def reset(self) -> None:
        """End it as a broken network does: at once, with RST."""
        for writer in (self.client, self.server):
            with contextlib.suppress(OSError, AttributeError):
                sock = writer.get_extra_info("socket")
                if sock.family != socket.AF_UNIX:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        for task in self.tasks:
            task.cancel()


class Proxy:
    """Use as a context manager; `dsn` is the database's address through it."""

    def __init__(self, target: str) -> None:
        """`target`: the database's own address, as a libpq string."""
        self._target = conninfo_to_dict(target)
        self.mode = PASS_ON
        self.delay_seconds = 0.0
        self.reset_share = 0.0
        self.acks_to_drop = 0
        self.acks_share = 1.0
        self.counts: Counter[str] = Counter()
        self.links: set[Link] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._random = random.Random(7)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512), self._loop
        ).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        async def close() -> None:
            self._server.close()
            for link in list(self.links):
                link.reset()
            await asyncio.sleep(0.05)

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def dsn(self) -> str:
        known = {k: v for k, v in self._target.items() if k not in ("host", "port", "hostaddr")}
        return make_conninfo("", host="127.0.0.1", port=self.port, sslmode="disable", **known)

    def set(self, mode: str) -> None:
        self.mode = mode

    def drop_acks(self, count: int, share: float = 1.0) -> None:
        """Swallow the answers of `count` COMMITs: of the next ones, or of this share of them."""
        self.acks_to_drop, self.acks_share, self.mode = count, share, DROP_ACKS

    def reset_all(self) -> None:
        """Break all connections now."""
        self._loop.call_soon_threadsafe(lambda: [link.reset() for link in list(self.links)])

    # --- in the loop -------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counts["connections"] += 1
        try:
            above, server = await self._connect()
        except OSError:  # the server is away, and so is what stands before it
            writer.transport.abort()
            return
        link = Link(writer, server)
        if self.mode == REFUSE:
            link.reset()
            return
        self.links.add(link)
        link.tasks = [
            asyncio.create_task(self._carry(reader, server, link, upward=True)),
            asyncio.create_task(self._carry(above, writer, link, upward=False)),
        ]
        try:
            await asyncio.wait(link.tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.links.discard(link)
            link.reset() if link.committing else self._close(link)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = str(self._target.get("host", "")), self._target.get("port") or 5432
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, int(port))

    @staticmethod
    def _close(link: Link) -> None:
        for writer in (link.client, link.server):
            writer.close()
        for task in link.tasks:
            task.cancel()

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        link: Link,
        *,
        upward: bool,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE_BYTES):
                while self.mode == BLACK_HOLE:
                    await asyncio.sleep(0.05)
                if self.mode == DELAY:
                    await asyncio.sleep(self.delay_seconds)
                if self.reset_share and self._random.random() < self.reset_share:
                    self.counts["resets"] += 1
                    link.reset()
                    return
                if upward:
                    self._look(data, link)
                elif link.committing:
                    # The server has answered: it is committed, and the client will not hear of it.
                    self.counts["dropped"] += 1
                    link.reset()
                    return
                writer.write(data)
                await writer.drain()

    def _look(self, data: bytes, link: Link) -> None:
        if not _commits(data):
            return
        self.counts["commits"] += 1
        if self.mode == DROP_ACKS and self._random.random() < self.acks_share:
            self.acks_to_drop -= 1
            link.committing = True
            if self.acks_to_drop <= 0:
                self.mode = PASS_ON


def _commits(data: bytes) -> bool:
    """Is this the frontend's COMMIT, as psycopg sends it (a query message of its own)?"""
    return data.startswith((b"Q\x00\x00\x00\x0bCOMMIT\x00", b"P\x00\x00\x00\x0e\x00COMMIT\x00"))
