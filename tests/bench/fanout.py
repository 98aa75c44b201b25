"""What five hundred open tabs cost: each follows a run of its own, and all are written at once."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from datetime import datetime

from companies import live
from tests.bench.client import Client
from tests.bench.report import Table, quantiles
from tests.bench.world import World, world

CLIENTS = 500
FLUSHES, SPACING_SECONDS = 60, 0.2  # 500 rows five times a second: 2,500 events a second
PATIENCE_SECONDS = 30

_RUNS = """
INSERT INTO agents_heartbeatrun (id, company_id, agent_id, status, priority, source, reason,
    wake_count, comment_ids, payload, not_before, attempt, created_at, epoch, adapter_type, model,
    started_at, lease_expires_at, cancel_reason, session, code, message, summary, result,
    input_tokens, cached_tokens, output_tokens, cost_micros, unpriced_calls)
SELECT uuidv7(), %(company)s, %(agent)s, 'running', 2, 'on_demand', 'manual', 1, '{}', '{}', now(),
    1, now(), 1, 'openai', 'mock', now(), now() + interval '1 hour', '', '{}', '', '', '', '{}', 0,
    0, 0, 0, 0
FROM generate_series(1, %(count)s::int) RETURNING id
"""
_FLUSH = """
INSERT INTO agents_runevent (run_id, company_id, run_created_at, seq, epoch, kind, text, at)
SELECT id, company_id, created_at, %(seq)s::int, 1, 'text', 'Twenty more tokens of an answer. ',
    clock_timestamp()
FROM agents_heartbeatrun WHERE id = ANY(%(runs)s)
"""
_TELL = "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS p (payload)"


def begin_runs(the: World) -> list[uuid.UUID]:
    from django.db import connection

    values = {"company": the.company.id, "agent": the.agents[0].id, "count": CLIENTS}
    with connection.cursor() as cursor:
        cursor.execute(_RUNS, values)
        return [row[0] for row in cursor.fetchall()]


def write(company: uuid.UUID, runs: list[uuid.UUID]) -> None:
    """What a shift's writer does: all rows in one statement, then what has news, packed."""
    from django.db import connection

    payloads = live.encode([(str(company), "run", str(run)) for run in runs])
    due = time.monotonic()
    try:
        with connection.cursor() as cursor:
            for seq in range(1, FLUSHES + 1):
                cursor.execute(_FLUSH, {"seq": seq, "runs": runs})
                cursor.execute(_TELL, [live.LIVE_CHANNEL, payloads])
                due += SPACING_SECONDS
                time.sleep(max(0.0, due - time.monotonic()))
    finally:
        connection.close()


async def follow(client: Client, run: uuid.UUID) -> list[float]:
    """The delays of a run's events, in seconds, until all have come or patience ends."""
    delays: list[float] = []

    async def read() -> None:
        async for _, kind, data in client.events(f"/api/heartbeat-runs/{run}/stream"):
            if kind == "text":
                delays.append(time.time() - datetime.fromisoformat(data["at"]).timestamp())
                if len(delays) == FLUSHES:
                    return

    async with asyncio.timeout(FLUSHES * SPACING_SECONDS + PATIENCE_SECONDS):
        try:
            await read()
        finally:
            await client.close()
    return delays


async def measure(the: World, table: Table) -> None:
    runs = await asyncio.to_thread(begin_runs, the)
    (web,) = [p for p in the.processes("web") if not p.children()]
    idle = web.memory_full_info()
    tasks = []
    for run in runs:  # a crowd, not a stampede
        tasks.append(asyncio.create_task(follow(the.client(), run)))
        await asyncio.sleep(0.01)
    await asyncio.sleep(3)
    before, begun = web.cpu_times(), time.monotonic()
    thread = threading.Thread(target=write, args=(the.company.id, runs))
    thread.start()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    took, after, held = time.monotonic() - begun, web.cpu_times(), web.memory_full_info()
    await asyncio.to_thread(thread.join)
    heard = [end if isinstance(end, list) else [] for end in ends]
    cpu = after.user + after.system - before.user - before.system
    table.add(
        CLIENTS,
        f"{sum(map(len, heard)) / took:,.0f}",
        sum(len(one) < FLUSHES for one in heard),
        f"{100 * cpu / took:.0f} %",
        f"{idle.rss / 2**20:.0f}",
        f"{held.rss / 2**20:.0f}",
        *quantiles([delay for one in heard for delay in one]),
    )


def bench() -> Table:
    table = Table(
        name="fanout",
        title="Open streams: one web process, a run each, five writes a second in every run",
        columns=(
            "clients",
            "events/s",
            "clients short",
            "processor of the web process",
            "resident MiB before",
            "resident MiB with all",
            "p50 ms",
            "p95 ms",
            "p99 ms",
        ),
        notes=[
            "100 % is one core. The delay goes from the row's insertion to its arrival in the"
            " client; clients, writer and database share the machine."
        ],
    )
    with world(agents=1, PAPERCLIP_SHIFTS="0", PAPERCLIP_WEB_WORKERS="1") as the:
        asyncio.run(measure(the, table))
    return table
