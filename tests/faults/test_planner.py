"""A database that nobody vacuums: dead rows by the million, statistics of an empty table."""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from agents import runs, workers
from agents.models import HeartbeatRun
from issues.models import Issue
from paperclip.engine import upkeep
from tests import factories
from tests.faults import company as firm
from tests.faults.server import OwnServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

AGENTS = 200
CLAIMS = 60
A_MINUTE = 12_000  # runs, which is 200 a second

_NEVER = """
ALTER TABLE agents_heartbeatrun SET (autovacuum_enabled = off);
ALTER TABLE issues_issue SET (autovacuum_enabled = off);
"""
# One run of each agent at a time is queued, taken up and ended: three versions of its row, of which
# two are dead, also in the small indexes of what is queued and what is running.
_CHURN = (
    """
    INSERT INTO agents_heartbeatrun (id, company_id, agent_id, status, priority, source, reason,
        wake_count, comment_ids, payload, not_before, attempt, created_at, epoch, adapter_type,
        model, cancel_reason, session, code, message, summary, result, input_tokens,
        cached_tokens, output_tokens, cost_micros, unpriced_calls)
    SELECT gen_random_uuid(), company_id, id, 'queued', 2, 'timer', 'heartbeat_timer', 1, '{}',
        '{}', now(), 1, now(), 0, 'quick', '', '', '{}', '', '', '', '{}', 0, 0, 0, 0, 0
    FROM agents_agent
    """,
    """
    UPDATE agents_heartbeatrun SET status = 'running', epoch = 1, started_at = now()
    WHERE status = 'queued'
    """,
    """
    UPDATE agents_heartbeatrun SET status = 'succeeded', epoch = 2, finished_at = now()
    WHERE status = 'running'
    """,
)


@pytest.mark.fault("T22", "nobody vacuums, and the statistics are from when it was empty")
@pytest.mark.parametrize(
    ("churned", "a_minute", "most_blocks"),
    [
        (20_000, None, 3_000),
        (20_000, A_MINUTE, 2_000),
        pytest.param(
            firm.scaled(1_000_000),
            A_MINUTE,
            2_000,
            marks=[pytest.mark.faults_long, pytest.mark.timeout(1_800)],
        ),
    ],
)
def test_claims_and_fences_find_their_rows_among_the_dead(
    own_server: OwnServer,
    figures: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    churned: int,
    a_minute: int | None,
    most_blocks: int,
) -> None:
    """Alone, and with the minute's round, which goes on meanwhile and clears what nobody clears: a
    claim costs the same then, however much was churned before."""
    company = factories.company("Acme", "ACM")
    agents = firm.quick_staff(company, AGENTS, runs_each=1_000)
    monkeypatch.setattr(upkeep, "SPACING_SECONDS", 0)  # a minute goes by in seconds here
    cleared = 0
    with connection.cursor() as cursor:
        cursor.execute(_NEVER)
        cursor.execute("ANALYZE")
        for done in range(0, churned, AGENTS):
            for statement in _CHURN:
                cursor.execute(statement)
            if a_minute and done and done % a_minute == 0:
                cursor.execute("SELECT pg_stat_force_next_flush()")
                cleared += upkeep.clear()
    firm.give_many(agents, 10 * CLAIMS)
    worker_id = workers.register(instance="T22", slot=0, pid=os.getpid(), capacity=10_000)
    took, blocks, claimed = [], [], []
    for _ in range(CLAIMS):
        before, began = _blocks(), time.perf_counter()
        batch = runs.claim(worker_id=worker_id, limit=10)
        took.append((time.perf_counter() - began) * 1_000)
        blocks.append(_blocks() - before)
        claimed += batch
    figures.update(
        cleared=cleared,
        dead_versions=_dead(),
        claims=len(claimed),
        claim_p50_ms=round(statistics.median(took), 1),
        claim_p95_ms=round(statistics.quantiles(took, n=20)[-1], 1),
        blocks_a_claim=round(statistics.median(blocks)),
    )
    assert len({run.run_id for run in claimed}) == len(claimed) == 10 * CLAIMS
    # A claim of ten looks at its own rows, however many dead ones lie beside them.
    assert statistics.median(blocks) < most_blocks
    assert bool(cleared) == bool(a_minute and churned > a_minute)
    for statement in _fenced(claimed[0]):
        text = _plan(*statement)
        assert "Index Scan using agents_heartbeatrun_pkey" in text, text
        assert "Seq Scan on agents_heartbeatrun" not in text, text
    assert HeartbeatRun.objects.filter(status="running").count() == len(claimed)
    assert Issue.objects.filter(runs__status="running").distinct().count() == len(claimed)


def _fenced(run: runs.Claimed) -> list[tuple[str, dict[str, Any]]]:
    """The statements under the fence: one that changes a running run, one that ends it."""
    values = {
        "run_id": run.run_id,
        "epoch": run.epoch,
        "status": "succeeded",
        "code": "",
        "message": "",
        "summary": "",
        "result": "{}",
        "model": "",
        "session": "{}",
        "activity": "[]",
        "activity_id": run.run_id,
        "now": timezone.now(),
    }
    acted = (
        "UPDATE agents_heartbeatrun SET acted_at = clock_timestamp()"
        " WHERE id = %(run_id)s AND epoch = %(epoch)s"
    )
    return [(acted, values), (runs._FINISH, values)]


def _plan(statement: str, values: dict[str, Any]) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}", values)
        return "\n".join(row[0] for row in cursor.fetchall())


def _blocks() -> int:
    """Blocks that this connection has looked at in the tables of runs, with their indexes."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)"
            " FROM pg_statio_user_tables WHERE relname = 'agents_heartbeatrun'"
        )
        return int(cursor.fetchone()[0] or 0)


def _dead() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = %s", ["agents_heartbeatrun"]
        )
        return int(cursor.fetchone()[0])
