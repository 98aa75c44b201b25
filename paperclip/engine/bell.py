"""How a shift hears: one LISTEN connection for wakes, cancellations and the request to drain.

Notices may get lost; the shift looks by itself every second. The connection is direct, past any
pooler, because a pooler in transaction mode delivers no notices and keeps no session locks. The
same session holds the lock of the shift's slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import psycopg

from companies import live
from paperclip.database.address import conninfo
from paperclip.engine.hands import about

log = logging.getLogger(__name__)

DRAIN_CHANNEL = "paperclip_drain"  # payload: an instance's name
LONGEST_PAUSE_SECONDS = 5.0
OPEN_SECONDS = 10.0


class Bell:
    """Calls back for each notice, reconnects for ever, keeps a slot's lock while connected."""

    def __init__(self, *, lock_name: str | None, on_slot_lost: Callable[[], None]) -> None:
        self._lock_name = lock_name
        self._on_slot_lost = on_slot_lost
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def open(self) -> bool:
        """Connect and take the slot. False when another shift has it. Raises TimeoutError."""
        async with asyncio.timeout(OPEN_SECONDS):
            return await self._open()

    async def _open(self) -> bool:
        conn = await psycopg.AsyncConnection.connect(
            conninfo(direct=True), autocommit=True, connect_timeout=5
        )
        try:
            if self._lock_name is not None:
                cursor = await conn.execute(
                    "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [self._lock_name]
                )
                row = await cursor.fetchone()
                if row is None or not row[0]:
                    await conn.close()
                    return False
            for channel in (live.WAKE_CHANNEL, live.CANCEL_CHANNEL, DRAIN_CHANNEL):
                await conn.execute(f"LISTEN {channel}")
        except BaseException:
            await conn.close()
            raise
        self._connection = conn
        return True

    async def listen(self, hear: Callable[[str, str], None], on_open: Callable[[], None]) -> None:
        """Hear until cancelled. `on_open` after each (re)connection: something may be missed."""
        failures = 0
        while True:
            try:
                if self._connection is None and not await self.open():
                    self._on_slot_lost()
                    return
                assert self._connection is not None
                if failures:
                    log.info("listening again")
                failures = 0
                on_open()
                async for notice in self._connection.notifies():
                    hear(notice.channel, notice.payload)
            except (psycopg.Error, OSError) as error:
                if failures == 0:
                    log.warning("not listening, polling meanwhile: %s", str(error).strip())
            await self.close()
            failures += 1
            pause = min(LONGEST_PAUSE_SECONDS, 0.25 * 2 ** min(failures, 6))
            await asyncio.sleep(about(pause))

    async def close(self) -> None:
        conn, self._connection = self._connection, None
        if conn is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await conn.close()
