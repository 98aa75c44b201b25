"""Claims per second through Python, beside a million issues that are already there."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from tests.bench.report import Table, spread
from tests.house.instance import environment, free_port, manage

ISSUES = 1_000_000
QUEUED = 12_000
COMPANIES = 40
AGENTS_A_COMPANY = 26
OPEN_EVERY = 41  # shares no factor with the agents of a company, so that all get their part
INSTANCES = 4
ROUNDS = 3
PATIENCE_SECONDS = 170


def seed() -> None:
    """A million closed issues, and agents without a queue yet; made by the database itself."""
    from django.db import connection

    with connection.cursor() as cursor:
        # What is made here refers to what is made here: checking it would take minutes.
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            """
            INSERT INTO companies_company (id, name, description, status, pause_reason,
                issue_prefix, max_concurrent_agents, is_demo, created_at, updated_at)
            SELECT uuidv7(), 'Company ' || n, '', 'active', '', 'B' || n, 1000, false,
                now(), now() FROM generate_series(1, %s) n""",
            [COMPANIES],
        )
        cursor.execute(
            """
            INSERT INTO agents_agent (id, company_id, number, name, slug, role, title, icon,
                capabilities, status, error_code, adapter_type, adapter_config, instructions,
                on_finish, can_hire, heartbeat_enabled, interval_seconds, cron, timezone,
                wake_on_demand, max_concurrent_runs, version, created_at, updated_at)
            SELECT uuidv7(), c.id, nextval('agents_agent_number'), 'A' || n, 'a' || n,
                'general', '', '', '', 'active', '', 'demo', '{}', '', 'done', false, false, 300,
                '', 'UTC', true, 20, 1, now(), now()
            FROM companies_company c, generate_series(1, %s) n""",
            [AGENTS_A_COMPANY],
        )
        cursor.execute(
            """
            INSERT INTO issues_issue (id, company_id, number, identifier, title, description,
                status, priority, request_depth, billing_code, blocked_reason, version,
                assignee_agent_id, created_at, updated_at, completed_at)
            SELECT uuidv7(), a.company_id, n, a.issue_prefix || '-' || n, 'Issue ' || n,
                '', CASE WHEN n %% %s = 0 THEN 'todo' ELSE 'done' END, n %% 4, 0, '', '', 1, a.id,
                now(), now(), now()
            FROM generate_series(1, %s) n
            JOIN (SELECT a.id, a.company_id, c.issue_prefix,
                         row_number() OVER (PARTITION BY a.company_id ORDER BY a.id) - 1 AS place
                  FROM agents_agent a JOIN companies_company c ON c.id = a.company_id) a
              ON a.place = n %% %s""",
            [OPEN_EVERY, ISSUES // COMPANIES, AGENTS_A_COMPANY],
        )
        cursor.execute("SET session_replication_role = DEFAULT")
        cursor.execute("ANALYZE")


def queue() -> None:
    """One queued run for each of `QUEUED` open issues."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE agents_heartbeatrun CASCADE")
        cursor.execute(
            """
            INSERT INTO agents_heartbeatrun (id, company_id, agent_id, issue_id, status, priority,
                source, reason, wake_count, comment_ids, payload, not_before, attempt, created_at,
                epoch, adapter_type, model, cancel_reason, session, code, message, summary, result,
                input_tokens, cached_tokens, output_tokens, cost_micros, unpriced_calls)
            SELECT uuidv7(), company_id, assignee_agent_id, id, 'queued', priority,
                'assignment', 'issue_assigned', 1, '{}', '{}', now(), 1, now(), 0, '', '', '', '{}',
                '', '', '', '{}', 0, 0, 0, 0, 0
            FROM issues_issue WHERE status = 'todo' ORDER BY number, company_id LIMIT %s""",
            [QUEUED],
        )
        cursor.execute("ANALYZE agents_heartbeatrun")


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
        queue()
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
    with tempfile.TemporaryDirectory(prefix="paperclip-bench-") as folder:
        os.chmod(folder, 0o755)
        data = Path(folder) / "data"
        os.environ.update(
            environment(data, free_port()), DJANGO_SETTINGS_MODULE="paperclip.settings"
        )
        import django

        django.setup()
        from django.conf import settings
        from django.db import connections

        from paperclip import postgres

        server = postgres.start(settings.PG_DIR)
        try:
            postgres.create_database(settings.PG_DIR, "paperclip")
            done = manage("migrate", "-v", "0", env=dict(os.environ))
            assert done.returncode == 0, done.stderr
            seed()
            for claimers, batch in ((1, 50), (4, 50), (16, 50)):
                table.add(claimers, batch, spread(measure(claimers, batch)), 0)
        finally:
            connections.close_all()
            server.stop()
    return table
