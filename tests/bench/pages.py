"""How long the pages take beside 10,000 issues: one viewer, then fifty."""

from __future__ import annotations

import asyncio

from tests.bench.client import Answer, Client, closed_loop
from tests.bench.report import Table, quantiles, spread
from tests.bench.world import World, world

ISSUES = 10_000
SECONDS, ROUNDS = 2.0, 3


def fill(the: World) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO issues_issue (id, company_id, number, identifier, title, description,
                status, priority, request_depth, billing_code, blocked_reason, version,
                assignee_agent_id, created_at, updated_at)
            SELECT gen_random_uuid(), %s, n, 'BEN-' || n, 'An issue of the usual length, ' || n, '',
                (ARRAY['backlog','todo','in_review','done','done'])[n %% 5 + 1], n %% 4, 0, '', '',
                1, %s, now() - n * interval '1 minute', now() - n * interval '1 minute'
            FROM generate_series(1, %s) n""",
            [the.company.id, the.agents[0].id, ISSUES],
        )
        cursor.execute("UPDATE issues_issuecounter SET last_number = %s", [ISSUES])
        cursor.execute("ANALYZE issues_issue")


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
        "board": f"{prefix}/issues/board",
        "one issue": f"{prefix}/issues/BEN-5000",
        "agents": f"{prefix}/agents/",
        "costs": f"{prefix}/costs/",
    }

    def make() -> Client:
        return Client(the.port, {"cookie": cookie})

    for label, path in pages.items():

        async def act(client: Client, number: int, path: str = path) -> Answer:
            return await client.request("GET", path)

        for clients in (1, 50):
            loads = [
                await closed_loop(
                    clients=clients, seconds=SECONDS, make=make, act=act, expected=(200,)
                )
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
                f"{loads[0].bytes / 1024:,.0f}",
            )


def bench() -> Table:
    table = Table(
        name="pages",
        title=f"Pages beside {ISSUES:,} issues",
        columns=("page", "viewers", "pages/s", "p50 ms", "p95 ms", "p99 ms", "KiB"),
        notes=["Two web workers; the load generator shares the machine."],
    )
    with world(agents=5, PAPERCLIP_SHIFTS="0", PAPERCLIP_WEB_WORKERS="2") as the:
        fill(the)
        asyncio.run(measure(the, table, session_cookie(the)))
    return table
