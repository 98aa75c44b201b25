"""The end of a child's pipe that is read here, closed once.

The loop's own transports for pipes take a descriptor over without letting the file know: uvloop
closes its number, and the file closes it once more. In between it may be somebody else's, a
connection to the database as well as a folder that is just being read.
"""

from __future__ import annotations

import asyncio
import os
from typing import IO


class OutputPipe:
    """What a child writes, as it comes. Belongs to the loop in which it is made."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        os.set_blocking(file.fileno(), False)

    async def read(self, most: int) -> bytes:
        """Up to `most` bytes as soon as there are some; b"" at the end, and once it is closed."""
        while not self._file.closed:
            try:
                return os.read(self._file.fileno(), most)
            except BlockingIOError:
                await self._readable()
        return b""

    def close(self) -> None:
        """Whoever waits to read has reached the end."""
        if not self._file.closed:
            self._loop.remove_reader(self._file.fileno())
            self._file.close()
        self._wake()

    async def _readable(self) -> None:
        self._waiter = self._loop.create_future()
        self._loop.add_reader(self._file.fileno(), self._wake)
        try:
            await self._waiter
        finally:
            if not self._file.closed:  # else its number may be somebody else's
                self._loop.remove_reader(self._file.fileno())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
