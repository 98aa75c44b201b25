"""How long the pages and the panels of the home take beside months of work."""

from __future__ import annotations

import asyncio

from tests.bench import crowd
from tests.bench.client import Answer, Client, Load, closed_loop
from tests.bench.report import Table, quantiles, spread
from tests.bench.world import World, world

AGENTS = 50
SECONDS, ROUNDS = 1.5, 3
PANELS = ("glance", "running", "needs", "waiting", "money", "recent")


def session_cookie(the: World) -> str:
    """A signed-in session, made as signing in makes one."""
    from importlib import import_module

    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY

    user = the.company.members.get()
    store = import_module(settings.SESSION_ENGINE).SessionStore()
    store[SESSION_KEY] = str(user.pk)
    store[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store.create()
    return f"{settings.SESSION_COOKIE_NAME}={store.session_key}"


async def measure(the: World, table: Table, cookie: str) -> None:
    prefix = f"/c/{the.company.issue_prefix}"
    pages = {
        "company home": f"{prefix}/",
        "issues list": f"{prefix}/issues/",
        "its part that a change swaps": f"{prefix}/issues/",
        "board": f"{prefix}/issues/board",
        "one issue": f"{prefix}/issues/BEN-5000",
        "agents": f"{prefix}/agents/",
        "costs": f"{prefix}/costs/",
    }
    for label, path in pages.items():
        head = SWAP if "swaps" in label else ""
        for clients in (1, 50):
            await row(the, table, cookie, label, [path], clients, head)
    panels = [f"{prefix}/panels/{name}" for name in PANELS]
    for name, path in zip(PANELS, panels, strict=True):
        await row(the, table, cookie, f"panel {name}", [path], 1, "hx-request: true\r\n")
    label = "all six panels, side by side"
    await row(the, table, cookie, label, panels, len(panels), "hx-request: true\r\n")


SWAP = "hx-request: true\r\nhx-target: issue-list\r\n"


async def row(
    the: World, table: Table, cookie: str, label: str, paths: list[str], clients: int, head: str
) -> None:
    """Load a page, or several by turns, with so many viewers who each wait for their answer."""

    def make() -> Client:
        return Client(the.port, {"cookie": cookie})

    async def act(client: Client, number: int) -> Answer:
        path = paths[(number // 1_000_000 + number) % len(paths)]
        return await client.request("GET", path, extra=head)

    loads: list[Load] = [
        await closed_loop(clients=clients, seconds=SECONDS, make=make, act=act, expected=(200,))
        for _ in range(ROUNDS)
    ]
    failures = [failure for load in loads for failure in load.failures]
    assert not failures, failures[:3]
    table.add(
        label,
        clients,
        spread([load.rate for load in loads]),
        *quantiles([duration for load in loads for duration in load.durations]),
        f"{loads[0].bytes / 1024:,.0f}",
    )


def bench() -> Table:
    table = Table(
        name="pages",
        title=f"Pages beside {crowd.ISSUES:,} issues, {AGENTS} agents and {crowd.RUNS:,} runs",
        columns=("page", "viewers", "pages/s", "p50 ms", "p95 ms", "p99 ms", "KiB"),
        notes=["Two web workers; the load generator shares the machine."],
    )
    with world(agents=AGENTS, PAPERCLIP_SHIFTS="0", PAPERCLIP_WEB_WORKERS="2") as the:
        from django.utils import timezone

        crowd.fill(the.company, the.agents, now=timezone.now())
        asyncio.run(measure(the, table, session_cookie(the)))
    return table
