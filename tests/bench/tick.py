"""The minute's round beside a thousand open issues, and beside a million."""

from __future__ import annotations

import time
from typing import Any

from tests.bench import rows
from tests.bench.report import Table, quantiles

SIZES = (1_000, 1_000_000)
COMPANIES = 10
AGENTS_A_COMPANY = 10
SAMPLES = 20


def measure() -> tuple[int, int, list[float]]:
    """Statements of a round that finds nothing due, pages that they touch, seconds of each."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext
    from django.utils import timezone

    from paperclip.engine import tick

    for _ in range(3):
        tick.minute(now=timezone.now())
    with CaptureQueriesContext(connection) as captured:
        tick.minute(now=timezone.now())
    before = pages()
    seconds = []
    for _ in range(SAMPLES):
        began = time.perf_counter()
        tick.minute(now=timezone.now())
        seconds.append(time.perf_counter() - began)
    return len(captured), (pages() - before) // SAMPLES, seconds


def pages() -> int:
    """Pages that this session has looked at so far, of tables and indexes."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit, 0)"
            " + coalesce(idx_blks_read, 0)) FROM pg_statio_user_tables"
        )
        return int(cursor.fetchone()[0])


def bench() -> Table:
    table = Table(
        name="tick",
        title="The minute's round beside open issues",
        columns=("open issues", "statements", "pages touched", "p50 ms", "p95 ms", "p99 ms"),
        notes=[
            f"{COMPANIES * AGENTS_A_COMPANY} agents; all issues are to do, nothing is due. Timers, "
            "lost runs, budgets, reservations and what has served its time are looked at."
        ],
    )
    with rows.database():
        from django.db import connection

        rows.companies(COMPANIES, agents=AGENTS_A_COMPANY, runs_an_agent=1)
        for size in SIZES:
            with connection.cursor() as cursor:
                cursor.execute("TRUNCATE issues_issue CASCADE")
            rows.issues(size, open_every=1)
            figures: tuple[Any, ...] = measure()
            table.add(f"{size:,}", figures[0], figures[1], *quantiles(figures[2]))
    return table
