"""Threads with transactions of their own, started together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from django.db import connections, transaction

from tests.house.instance import database_address


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


def blocked() -> bool:
    with psycopg.connect(database_address(), autocommit=True) as own:
        row = own.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
        return bool(row and row[0])


def one_inside_the_other(first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
    """`first` is done but not committed when `second` begins; it commits when `second` has ended
    or waits for it. Their answers; an exception is an answer."""
    answers: list[Any] = [None, None]
    done, go = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                answers[0] = first()
                done.set()
                go.wait(30)
        except Exception as error:
            answers[0] = error
        finally:
            done.set()
            connections.close_all()

    def arrive() -> None:
        try:
            answers[1] = second()
        except Exception as error:
            answers[1] = error
        finally:
            connections.close_all()

    holder = threading.Thread(target=hold)
    holder.start()
    assert done.wait(30)
    arriver = threading.Thread(target=arrive)
    arriver.start()
    deadline = time.monotonic() + 20
    while arriver.is_alive() and not blocked() and time.monotonic() < deadline:
        time.sleep(0.01)
    go.set()
    holder.join(30)
    arriver.join(30)
    assert not holder.is_alive()
    assert not arriver.is_alive()
    return answers
