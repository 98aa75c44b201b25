"""Claims per second through Python, beside a million issues that are already there."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from tests.bench import rows
from tests.bench.report import Table, spread

ISSUES = 1_000_000
QUEUED = 12_000
COMPANIES = 40
AGENTS_A_COMPANY = 26
OPEN_EVERY = 41  # shares no factor with the agents of a company, so that all get their part
INSTANCES = 4
ROUNDS = 3
PATIENCE_SECONDS = 170


def claimer(number: int, batch: int, rounds: int, gate: Barrier, results: Queue) -> None:
    """A process that claims, in every round until nothing is left."""
    import django

    django.setup()
    from django.db import connection

    from agents import runs, workers

    # Four instances of as many shifts: claimers of one instance take turns.
    worker = workers.register(
        instance=f"bench {number % INSTANCES}", slot=0, pid=os.getpid(), capacity=100_000
    )
    with connection.cursor() as cursor:  # nobody beats here; the lease lasts for all rounds
        cursor.execute(
            "UPDATE agents_worker SET lease_expires_at = now() + interval '1 hour' WHERE id = %s",
            [worker],
        )
    for _ in range(rounds):
        gate.wait()
        start = time.time()
        ids: list[str] = []
        empty, place = 0, runs.START
        while empty < 3:
            claimed = runs.claim(worker_id=worker, limit=batch, place=place)
            place = claimed.place
            ids += [str(one.run_id) for one in claimed]
            empty = 0 if claimed else empty + (not claimed.more)
            if not claimed:
                time.sleep(0.002)
        results.put((ids, start, time.time()))


def measure(claimers: int, batch: int, rounds: int = ROUNDS) -> list[float]:
    """Claims a second of each round; fails when a run was claimed twice or not at all."""
    context = multiprocessing.get_context("spawn")
    results, gate = context.Queue(), context.Barrier(claimers + 1)
    processes = [
        context.Process(target=claimer, args=(number, batch, rounds, gate, results), daemon=True)
        for number in range(claimers)
    ]
    for process in processes:
        process.start()
    rates = []
    for _ in range(rounds):
        rows.queue(QUEUED)
        gate.wait(PATIENCE_SECONDS)
        answers = [results.get(timeout=PATIENCE_SECONDS) for _ in processes]
        ids = [one for part, _, _ in answers for one in part]
        assert len(ids) == len(set(ids)), "a run was claimed twice"
        assert len(ids) == QUEUED, f"{len(ids)} of {QUEUED} were claimed"
        began = min(start for _, start, _ in answers)
        rates.append(QUEUED / (max(end for *_, end in answers) - began))
    for process in processes:
        process.join(20)
    return rates


def bench() -> Table:
    table = Table(
        name="claims",
        title=(
            f"Claims a second through Python ({ISSUES:,} issues, {QUEUED:,} queued runs of "
            f"{COMPANIES * AGENTS_A_COMPANY:,} agents)"
        ),
        columns=("claimers", "batch", f"claims/s, median of {ROUNDS} rounds", "claimed twice"),
        notes=[
            f"Each claimer is a process with its own connection, in {INSTANCES} instances; caps "
            "are counted under lock. Nothing ends, so that by and by all 12,000 run at once."
        ],
    )
    with rows.database():
        rows.companies(COMPANIES, agents=AGENTS_A_COMPANY, runs_an_agent=20)
        rows.issues(ISSUES, open_every=OPEN_EVERY)
        for claimers, batch in ((1, 50), (4, 50), (16, 50)):
            table.add(claimers, batch, spread(measure(claimers, batch)), 0)
    return table
