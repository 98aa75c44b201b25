"""An hour of ordinary life with a kill every half minute: does anything grow, slow or get lost?

Fifty agents, one new issue a second, two people who go through the pages, and every thirty seconds
`kill -9` of a shift, a cluster's parent or a web worker. `PAPERCLIP_SOAK_MINUTES` says how long, 60
without it. It runs only when it is asked for by name.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import psutil

from tests.bench.client import Client
from tests.bench.pages import session_cookie
from tests.bench.report import Table, percentile
from tests.bench.world import World, kind_of, world

MINUTES = float(os.environ.get("PAPERCLIP_SOAK_MINUTES", "60"))
AGENTS = 50
KILL_SECONDS = 30.0
SAMPLE_SECONDS = 10.0
SETTLED_SECONDS = 120.0  # a young process fills its caches; its memory says nothing yet
SLOPE_SECONDS = 240.0  # the shortest life of which a slope is said
PAGES = ("", "issues/", "issues/board", "agents/", "runs/", "costs/", "activity/", "inbox/")
# Rows that come and go all the time; these tables must not grow with what went through them.
HOT = (
    "agents_worker", "agents_beacon", "agents_providerbucket", "billing_reservation",
    "django_q_ormq", "issues_issuecounter",
)  # fmt: skip
BROKEN = (OSError, asyncio.IncompleteReadError, ValueError)


@dataclass
class Seen:
    """What an hour has shown. Memory: by process, (seconds since the start, MiB)."""

    began: float = field(default_factory=time.monotonic)
    pages: list[tuple[float, float]] = field(default_factory=list)
    created: int = 0
    refused: int = 0
    kills: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    memory: dict[tuple[str, int, float], list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def age(self) -> float:
        return time.monotonic() - self.began


async def live(the: World, seen: Seen, cookie: str) -> None:
    tasks = [
        asyncio.create_task(one)
        for one in (
            _every(1.0, lambda: _create(the, seen)),
            *(_reader(the, seen, cookie) for _ in range(2)),
            _every(KILL_SECONDS, lambda: _kill(the, seen)),
            _every(SAMPLE_SECONDS, lambda: _sample(the, seen)),
        )
    ]
    await asyncio.sleep(60 * MINUTES)
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(ended, asyncio.CancelledError):
            raise RuntimeError("a part of the load ended early") from ended


async def _every(seconds: float, what: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await what()


async def _create(the: World, seen: Seen) -> None:
    """An issue whose agent answers for half a second. Who is not answered asks again by the same
    key, as a client should."""
    body = {
        "title": f"Issue {seen.created}",
        "description": "[[mock:words=20;chunks=20;delay=0.025]]",
        "status": "todo",
        "assigneeAgentId": str(random.choice(the.agents).id),
    }
    extra = f"idempotency-key: soak-{seen.created}\r\n"
    for _ in range(60):
        client = the.client()
        try:
            path = f"/api/companies/{the.company.id}/issues"
            answer = await asyncio.wait_for(client.request("POST", path, body, extra), 15)
            if answer.status < 300:
                seen.created += 1
                return
        except (*BROKEN, TimeoutError):
            pass
        finally:
            await client.close()
        seen.refused += 1
        await asyncio.sleep(0.5)
    raise RuntimeError("no issue could be created for half a minute")


async def _reader(the: World, seen: Seen, cookie: str) -> None:
    client = Client(the.port, {"cookie": cookie})
    while True:
        await asyncio.sleep(0.5)
        path = f"/c/{the.company.issue_prefix}/{random.choice(PAGES)}"
        began = time.monotonic()
        try:
            answer = await asyncio.wait_for(client.request("GET", path), 15)
            assert answer.status == 200, (path, answer.status)
            seen.pages.append((seen.age, time.monotonic() - began))
        except (*BROKEN, TimeoutError):
            seen.refused += 1
            await client.close()


async def _kill(the: World, seen: Seen) -> None:
    kind = random.choice(("shift", "cluster's parent", "web worker"))
    victims = await asyncio.to_thread(_victims, the, kind)
    if victims:
        os.kill(random.choice(victims), signal.SIGKILL)
        seen.kills[kind] += 1


def _victims(the: World, kind: str) -> list[int]:
    from django.db import connection
    from django.utils import timezone

    from agents.models import Worker

    try:
        if kind == "shift":
            living = Worker.objects.filter(lease_expires_at__gt=timezone.now(), draining=False)
            return list(living.values_list("pid", flat=True))
    finally:
        connection.close()
    wanted = "web" if kind == "web worker" else "qcluster"
    family = {one.pid: one for one in the.instance.family()}
    found = [pid for pid, one in family.items() if _is(one, wanted)]
    if kind == "web worker":  # a child of the server's own parent
        return [pid for pid in found if _parent(family[pid]) in found]
    return [pid for pid in found if _parent(family[pid]) not in found]


def _is(process: psutil.Process, kind: str) -> bool:
    try:
        return kind_of(process).startswith(kind)
    except psutil.Error:
        return False


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.Error:
        return 0


async def _sample(the: World, seen: Seen) -> None:
    """Anonymous memory: what a process has for itself, whoever shares the rest."""

    def look() -> None:
        for process in the.instance.family():
            try:
                kind = kind_of(process)
                name = (kind, process.pid, process.create_time())
                seen.memory[name].append((seen.age, _anonymous(process.pid)))
            except (psutil.Error, OSError):
                continue

    await asyncio.to_thread(look)


def _anonymous(pid: int) -> float:
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        for line in rollup:
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) / 1024
    return 0.0


def slopes(seen: Seen) -> dict[str, tuple[int, float]]:
    """By kind of process: how many lived long enough, and the steepest in MiB a ten minutes."""
    found: dict[str, list[float]] = defaultdict(list)
    for (kind, *_), samples in seen.memory.items():
        settled = [one for one in samples if one[0] - samples[0][0] >= SETTLED_SECONDS]
        if kind != "postgres" and settled and settled[-1][0] - settled[0][0] >= SLOPE_SECONDS:
            at, size = zip(*settled, strict=True)
            found[kind].append(statistics.linear_regression(at, size).slope * 600)
    return {kind: (len(all_), max(all_)) for kind, all_ in found.items()}


def sizes() -> dict[str, int]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relname = ANY(%s)",
            [list(HOT)],
        )
        return dict(cursor.fetchall())


def through(seconds: float) -> int:
    """Waits until every run has ended; how many issues are not done then."""
    from agents.models import HeartbeatRun
    from issues.models import Issue

    deadline = time.monotonic() + seconds
    while HeartbeatRun.objects.filter(status__in=HeartbeatRun.LIVE).exists():
        if time.monotonic() > deadline:
            break
        time.sleep(1)
    return Issue.objects.exclude(status="done").count()


def bench() -> Table:
    table = Table(
        "soak",
        f"{MINUTES:g} minutes with a kill every {KILL_SECONDS:g} s",
        ("what", "at the beginning", "at the end", "said"),
    )
    with world(agents=AGENTS, runs_per_agent=2, PAPERCLIP_WEB_WORKERS="2") as the:
        seen = Seen()
        before = sizes()
        asyncio.run(live(the, seen, session_cookie(the)))
        undone = through(180)
        after = sizes()
        _add(table, seen, before, after, undone)
    return table


def _add(
    table: Table, seen: Seen, before: dict[str, int], after: dict[str, int], undone: int
) -> None:
    from tests.faults import company as firm

    third = 60 * MINUTES / 3
    first = [took for at, took in seen.pages if at < third]
    last = [took for at, took in seen.pages if at >= 2 * third]
    p95 = [1_000 * percentile(part, 95) for part in (first, last)]
    table.add(
        "page, p95 ms of a third",
        f"{p95[0]:.0f}",
        f"{p95[1]:.0f}",
        f"{100 * (p95[1] / p95[0] - 1):+.0f} %",
    )
    for kind, (count, steepest) in sorted(slopes(seen).items()):
        table.add(f"memory of {kind}", "", "", f"{steepest:+.2f} MiB in 10 min, {count} processes")
    for name in sorted(before):
        table.add(f"{name}, kB", before[name] // 1024, after.get(name, 0) // 1024, "")
    wrongs: dict[str, Any] = firm.wrongs()
    kills = ", ".join(f"{count} of a {kind}" for kind, count in sorted(seen.kills.items()))
    table.notes.append(
        f"{seen.created:,} issues by {AGENTS} agents, {len(seen.pages):,} pages, kills: {kills}. "
        f"{seen.refused} requests found nobody, and were made again. Not done in the end: "
        f"{undone}; "
        f"done twice: {wrongs['double']}; said twice: {wrongs['said twice']}; still held: "
        f"{wrongs['still held']}; places where the books disagree: {wrongs['drift of the books']}."
    )
