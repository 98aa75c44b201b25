"""The threads in which an event loop has blocking verbs carried out.

Each thread keeps its own database connection. A connection that fails is closed, so that the next
call opens a fresh one; whether to call again is the caller's decision, or `insist`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, ParamSpec, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

# The database is away, or has chosen us to end a deadlock; the same call may do better soon.
PASSING = (OperationalError, InterfaceError)
_PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)
LONGEST_CALL_SECONDS = 60.0  # no verb takes so long; the answer is not coming any more


def about(seconds: float) -> float:
    """`seconds`, up to a third more or less, so that processes do not march in step."""
    return seconds * random.uniform(0.67, 1.33)  # noqa: S311 - not a secret


def traceback_of(error: BaseException) -> BaseException | None:
    """For a log line: the traceback is worth its lines only when it is not the database being
    away."""
    return None if isinstance(error, (*PASSING, psycopg.OperationalError, OSError)) else error


class Closed(RuntimeError):
    """The shift is over, and its threads with it."""


class Hands:
    """A few threads for blocking calls. Closed at the end of a shift."""

    def __init__(self, count: int, name: str) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        # Calls going on, by thread: since when (monotonic seconds), and on which connection.
        self._calls: dict[int, tuple[float, Any]] = {}

    async def call(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The verb's answer; whatever it raises comes through. Raises Closed."""
        loop = asyncio.get_running_loop()
        # The thread logs about the same run as who asks it.
        here = contextvars.copy_context()
        work = functools.partial(self._with_connection, verb, *args, **kwargs)
        try:
            answer = loop.run_in_executor(self._pool, here.run, work)
        except RuntimeError as error:
            raise Closed(str(error)) from error
        return await answer

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

    def cut(self, *, older_than: float = 0.0) -> int:
        """Break the connections of calls that have gone on for `older_than` seconds, so that a
        thread that waits for an answer from nowhere is free again. Returns how many."""
        now = time.monotonic()
        return sum(
            _hang_up(wrapper)
            for since, wrapper in list(self._calls.values())
            if now - since >= older_than
        )

    def close(self) -> None:
        """Close the threads' connections and let the threads go. A call that is going on loses
        its connection: whoever closes has waited for what it wants."""
        self.cut()
        together = threading.Barrier(self.count)

        def leave() -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(timeout=1)
            connections.close_all()

        wait([self._pool.submit(leave) for _ in range(self.count)], timeout=2)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _with_connection(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._calls[threading.get_ident()] = (time.monotonic(), connections[DEFAULT_DB_ALIAS])
        try:
            return verb(*args, **kwargs)
        except PASSING:
            connections.close_all()
            raise
        finally:
            del self._calls[threading.get_ident()]


def _hang_up(wrapper: Any) -> bool:
    """Shut the socket of another thread's connection: its call fails at once. libpq has no
    time-out of its own, and a network that swallows everything may keep a call for hours."""
    with contextlib.suppress(psycopg.Error, OSError, AttributeError):
        with socket.socket(fileno=os.dup(wrapper.connection.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)
        return True
    return False  # not connected (any more)
