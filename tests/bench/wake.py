"""From the wish to the work: how long a run waits between its wake and its start, and how long a
token takes from the provider to a browser."""

from __future__ import annotations

import asyncio
import time

from tests.bench.report import Table, quantiles
from tests.bench.world import World, world

SAMPLES = 60
LIVE = 300


async def task(the: World, prompt: str, agent: int = 0) -> str:
    """Start one task by the integration call; the id of its run."""
    client = the.client()
    answer = await client.request(
        "POST",
        "/api/agent-tasks",
        {"agentId": str(the.agents[agent].id), "prompt": prompt},
    )
    await client.close()
    assert answer.status == 202, answer.body
    return str(answer.json()["runId"])  # type: ignore[index]


async def wakes(the: World) -> list[str]:
    ids = []
    for number in range(SAMPLES):
        ids.append(await task(the, f"[[mock:text=ok;chunks=1]] wake number {number}", agent=1))
        await asyncio.sleep(0.1)
    return ids


def waits(ids: list[str]) -> list[float]:
    """Seconds from the wake to the start, for runs that have all started."""
    from agents.models import HeartbeatRun

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        rows = list(
            HeartbeatRun.objects.filter(id__in=ids, started_at__isnull=False).values_list(
                "created_at", "started_at"
            )
        )
        if len(rows) == len(ids):
            return [(started - created).total_seconds() for created, started in rows]
        time.sleep(0.2)
    raise AssertionError(f"{len(rows)} of {len(ids)} runs have started")


async def token_delays(the: World) -> list[float]:
    """Seconds from the provider's write to the event in a client, for every token of one run."""
    run = await task(the, "[[mock:clock=1;chunks=100;delay=0.05]] tell the time again", agent=1)
    delays: list[float] = []
    client = the.client()
    async for _, event, data in client.events(f"/api/heartbeat-runs/{run}/stream"):
        if event == "text":
            heard = time.time()
            delays += [heard - float(stamp) for stamp in str(data["text"]).split()]
        if event == "done":
            break
    await client.close()
    assert len(delays) == 100, f"{len(delays)} tokens of 100 arrived"
    return delays


def bench() -> Table:
    table = Table(
        name="wake",
        title="Wake to run start, and token to browser",
        columns=("what", "live streams", "samples", "p50 ms", "p95 ms", "p99 ms"),
        notes=[
            "Wake: from the queued row to the claim. Token: from the provider's write to the "
            "event's arrival in an event-stream client, through PostgreSQL; output is written "
            "every 100 ms, so half of that is the floor."
        ],
    )
    with world(agents=2, runs_per_agent=1000, PAPERCLIP_SHIFTS="2") as the:
        for live in (0, LIVE):
            if live:
                long = "[[mock:chunks=1200;delay=0.05]] keep talking please"
                for _ in range(live):
                    asyncio.run(task(the, long))
                time.sleep(5)
            ids = asyncio.run(wakes(the))
            table.add("wake to start", live, len(ids), *quantiles(waits(ids)))
            delays = asyncio.run(token_delays(the))
            table.add("token to browser", live, len(delays), *quantiles(delays))
    return table
