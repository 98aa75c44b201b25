"""The threads that carry requests, for `bridge.py`."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

_Work = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class Threads:
    """A few long-lived threads that take their work from one line.

    `concurrent.futures` does the same with locks and conditions for each piece of work.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._line: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def run(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """What `work` returns on one of the threads."""
        if not self._threads:  # not before there is work: a fork would lose them
            self._threads = [
                threading.Thread(target=self._take, name=f"request_{number}", daemon=True)
                for number in range(self._count)
            ]
            for thread in self._threads:
                thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._line.put((loop, future, work))
        return future

    def _take(self) -> None:
        while (taken := self._line.get()) is not None:
            loop, future, work = taken
            try:
                result, error = work(), None
            except BaseException as raised:
                result, error = None, raised
            # The loop has ended when nobody waits any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, future, result, error)
            del taken, future, work, result, error  # nothing is kept alive by an idle thread

    def close(self) -> None:
        """Let what runs come to its end, drop what waits, and end the threads."""
        with contextlib.suppress(queue.Empty):
            while True:
                waiting = self._line.get_nowait()
                if waiting is not None:
                    loop, future, _ = waiting
                    with contextlib.suppress(RuntimeError):
                        loop.call_soon_threadsafe(future.cancel)
        for _ in self._threads:
            self._line.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
