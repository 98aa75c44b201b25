"""Short locks, durable answers: a transaction whose row locks do not wait for the disk.

PostgreSQL keeps a transaction's locks until its commit is on disk, some milliseconds, in which a
row that everybody wants stands still. Here the commit itself does not wait; a second, empty
transaction does, after the locks are gone and together with whoever else is waiting. The caller
hears of nothing that is not on disk.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.db import DatabaseError, OperationalError, connection, transaction

T = TypeVar("T")
WAIT_MILLISECONDS = 25  # how long others may queue behind a lock that waits itself
PATIENCE_SECONDS = 120.0


@contextmanager
def transaction_with_short_locks() -> Iterator[None]:
    """Like `transaction.atomic()`. Inside a caller's transaction nothing is different.

    A single statement needs no transaction: with `synchronous_commit` off, then `until_on_disk`.
    """
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL synchronous_commit = off")
        yield
    until_on_disk()


def until_on_disk() -> None:
    """Wait until everything that this connection has committed is on disk."""
    with connection.cursor() as cursor:
        # Its own commit waits for the disk, and so for everything that was written before it.
        cursor.execute("SELECT pg_logical_emit_message(true, 'paperclip', '')")


def briefly(work: Callable[[], T]) -> T:
    """Carry out `work`, which needs a lock that stops everybody, in a transaction of its own.

    The lock is asked for briefly and often: who comes behind it waits `WAIT_MILLISECONDS` at most,
    then the work itself. Raises OperationalError when it was never free for `PATIENCE_SECONDS`.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with transaction_with_short_locks():
                with connection.cursor() as cursor:
                    cursor.execute(f"SET LOCAL lock_timeout = '{WAIT_MILLISECONDS}ms'")
                return work()
        except OperationalError as error:
            if sqlstate(error) != "55P03" or time.monotonic() > deadline:
                raise
        # Those who waited go first.
        time.sleep(random.uniform(0.02, 0.1))  # noqa: S311


def sqlstate(error: DatabaseError) -> str:
    """PostgreSQL's code of an error, empty when it did not come from there."""
    return getattr(error.__cause__, "sqlstate", None) or ""
