"""Requests a second of the JSON API: closed loops of clients against a whole instance.

Every request goes the whole way: key, quota, roles, database, JSON. What a request costs in
processor time is counted as well, since the wall clock of a small machine tells as much about its
other load.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from tests.bench.load import Load, closed_loop, request
from tests.bench.report import Table, quantiles, spread
from tests.bench.world import World, world

SECONDS = 2.0
ROUNDS = 3
RACERS = 10
RACED = 40
STATUSES = ("todo", "backlog", "done", "todo,backlog", "in_review")


@dataclass(slots=True)
class Cost:
    """Processor milliseconds that a request took, by who spent them."""

    web: float = 0.0
    postgres: float = 0.0
    generator: float = 0.0

    def __str__(self) -> str:
        return f"{self.web:.2f} + {self.postgres:.2f} + {self.generator:.2f}"


def measured(the: World, run: Callable[[], Load]) -> tuple[list[Load], Cost]:
    """Several rounds of a load, and what one request of them cost."""
    before = _processor_seconds(the)
    loads = [run() for _ in range(ROUNDS)]
    after = _processor_seconds(the)
    count = sum(load.count for load in loads)
    spent = {kind: 1000 * (after[kind] - before[kind]) / count for kind in after}
    own = 1000 * sum(load.own_seconds for load in loads) / count
    return loads, Cost(spent["web"], spent["postgres"], own)


def _processor_seconds(the: World) -> dict[str, float]:
    """What each kind of process has used; a backend that has gone counts no more."""
    used = {"web": 0.0, "postgres": 0.0}
    for kind in used:
        family = set(the.processes(kind))
        for process in list(family):
            family.update(process.children(recursive=True))  # a backend has a name of its own
        for process in family:
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            used[kind] += times.user + times.system
    return used


def measure(the: World, table: Table) -> None:
    the_big, deep = _prepare(the)
    company, agent, token, port = the.company.id, the.agents[0].id, the.token, the.port

    def get(path: str) -> bytes:
        return request("GET", path, token)

    issues = f"/api/companies/{company}/issues"
    queries = [f"status={status}" for status in STATUSES]
    queries += [f"assigneeAgentId={agent}", "sort=updated", "sort=priority", "priority=high,low"]
    lists = [get(f"{issues}?limit=100&{query}") for query in queries]
    one = get(f"/api/issues/{deep}")
    whole = get(f"/api/companies/{the_big}/issues?limit=500")
    board = get(f"/api/companies/{company}/dashboard")

    def create(turn: int) -> bytes:
        body = {"title": f"Issue {turn}", "status": "todo", "assigneeAgentId": str(agent)}
        return request("POST", issues, token, body)

    rows: tuple[tuple[str, str, tuple[int, ...], Callable[[int], bytes]], ...] = (
        ("get an issue with ancestors and documents", "500", (1, 50), lambda turn: one),
        ("list 100 issues, queries varied", "500", (1, 50), lambda turn: lists[turn % len(lists)]),
        ("list 500 of 10,000 issues", "120", (1, 50), lambda turn: whole),
        ("dashboard", "500", (1, 50), lambda turn: board),
        ("create an issue with its wake", "600", (1, 50, 80), create),
    )
    for label, least, all_clients, make in rows:
        closed_loop(port, make, clients=8, seconds=0.5)  # every thread has its connection
        for clients in all_clients:
            loads, cost = measured(
                the,
                lambda: closed_loop(port, make, clients=clients, seconds=SECONDS),  # noqa: B023
            )
            _add(table, label, clients, least if clients > 1 else "", loads, cost)
    loads, cost = measured(the, lambda: race(the))
    _add(table, f"checkout race, {RACERS} agents × {RACED} issues", 50, "500", loads, cost)


def _add(table: Table, label: str, clients: int, least: str, loads: list[Load], cost: Cost) -> None:
    bad = {status for load in loads for status in load.statuses} - {200, 201, 409}
    assert not bad, (bad, loads[0].answers[:1])
    durations = [duration for load in loads for duration in load.durations]
    table.add(
        label,
        clients,
        least,
        spread([load.rate for load in loads]),
        *quantiles(durations),
        f"{max(load.bytes for load in loads) / 1000:,.0f}",
        cost,
    )


def race(the: World) -> Load:
    """Ten agents want the same forty issues: each issue is won once, and everybody is answered."""
    from django.utils import timezone

    from agents import agent_keys
    from companies.activity import SYSTEM
    from tests import factories

    issues = [str(one.id) for one in factories.issues(the.company, RACED, status="todo")]
    racers = [
        (
            str(agent.id),
            agent_keys.create(
                agent=agent, name=f"race {time.time_ns()}", actor=SYSTEM, now=timezone.now()
            )[1],
        )
        for agent in the.agents[:RACERS]
    ]
    turns = [
        request("POST", f"/api/issues/{issue}/checkout", token, {"agentId": agent})
        for issue in issues
        for agent, token in racers
    ]
    load = closed_loop(
        the.port,
        lambda turn: turns[turn] if turn < len(turns) else None,
        clients=50,
        keep=True,
    )
    won = [json.loads(body)["id"] for _, status, body in load.answers if status == 200]
    assert sorted(won) == sorted(issues), f"{len(won)} wins of {len(set(won))} issues"
    assert load.statuses == {200: RACED, 409: RACED * (RACERS - 1)}, load.statuses
    return load


def _prepare(the: World) -> tuple[Any, str]:
    """A company of 10,000 issues beside the first one, which gets 1,000 and one with ancestors and
    documents. Returns the big company's id and that issue's identifier."""
    from django.utils import timezone

    from companies.activity import Actor
    from issues import board, documents
    from tests import factories
    from tests.bench import crowd

    now = timezone.now()
    crowd.fill(the.company, the.agents, now=now, issues=1_000, runs=1_000)
    owner = the.company.memberships.get().user
    big = factories.company("Big", "BIG", owner=owner)
    crowd.fill(big, [factories.agent(big)], now=now, issues=10_000, runs=10_000)
    actor, issue = Actor("user", owner.id, str(owner)), None
    for level in ("Company", "Project", "Part", "Task"):
        issue = board.create(
            company=the.company, actor=actor, now=now, title=level, parent=issue,
            description="What should be done, in words. " * 10, assignee_agent=the.agents[0],
        )  # fmt: skip
    assert issue is not None
    for key in ("plan", "design", "report"):
        documents.put(issue=issue, key=key, title=key, body="Words. " * 500, actor=actor, now=now)
    return big.id, issue.identifier


def bench() -> Table:
    table = Table(
        name="http",
        title="The JSON API: requests a second",
        columns=(
            "request", "clients", "at least", "requests/s", "p50 ms", "p95 ms", "p99 ms",
            "largest answer kB", "processor ms a request: web + PostgreSQL + generator",
        ),
        notes=[
            "Server, database (with fsync) and load generator share the machine. Shifts are off, "
            "so that this is the cost of the requests alone; 2 web workers. The company has 1,000 "
            "issues, and grows by what is created; in the race each issue is won once and the "
            "other nine hear 409."
        ],
    )  # fmt: skip
    # The figures are of one caller, who is counted but not stopped.
    calls = {
        "PAPERCLIP_API_CALLS_A_MINUTE": "10000000",
        "PAPERCLIP_AGENT_CALLS_A_MINUTE": "1000000",
    }
    with world(agents=RACERS, PAPERCLIP_SHIFTS="0", PAPERCLIP_WEB_WORKERS="2", **calls) as the:
        measure(the, table)
    return table
