"""Processes that carry runs: registered, alive by a lease on the database's clock, retired.

Whether a worker lives is decided by its lease alone: no pids, no host names. Who knows for certain
that its process is gone may end the lease before its time.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from companies.ids import new_id

LEASE_SECONDS = 10.0
BEAT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Owned:
    """A running run of a worker, as the database has it."""

    run_id: uuid.UUID
    epoch: int
    cancelled: bool


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a sign of life. `alive` False: the lease had run out, or the row is gone.
    `at`: the time of day in the database."""

    alive: bool
    draining: bool = False
    owned: tuple[Owned, ...] = ()
    at: datetime | None = None


def register(*, instance: str, slot: int, pid: int, capacity: int) -> uuid.UUID:
    """A new worker with a fresh lease. Every start of a process is a new worker."""
    worker_id = new_id()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO agents_worker (id, instance, slot, pid, capacity, running, draining,"
            " started_at, beat_at, lease_expires_at) VALUES (%s, %s, %s, %s, %s, 0, false,"
            " clock_timestamp(), clock_timestamp(),"
            " clock_timestamp() + make_interval(secs => %s))",
            [worker_id, instance[:120], slot, pid, capacity, LEASE_SECONDS],
        )
    return worker_id


def beat(*, worker_id: uuid.UUID, running: int) -> Beat:
    """Renew the lease and learn what the worker owns. An expired lease is never renewed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agents_worker SET beat_at = clock_timestamp(), running = %s,"
            " lease_expires_at = clock_timestamp() + make_interval(secs => %s)"
            " WHERE id = %s AND lease_expires_at > clock_timestamp()"
            " RETURNING draining, clock_timestamp()",
            [running, LEASE_SECONDS, worker_id],
        )
        row = cursor.fetchone()
        if row is None:
            return Beat(alive=False)
        cursor.execute(
            "SELECT id, epoch, cancel_requested_at IS NOT NULL FROM agents_heartbeatrun"
            " WHERE worker_id = %s AND status = 'running'",
            [worker_id],
        )
        return Beat(True, row[0], tuple(Owned(*owned) for owned in cursor.fetchall()), row[1])


def time_of_day() -> datetime:
    """What time it is in the database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def drain(*, instance: str) -> int:
    """Ask all workers of an instance to claim nothing more and to end. Returns how many heard."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agents_worker SET draining = true"
            " WHERE instance = %s AND NOT draining AND lease_expires_at > clock_timestamp()",
            [instance],
        )
        return cursor.rowcount


def retire(*, worker_id: uuid.UUID) -> None:
    """A worker ends in good order: its lease ends now, so what it left is found at once."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agents_worker SET draining = true, running = 0,"
            " lease_expires_at = clock_timestamp() WHERE id = %s",
            [worker_id],
        )


def bury(*, worker_id: uuid.UUID) -> bool:
    """End the lease of a worker whose process is gone for certain, so that what it left is found at
    once. False when it had ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agents_worker SET lease_expires_at = clock_timestamp()"
            " WHERE id = %s AND lease_expires_at > clock_timestamp()",
            [worker_id],
        )
        return bool(cursor.rowcount)
