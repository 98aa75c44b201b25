"""Threads with transactions of their own, started together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connections


def together(*verbs: Callable[[], Any]) -> list[Any]:
    """Call all at the same moment, each in a thread with its own connection; their answers."""
    barrier = threading.Barrier(len(verbs))

    def call(verb: Callable[[], Any]) -> Any:
        try:
            connections["default"].ensure_connection()
            barrier.wait(timeout=30)
            return verb()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(verbs)) as pool:
        return list(pool.map(call, verbs))


def many(count: int, verb: Callable[[int], Any]) -> Sequence[Any]:
    """The same verb by `count` threads, told their number."""
    return together(*(lambda n=n: verb(n) for n in range(count)))
