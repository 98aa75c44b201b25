"""What PostgreSQL says: connections, indexes, partitions, growth, dead rows, the replica."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.apps import apps
from django.conf import settings
from django.utils import timezone

from billing import replica
from companies import partitions
from paperclip.scaling.reading import Level, Reading, graded, listed, one, rows, size

MOST_TABLES = 500
# Few dead rows matter to nobody, whatever their share.
DEAD_ROWS_THAT_COUNT = 20_000
BIG_TABLE_BYTES = 100 * 2**30
# Reading a small table from end to end is the quickest way.
SMALL_TABLE_ROWS = 20_000


def readings() -> Iterator[Reading]:
    yield _connections()
    yield _indexes()
    yield from _plans()
    yield _partitions_ahead(timezone.now())
    yield _strays()
    yield _dead_rows()
    yield _growth()
    yield _replica()


def _connections() -> Reading:
    used, most = one(
        "SELECT count(*), current_setting('max_connections')::int - "
        "current_setting('superuser_reserved_connections')::int FROM pg_stat_activity"
        " WHERE backend_type = 'client backend'"
    )
    by = rows(
        "SELECT coalesce(nullif(application_name, ''), 'other'), count(*) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 6"
    )
    share = 100 * used / most
    return Reading(
        "Connections",
        graded(share, amber=60, red=85),
        f"{used} of {most} ({share:.0f} %): " + ", ".join(f"{name} {n}" for name, n in by),
        "A process that gets none cannot work; each costs the server some megabytes.",
        "Put pgbouncer in front (docs/deploy/pgbouncer.ini), or raise max_connections."
        if share >= 60
        else "",
    )


def _indexes() -> Reading:
    """Every index and rule that the models name is there, and valid."""
    wanted = {
        item.name
        for model in apps.get_models()
        if model._meta.managed
        for item in (*model._meta.indexes, *model._meta.constraints)
        if item.name
    }
    found: dict[str, bool] = dict(
        rows(
            "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        )
    )
    rules = {name for (name,) in rows("SELECT conname FROM pg_constraint")}
    missing = sorted(wanted - found.keys() - rules)
    broken = sorted(name for name, valid in found.items() if not valid)
    bad = [*missing, *broken]
    return Reading(
        "Indexes",
        Level.RED if bad else Level.GREEN,
        f"missing or invalid: {listed(bad)}" if bad else f"all {len(wanted)} are there and valid",
        "A missing index makes a statement read a whole table; a missing rule lets doubles in.",
        "manage.py migrate; an invalid one: REINDEX INDEX CONCURRENTLY." if bad else "",
    )


# The statements that everything waits for, as they are at their core.
_HOT = {
    "what may start next": (
        "agents_heartbeatrun",
        "SELECT id FROM agents_heartbeatrun WHERE status = 'queued'"
        " AND not_before <= clock_timestamp() ORDER BY priority, not_before, id LIMIT 50",
    ),
    "what a company's issues are": (
        "issues_issue",
        "SELECT id FROM issues_issue WHERE company_id = (SELECT id FROM companies_company LIMIT 1)"
        " AND status IN ('todo', 'in_progress') ORDER BY priority, updated_at DESC, id LIMIT 50",
    ),
    "what a run has said": (
        "agents_runevent",
        "SELECT seq FROM agents_runevent WHERE run_id = gen_random_uuid()"
        " AND run_created_at = clock_timestamp() AND seq > 5 ORDER BY seq LIMIT 200",
    ),
}


def _plans() -> Iterator[Reading]:
    for what, (table, statement) in _HOT.items():
        plan = "\n".join(line for (line,) in rows(f"EXPLAIN {statement}"))
        ((count,),) = rows(
            "SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint FROM pg_class c"
            " WHERE c.relname = %s OR c.oid IN (SELECT inhrelid FROM pg_inherits"
            " WHERE inhparent = to_regclass(%s))",
            table,
            table,
        )
        reads_all = f"Seq Scan on {table}" in plan and count > SMALL_TABLE_ROWS
        yield Reading(
            f"Plan: {what}",
            Level.RED if reads_all else Level.GREEN,
            f"reads all of {count:,} rows" if reads_all else f"uses an index ({count:,} rows)",
            "It runs many times a second and must not depend on how much there is.",
            f"ANALYZE {table}; then look at the indexes above." if reads_all else "",
        )


def _partitions_ahead(now: datetime) -> Reading:
    least, of = 99, ""
    for table in partitions.TABLES:
        names = {
            name
            for (name,) in rows(
                "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
                " WHERE i.inhparent = to_regclass(%s)",
                table.table,
            )
        }
        ahead, start = 0, partitions.next_month(partitions.month_start(now))
        while f"{table.table}_{start:%Y_%m}" in names:
            ahead, start = ahead + 1, partitions.next_month(start)
        if ahead < least:
            least, of = ahead, table.table
    return Reading(
        "Months ahead",
        Level.GREEN if least >= 2 else Level.AMBER if least == 1 else Level.RED,
        f"{least} partitions are ready ({of} has the fewest)",
        "Without next month's partition its rows fall into the one for strays.",
        "" if least >= 2 else "Is the tasks process alive? Its nightly task makes them.",
    )


def _strays() -> Reading:
    found = [
        table.table
        for table in partitions.TABLES
        if rows("SELECT to_regclass(%s)", f"{table.table}_default") != [(None,)]
        and one(f'SELECT EXISTS (SELECT 1 FROM "{table.table}_default")')[0]  # noqa: S608
    ]
    return Reading(
        "Strays",
        Level.RED if found else Level.GREEN,
        f"rows outside all months in {listed(found)}" if found else "no row outside the months",
        "They cannot be archived, and their month's partition cannot be made.",
        "manage.py billing_check tells of costs; move the rows by hand." if found else "",
    )


def _dead_rows() -> Reading:
    found = rows(
        "SELECT relname, n_dead_tup, 100 * n_dead_tup / greatest(n_live_tup + n_dead_tup, 1)"
        " FROM pg_stat_user_tables WHERE n_dead_tup > %s ORDER BY 3 DESC, 1 LIMIT 5",
        DEAD_ROWS_THAT_COUNT,
    )
    worst = max((share for _, _, share in found), default=0)
    level = graded(worst, amber=30, red=60)
    return Reading(
        "Dead rows",
        level,
        ", ".join(f"{name} {share} %" for name, _, share in found) or "autovacuum keeps up",
        "Rows that are gone but not cleared away slow every claim down.",
        "VACUUM (ANALYZE) the table; look for a transaction that stays open." if level else "",
    )


def _growth() -> Reading:
    """Bytes of this month's partitions and how long the disk lasts at their pace."""
    total = one("SELECT pg_database_size(current_database())")[0]
    now = timezone.now()
    start = partitions.month_start(now)
    month = sum(
        one("SELECT coalesce(pg_total_relation_size(to_regclass(%s)), 0)", name)[0]
        for name in (f"{table.table}_{start:%Y_%m}" for table in partitions.TABLES)
    )
    days = max(1.0, (now - start).total_seconds() / 86_400)
    text = f"{size(total)} in all, {size(month / days)} a day this month"
    level = Level.AMBER if total > BIG_TABLE_BYTES else Level.GREEN
    if not settings.DATABASE_URL:
        import psutil

        free = psutil.disk_usage(str(settings.DATA_DIR)).free
        left = free / (month / days) if month else float("inf")
        lasts = "for years" if left > 1_000 else f"for {left:.0f} days"
        text += f"; the disk lasts {lasts}"
        level = max(level, graded(-left, amber=-30, red=-7))
    return Reading(
        "Growth",
        level,
        text,
        "Output, costs and activity are kept until their month is archived.",
        "manage.py archive, or the button under Costs." if level else "",
    )


def _replica() -> Reading:
    look = replica.look()
    if look is None:
        return Reading(
            "Read replica",
            Level.GREEN,
            "none is set",
            "Reports of many companies can be read elsewhere than where runs are claimed.",
        )
    lag = look.lag_seconds
    return Reading(
        "Read replica",
        Level.RED if lag is None else graded(lag, amber=1, red=replica.MAX_LAG_SECONDS),
        "it does not answer; reports come from the primary"
        if lag is None
        else f"{lag:.1f} s behind",
        "A replica that lags is left out, and its readers burden the primary.",
        "" if lag is not None and lag < 1 else "Look at its network and its replay.",
    )
