"""Where nobody vacuums: the table of runs is cleared by the minute's round.

Each run leaves dead entries in the small indexes of what is queued and what is running, and every
claim walks over those that lie before the living. PostgreSQL's autovacuum clears them after every
few thousand; where it is off, starved, or cannot keep up, claims cost more by the hour. What is
here does nothing as long as autovacuum does its work.
"""

from __future__ import annotations

import contextlib
import logging
import time

import psycopg
from django.db import connection

from paperclip.database.address import conninfo

log = logging.getLogger(__name__)

TABLE = "agents_heartbeatrun"
DEAD_ROWS = 20_000  # ten times what autovacuum is asked to wait for
SPACING_SECONDS = 60.0  # since anybody cleared it
LONGEST_SECONDS = 20.0  # less than a task may take
PAUSE_SECONDS = 3_600.0  # after a failure: a table too large for that is for people

_NEGLECTED = """
SELECT n_dead_tup FROM pg_stat_user_tables
WHERE relid = to_regclass(%s) AND n_dead_tup > %s AND coalesce(
    greatest(last_vacuum, last_autovacuum) < clock_timestamp() - make_interval(secs => %s), true)
"""
# The indexes, too, also where few pages of the table have dead rows: it is there that they cost.
_CLEAR = f"VACUUM (ANALYZE, SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) {TABLE}"

_paused_until = float("-inf")


def clear() -> bool:
    """Vacuum the table of runs and look at it afresh, if it needs that and nobody does it. Says
    whether it did. What it may not do, or not in time, is said once an hour."""
    global _paused_until
    if connection.in_atomic_block or time.monotonic() < _paused_until:
        return False
    with connection.cursor() as cursor:
        cursor.execute(_NEGLECTED, [TABLE, DEAD_ROWS, SPACING_SECONDS])
        found = cursor.fetchone()
    if found is None:
        return False
    log.warning("autovacuum does not keep up: clearing %s dead rows of runs", found[0])
    try:
        _clear()
    except psycopg.Error as error:
        _paused_until = time.monotonic() + PAUSE_SECONDS
        log.warning("could not clear the table of runs: %s", str(error).strip())
        return False
    return True


def _clear() -> None:
    """On a connection of its own: past any pooler, outside any transaction, and bounded."""
    limit = f"-c statement_timeout={int(LONGEST_SECONDS * 1_000)}"
    address = conninfo(direct=True)
    with contextlib.closing(psycopg.connect(address, autocommit=True, options=limit)) as direct:
        direct.execute(_CLEAR)
