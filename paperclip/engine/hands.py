"""The threads in which an event loop has blocking verbs carried out.

Each thread keeps its own database connection. A connection that fails is closed, so that the next
call opens a fresh one; whether to call again is the caller's decision, or `insist`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import psycopg
from django.db import InterfaceError, OperationalError, connections

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

# The database is away, or has chosen us to end a deadlock; the same call may do better soon.
PASSING = (OperationalError, InterfaceError)
_PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)


def about(seconds: float) -> float:
    """`seconds`, up to a third more or less, so that processes do not march in step."""
    return seconds * random.uniform(0.67, 1.33)  # noqa: S311 - not a secret


def traceback_of(error: BaseException) -> BaseException | None:
    """For a log line: the traceback is worth its lines only when it is not the database being
    away."""
    return None if isinstance(error, (*PASSING, psycopg.OperationalError, OSError)) else error


class Hands:
    """A few threads for blocking calls. Closed at the end of a shift."""

    def __init__(self, count: int, name: str) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def call(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The verb's answer; whatever it raises comes through."""
        loop = asyncio.get_running_loop()
        work = functools.partial(_with_connection, verb, *args, **kwargs)
        return await loop.run_in_executor(self._pool, work)

    async def insist(
        self, still: Callable[[], bool], verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Like `call`, again and again while the database is away and `still()` holds.

        For verbs that may be repeated. Raises the last failure when `still()` says no.
        """
        tries = 0
        while True:
            try:
                return await self.call(verb, *args, **kwargs)
            except PASSING:
                if not still():
                    raise
            pause = _PAUSES[min(tries, len(_PAUSES) - 1)]
            tries += 1
            await asyncio.sleep(about(pause))

    def close(self) -> None:
        """Close the threads' connections and let the threads go; a stuck one is left behind."""
        together = threading.Barrier(self.count)

        def leave() -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(timeout=1)
            connections.close_all()

        leaving = [self._pool.submit(leave) for _ in range(self.count)]
        for future in leaving:
            with contextlib.suppress(Exception):
                future.result(timeout=2)
        self._pool.shutdown(wait=False, cancel_futures=True)


def _with_connection(verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return verb(*args, **kwargs)
    except PASSING:
        connections.close_all()
        raise
