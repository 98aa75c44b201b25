"""Is a cluster of background workers only alive, or at work? Asked from outside, of the database.

django-q2 does not notice when the death of an idle worker has locked the queue of all others, nor
when results are no longer taken. So a canary goes the whole way: rung for here, taken from the
broker, carried out by a worker of this instance, seen in a row, and gone from the broker.
"""

import contextlib
import logging
import time

import psycopg
from django.conf import settings
from django.db import connections

from paperclip.engine import schedule

SILENCE_SECONDS: float = settings.WATCHDOG_SECONDS
RING_AFTER_SECONDS = 2  # a cluster that has just started still finds the bell of its start
CANARY_SPACING_SECONDS = 10
CLOCKS_APART_SECONDS = 30  # how far a maker's clock may be ahead of the database's

logger = logging.getLogger(__name__)

_AGE = "SELECT extract(epoch FROM clock_timestamp() - max(beat_at))"
_BEACON = f"{_AGE} FROM agents_beacon WHERE name = %(name)s"
_SHIFT = f"{_AGE} FROM agents_worker WHERE instance = %(instance)s"
_LIVE = """
SELECT count(*), coalesce(sum(running), 0) FROM agents_worker
WHERE instance = %(instance)s AND lease_expires_at > clock_timestamp()
"""
_DRAIN = "UPDATE agents_worker SET draining = true WHERE instance = %(instance)s"
# The ORM broker locks a task when it is taken, until it may be tried again, and deletes it when
# its result is in. What was taken long ago, by whom runs since before, is never acknowledged. A
# task that nobody has taken yet is "locked" until the moment it was made, by its maker's clock:
# whoever has run for longer than a lock lasts must not take that for the end of a lock.
_UNACKNOWLEDGED = """
SELECT count(*) FROM (
    SELECT 1 FROM django_q_ormq WHERE key = 'default' AND lock BETWEEN
        clock_timestamp() + make_interval(secs => greatest(%(retry)s - %(alive)s, %(apart)s))
        AND clock_timestamp() + make_interval(secs => %(retry)s - %(silence)s)
    LIMIT 10) stuck
"""


class _Since:
    """Since when something holds without a break (monotonic seconds)."""

    def __init__(self) -> None:
        self._began: float | None = None

    def note(self, holds: bool) -> float:
        """Seconds for which it has held up to now, this look included."""
        now = time.monotonic()
        if not holds:
            self._began = None
            return 0.0
        self._began = self._began or now
        return now - self._began


_short_handed = _Since()
_canary_rung_at = float("-inf")


def default_cluster_ails(alive_seconds: float, instance: str) -> str | None:
    """Says what is wrong when no task of this instance's default cluster has left a mark for
    minutes, or when what it has done is never acknowledged."""
    name = schedule.beacon(instance)
    age = _ask(_BEACON, {"name": name})
    if age is None:
        return None
    if alive_seconds > RING_AFTER_SECONDS and (age[0] is None or age[0] > SILENCE_SECONDS / 3):
        _ring_canary()
    # A cluster that was started again has the same time as one that has gone silent.
    if alive_seconds < SILENCE_SECONDS:
        return None
    if age[0] is None or age[0] > SILENCE_SECONDS:
        return f"has finished no task for {SILENCE_SECONDS:g} seconds"
    if not settings.REDIS_URL:
        values = {
            "retry": settings.Q_CLUSTER["retry"],
            "alive": alive_seconds,
            "silence": SILENCE_SECONDS,
            "apart": CLOCKS_APART_SECONDS,
        }
        stuck = _ask(_UNACKNOWLEDGED, values)
        if stuck is not None and stuck[0]:
            return f"acknowledges no task any more (at least {stuck[0]})"
    return None


def dispatch_cluster_ails(alive_seconds: float, instance: str) -> str | None:
    """Says what is wrong when this instance's shifts have given no sign of life for minutes, or
    when some have been missing for as long and no run would be cut by a new start.

    Until then it keeps bells waiting for those that may be missing.
    """
    live = _ask(_LIVE, {"instance": instance})
    if live is None:
        return None
    missing = _short_handed.note(live[0] < settings.SHIFTS)
    if alive_seconds > RING_AFTER_SECONDS:
        keep_bells_waiting()
    if alive_seconds < SILENCE_SECONDS:
        return None
    age = _ask(_SHIFT, {"instance": instance})
    if age is not None and (age[0] is None or age[0] > SILENCE_SECONDS):
        return f"has had no shift for {SILENCE_SECONDS:g} seconds"
    if missing > SILENCE_SECONDS and not live[1]:
        return f"answers no bell: {live[0]} of {settings.SHIFTS} shifts"
    return None


def keep_bells_waiting() -> bool:
    """Sees to it that the next free worker finds a bell at once; says whether it could.

    A killed worker takes its bell along, and another shift is to be there within seconds, when
    the dead one's lease still looks alive. Bells that nobody needs wait, a few, and cost nothing.
    """
    try:
        schedule.ring()
    except schedule.away() as error:
        logger.warning("The watchdog cannot ring for a shift: %s", error)
        return False
    finally:
        # The next look may find another server there.
        connections.close_all()
    return True


def _ring_canary() -> None:
    """One more canary, since another instance's cluster may have taken the last one."""
    global _canary_rung_at
    now = time.monotonic()
    if now - _canary_rung_at < min(CANARY_SPACING_SECONDS, SILENCE_SECONDS / 9):
        return
    _canary_rung_at = now
    try:
        schedule.ring_canary()
    except schedule.away() as error:
        logger.warning("The watchdog cannot send a canary: %s", error)
    finally:
        connections.close_all()


def drain(instance: str) -> None:
    """Asks the shifts of this instance to put their runs down and to end."""
    # The database may be the reason for the stop; the shifts then end with their processes.
    with contextlib.suppress(psycopg.Error), _connection() as connection:
        connection.execute(_DRAIN, {"instance": instance})
        connection.execute("SELECT pg_notify('paperclip_drain', %s)", [instance])


def _ask(query: str, values: dict[str, object]) -> tuple[float, ...] | None:
    """One row; None without a database, where nobody can work and a restart would not help."""
    try:
        with _connection() as connection:
            return connection.execute(query, values).fetchone()
    except psycopg.Error as error:
        logger.warning("The watchdog cannot ask the database: %s", error)
        return None


def _connection() -> psycopg.Connection[tuple[float, ...]]:
    return psycopg.connect(
        settings.DIRECT_DSN, autocommit=True, connect_timeout=3, options="-c statement_timeout=3s"
    )
