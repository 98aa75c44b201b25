"""Requests a second of the JSON API: closed loops of 1, 50 and 80 clients."""

from __future__ import annotations

import asyncio
import os

from tests.bench.client import Answer, Client, closed_loop
from tests.bench.report import Table, quantiles, spread
from tests.bench.world import World, world

SECONDS = 2.0
ROUNDS = 3


async def measure(the: World, table: Table) -> None:
    company, agent = the.company.id, the.agents[0].id

    async def create(client: Client, number: int) -> Answer:
        body = {"title": f"Issue {number}", "status": "todo", "assigneeAgentId": str(agent)}
        return await client.request("POST", f"/api/companies/{company}/issues", body)

    async def listing(client: Client, number: int) -> Answer:
        status = ("todo", "done", "in_progress")[number % 3]
        path = f"/api/companies/{company}/issues?limit=100&status={status}"
        return await client.request("GET", path)

    async def dashboard(client: Client, number: int) -> Answer:
        return await client.request("GET", f"/api/companies/{company}/dashboard")

    for label, act in (
        ("create an issue with its wake", create),
        ("list 100 issues", listing),
        ("dashboard", dashboard),
    ):
        for clients in (1, 50, 80):
            loads = [
                await closed_loop(clients=clients, seconds=SECONDS, make=the.client, act=act)
                for _ in range(ROUNDS)
            ]
            failures = [f for load in loads for f in load.failures]
            assert not failures, failures[:3]
            durations = [d for load in loads for d in load.durations]
            table.add(
                label,
                clients,
                spread([load.rate for load in loads]),
                *quantiles(durations),
                f"{max(load.bytes for load in loads) / 1024:,.0f}",
            )


def bench() -> Table:
    table = Table(
        name="http",
        title="The JSON API: requests a second",
        columns=("request", "clients", "requests/s", "p50 ms", "p95 ms", "p99 ms", "answer KiB"),
        notes=[
            "Server, database and load generator share the machine. Shifts are off, so that this "
            "is the cost of the requests alone; "
            f"{os.environ.get('PAPERCLIP_WEB_WORKERS', '2')} web workers."
        ],
    )
    with world(PAPERCLIP_SHIFTS="0", PAPERCLIP_WEB_WORKERS="2") as the:
        asyncio.run(measure(the, table))
    return table
