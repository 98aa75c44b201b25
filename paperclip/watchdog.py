"""Is a cluster of background workers only alive, or at work? Asked from outside, of the database.

django-q2 does not notice when the death of an idle worker has locked the queue of all others.
"""

import contextlib
import logging

import psycopg
from django.conf import settings
from django.db import DatabaseError, connections

from paperclip.engine import schedule

SILENCE_SECONDS = 180
RING_AFTER_SECONDS = 2  # a cluster that has just started still finds the bell of its start

logger = logging.getLogger(__name__)

_AGE = "SELECT extract(epoch FROM now() - max(beat_at))"
_BEACON = f"{_AGE} FROM agents_beacon WHERE name = 'default'"
_SHIFT = f"{_AGE} FROM agents_worker WHERE instance = %(instance)s"
_LIVE = (
    "SELECT count(*) FROM agents_worker"
    " WHERE instance = %(instance)s AND lease_expires_at > clock_timestamp()"
)
_DRAIN = "UPDATE agents_worker SET draining = true WHERE instance = %(instance)s"


def default_cluster_ails(alive_seconds: float) -> str | None:
    """Says what is wrong when no task of the default cluster has left a mark for minutes."""
    return _silent(_BEACON, {}, alive_seconds, "has finished no task for three minutes")


def dispatch_cluster_ails(alive_seconds: float, instance: str) -> str | None:
    """Says what is wrong when this instance's shifts have given no sign of life for minutes.

    Until then it rings for those that are missing.
    """
    if alive_seconds > RING_AFTER_SECONDS:
        ring_for_missing_shifts(instance)
    return _silent(
        _SHIFT, {"instance": instance}, alive_seconds, "has had no shift for three minutes"
    )


def ring_for_missing_shifts(instance: str) -> bool:
    """Rings for shifts when this instance has fewer than it should; says whether it did.

    A killed worker takes its bell along, and the minute's bell would leave the runs waiting.
    """
    try:
        with _connection() as connection:
            row = connection.execute(_LIVE, {"instance": instance}).fetchone()
        if row is None or (row[0] or 0) >= settings.SHIFTS:
            return False
        schedule.ring()
    except (psycopg.Error, DatabaseError) as error:
        logger.warning("The watchdog cannot ring for a shift: %s", error)
        return False
    finally:
        # The next look may find another server there.
        connections.close_all()
    return True


def drain(instance: str) -> None:
    """Asks the shifts of this instance to put their runs down and to end."""
    # The database may be the reason for the stop; the shifts then end with their processes.
    with contextlib.suppress(psycopg.Error), _connection() as connection:
        connection.execute(_DRAIN, {"instance": instance})
        connection.execute("SELECT pg_notify('paperclip_drain', %s)", [instance])


def _silent(query: str, values: dict[str, str], alive_seconds: float, what: str) -> str | None:
    # A cluster that was started again has the same three minutes as one that has gone silent.
    if alive_seconds < SILENCE_SECONDS:
        return None
    try:
        with _connection() as connection:
            row = connection.execute(query, values).fetchone()
    except psycopg.Error as error:
        # Without a database nobody can work; a restart would not help.
        logger.warning("The watchdog cannot ask the database: %s", error)
        return None
    age = row[0] if row else None
    return what if age is None or age > SILENCE_SECONDS else None


def _connection() -> psycopg.Connection[tuple[float | None]]:
    return psycopg.connect(
        settings.DIRECT_DSN, autocommit=True, connect_timeout=3, options="-c statement_timeout=3s"
    )
