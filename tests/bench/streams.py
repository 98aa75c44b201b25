"""How many live streams one shift carries: processor, memory, delay to the commit, loss."""

from __future__ import annotations

import asyncio
import time

from tests.bench.report import Table, quantiles
from tests.bench.wake import task
from tests.bench.world import World, world

TOKENS, DELAY = 400, 0.05
PATIENCE_SECONDS = 60


async def start(the: World, count: int) -> list[str]:
    prompt = f"[[mock:clock=1;chunks={TOKENS};delay={DELAY}]] talk for twenty seconds"
    return [await task(the, prompt) for _ in range(count)]


def tokens_written(ids: list[str]) -> int:
    from agents.models import RunEvent

    texts = RunEvent.objects.filter(run_id__in=ids, kind="text").values_list("text", flat=True)
    return sum(len(text.split()) for text in texts)


def delays(seconds: float) -> list[float]:
    """Seconds from the provider's write of each token until its row can be read, as somebody sees
    who looks every 20 ms. One shift writes, so its rows appear in the order of their ids."""
    from django.db import connection

    found: list[float] = []
    until = time.monotonic() + seconds
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM agents_runevent")
        (last,) = cursor.fetchone()
        while time.monotonic() < until:
            cursor.execute(
                "SELECT id, kind, text FROM agents_runevent WHERE id > %s ORDER BY id", [last]
            )
            rows, seen = cursor.fetchall(), time.time()
            last = rows[-1][0] if rows else last
            for _, kind, text in rows:
                if kind == "text":
                    found += [seen - float(stamp) for stamp in text.split()]
            time.sleep(0.02)
    return found


def measure(the: World, count: int) -> tuple[object, ...]:
    from agents.models import HeartbeatRun

    ids = asyncio.run(start(the, count))
    waited = time.monotonic() + PATIENCE_SECONDS
    begun = HeartbeatRun.objects.filter(id__in=ids, started_at__isnull=False)
    while time.monotonic() < waited and begun.count() < count:
        time.sleep(0.2)
    taken = delays(4)
    processes = the.processes("qcluster dispatch")
    for process in processes:
        process.cpu_percent()
    time.sleep(6)
    cpu = sum(process.cpu_percent() for process in processes)
    resident = max(process.memory_info().rss for process in processes) / 2**20
    deadline = time.monotonic() + PATIENCE_SECONDS
    ended = HeartbeatRun.objects.filter(id__in=ids, status="succeeded")
    while time.monotonic() < deadline and ended.count() < count:
        time.sleep(0.5)
    lost = count * TOKENS - tokens_written(ids)
    return (count, ended.count(), lost, *quantiles(taken), f"{cpu:.0f} %", f"{resident:.0f}")


def bench() -> Table:
    table = Table(
        name="streams",
        title=f"Live streams in one shift, {1 / DELAY:.0f} tokens a second each",
        columns=(
            "streams",
            "succeeded",
            "tokens lost",
            "token to commit, p50 ms",
            "p95 ms",
            "p99 ms",
            "processor of its cluster",
            "resident MiB of the shift",
        ),
        notes=[
            "100 % is one core. Token to commit: from the provider's write until the row can be "
            "read by somebody who looks every 20 ms, over four seconds of all streams."
        ],
    )
    with world(
        agents=1, runs_per_agent=1000, PAPERCLIP_SHIFTS="1", PAPERCLIP_SHIFT_CAPACITY="600"
    ) as the:
        for count in (50, 200, 500):
            table.add(*measure(the, count))
    return table
