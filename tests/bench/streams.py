"""How many live streams one shift carries: processor, memory, delay to the commit, loss."""

from __future__ import annotations

import asyncio
import time

from tests.bench.report import Table
from tests.bench.wake import task
from tests.bench.world import World, world

TOKENS, DELAY = 400, 0.05


async def start(the: World, count: int) -> list[str]:
    prompt = f"[[mock:clock=1;chunks={TOKENS};delay={DELAY}]] talk for twenty seconds"
    return [await task(the, prompt) for _ in range(count)]


def tokens_written(ids: list[str]) -> int:
    from agents.models import RunEvent

    texts = RunEvent.objects.filter(run_id__in=ids, kind="text").values_list("text", flat=True)
    return sum(len(text.split()) for text in texts)


def measure(the: World, count: int) -> tuple[object, ...]:
    from agents.models import HeartbeatRun

    ids = asyncio.run(start(the, count))
    time.sleep(4)
    processes = the.processes("qcluster dispatch")
    for process in processes:
        process.cpu_percent()
    time.sleep(8)
    cpu = sum(process.cpu_percent() for process in processes)
    resident = max(process.memory_info().rss for process in processes) / 2**20
    deadline = time.monotonic() + 120
    ended = HeartbeatRun.objects.filter(id__in=ids, status="succeeded")
    while time.monotonic() < deadline and ended.count() < count:
        time.sleep(0.5)
    lost = count * TOKENS - tokens_written(ids)
    return (count, ended.count(), lost, f"{cpu:.0f} %", f"{resident:.0f}")


def bench() -> Table:
    table = Table(
        name="streams",
        title=f"Live streams in one shift, {1 / DELAY:.0f} tokens a second each",
        columns=(
            "streams",
            "succeeded",
            "tokens lost",
            "processor of its cluster",
            "resident MiB of the shift",
        ),
        notes=["100 % is one core. How long a token takes is in the table of wakes."],
    )
    with world(
        agents=1, runs_per_agent=1000, PAPERCLIP_SHIFTS="1", PAPERCLIP_SHIFT_CAPACITY="600"
    ) as the:
        for count in (50, 200, 500):
            table.add(*measure(the, count))
    return table
