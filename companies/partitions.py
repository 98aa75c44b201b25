"""Monthly range partitions of the big tables: made ahead, with a DEFAULT that must stay empty.

Used by the migrations that create the tables and by the nightly task. Retiring a partition is
the archive's business (`billing/archive.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import connections

AHEAD = 3  # months kept ready; an alarm is due when fewer than two are left


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A partitioned table and the column that decides where a row lies."""

    table: str
    column: str


TABLES = (
    Partitioned("companies_activity", "occurred_at"),
    Partitioned("agents_runevent", "run_created_at"),
    Partitioned("billing_costevent", "occurred_at"),
)


def month_start(moment: datetime) -> datetime:
    """The first instant of the moment's month, UTC."""
    return moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def next_month(start: datetime) -> datetime:
    return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)


def ensure(table: str, *, now: datetime, ahead: int = AHEAD, using: str = "default") -> list[str]:
    """Create what is missing of this month and the `ahead` next ones; return the new names.

    Safe to call from several processes at once: an advisory lock lets one work at a time.
    """
    made = []
    start = month_start(now)
    with connections[using].cursor() as cursor:
        for _ in range(ahead + 1):
            name, end = f"{table}_{start:%Y_%m}", next_month(start)
            cursor.execute("SELECT to_regclass(%s)", [name])
            if cursor.fetchone() == (None,):
                cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [table])
                # Names come from TABLES and dates, never from outside.
                cursor.execute(
                    f'CREATE TABLE IF NOT EXISTS "{name}" PARTITION OF "{table}" '
                    f"FOR VALUES FROM ('{start.isoformat()}') TO ('{end.isoformat()}')"
                )
                made.append(name)
            start = end
    return made


def ensure_all(*, now: datetime) -> list[str]:
    """Partitions ahead for every big table; the nightly task's call."""
    return [name for table in TABLES for name in ensure(table.table, now=now)]
