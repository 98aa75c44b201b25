"""How many live streams one shift carries: processor, memory, delay to the commit, loss."""

from __future__ import annotations

import asyncio
import time

import psutil

from tests.bench.report import Table, quantiles
from tests.bench.wake import task
from tests.bench.world import World, world

TOKENS, DELAY = 400, 0.05


async def start(the: World, count: int) -> list[str]:
    prompt = f"[[mock:clock=1;chunks={TOKENS};delay={DELAY}]] talk for twenty seconds"
    return [await task(the, prompt) for _ in range(count)]


def shift_process(the: World) -> psutil.Process:
    """The worker that carries the shift: the busiest of its cluster."""
    return max(the.processes("qcluster dispatch"), key=lambda p: sum(p.cpu_times()[:2]))


def delays_to_commit(ids: list[str]) -> list[float]:
    from agents.models import RunEvent

    delays: list[float] = []
    for text, at in RunEvent.objects.filter(run_id__in=ids, kind="text").values_list("text", "at"):
        delays += [at.timestamp() - float(stamp) for stamp in text.split()]
    return delays


def measure(the: World, count: int) -> tuple[object, ...]:
    from agents.models import HeartbeatRun

    ids = asyncio.run(start(the, count))
    time.sleep(4)
    process = shift_process(the)
    process.cpu_percent()
    time.sleep(8)
    cpu, resident = process.cpu_percent(), process.memory_info().rss / 2**20
    deadline = time.monotonic() + 120
    ended = HeartbeatRun.objects.filter(id__in=ids, status="succeeded")
    while time.monotonic() < deadline and ended.count() < count:
        time.sleep(0.5)
    delays = delays_to_commit(ids)
    lost = count * TOKENS - len(delays)
    return (count, ended.count(), lost, f"{cpu:.0f} %", f"{resident:.0f}", *quantiles(delays))


def bench() -> Table:
    table = Table(
        name="streams",
        title=f"Live streams in one shift, {1 / DELAY:.0f} tokens a second each",
        columns=(
            "streams",
            "succeeded",
            "tokens lost",
            "processor of the shift",
            "resident MiB",
            "p50 ms",
            "p95 ms",
            "p99 ms",
        ),
        notes=["Delay: from the provider's write to the row's moment in PostgreSQL."],
    )
    with world(
        agents=1, runs_per_agent=1000, PAPERCLIP_SHIFTS="1", PAPERCLIP_CAPACITY="600"
    ) as the:
        for count in (50, 200, 500):
            table.add(*measure(the, count))
    return table
