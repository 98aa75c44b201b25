"""Short locks, durable answers: a transaction whose row locks do not wait for the disk.

PostgreSQL keeps a transaction's locks until its commit is on disk, some milliseconds, in which a
row that everybody wants stands still. Here the commit itself does not wait; a second, empty
transaction does, after the locks are gone and together with whoever else is waiting. The caller
hears of nothing that is not on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def transaction_with_short_locks() -> Iterator[None]:
    """Like `transaction.atomic()`. Inside a caller's transaction nothing is different."""
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL synchronous_commit = off")
        yield
    with connection.cursor() as cursor:
        # Its own commit waits for the disk, and so for everything that was written before it.
        cursor.execute("SELECT pg_logical_emit_message(true, 'paperclip', '')")
