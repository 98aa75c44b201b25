"""Claims per second through Python, beside a million issues that are already there."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from pathlib import Path

from tests.bench.report import Table, spread
from tests.house.instance import environment, free_port, manage

ISSUES = 1_000_000
QUEUED = 12_000
COMPANIES = 40
AGENTS_A_COMPANY = 10
ROUNDS = 3


def seed() -> None:
    """A million closed issues, and agents without a queue yet; made by the database itself."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO companies_company (id, name, description, status, pause_reason,
                issue_prefix, max_concurrent_agents, is_demo, created_at, updated_at)
            SELECT gen_random_uuid(), 'Company ' || n, '', 'active', '', 'B' || n, 1000, false,
                now(), now() FROM generate_series(1, %s) n""",
            [COMPANIES],
        )
        cursor.execute(
            """
            INSERT INTO agents_agent (id, company_id, number, name, slug, role, title, icon,
                capabilities, status, error_code, adapter_type, adapter_config, instructions,
                on_finish, can_hire, heartbeat_enabled, interval_seconds, cron, timezone,
                wake_on_demand, max_concurrent_runs, version, created_at, updated_at)
            SELECT gen_random_uuid(), c.id, nextval('agents_agent_number'), 'A' || n, 'a' || n,
                'general', '', '', '', 'active', '', 'demo', '{}', '', 'done', false, false, 300,
                '', 'UTC', true, 30000, 1, now(), now()
            FROM companies_company c, generate_series(1, %s) n""",
            [AGENTS_A_COMPANY],
        )
        cursor.execute(
            """
            INSERT INTO issues_issue (id, company_id, number, identifier, title, description,
                status, priority, request_depth, billing_code, blocked_reason, version,
                assignee_agent_id, created_at, updated_at, completed_at)
            SELECT gen_random_uuid(), a.company_id, n, c.issue_prefix || '-' || n, 'Issue ' || n,
                '', CASE WHEN n %% 40 = 0 THEN 'todo' ELSE 'done' END, n %% 4, 0, '', '', 1, a.id,
                now(), now(), now()
            FROM (SELECT id, issue_prefix, row_number() OVER () k FROM companies_company) c
            CROSS JOIN generate_series(1, %s) n
            JOIN LATERAL (SELECT id, company_id FROM agents_agent WHERE company_id = c.id
                OFFSET n %% %s LIMIT 1) a ON true""",
            [ISSUES // COMPANIES, AGENTS_A_COMPANY],
        )
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
            SELECT gen_random_uuid(), company_id, assignee_agent_id, id, 'queued', priority,
                'assignment', 'issue_assigned', 1, '{}', '{}', now(), 1, now(), 0, '', '', '', '{}',
                '', '', '', '{}', 0, 0, 0, 0, 0
            FROM issues_issue WHERE status = 'todo' LIMIT %s""",
            [QUEUED],
        )
        cursor.execute("ANALYZE agents_heartbeatrun")


def claimer(batch: int, start: float, results: multiprocessing.Queue) -> None:
    import django

    django.setup()
    from django.db import connection

    from agents import runs, workers

    worker = workers.register(instance="bench", slot=0, pid=os.getpid(), capacity=100_000)
    with connection.cursor() as cursor:  # nobody beats here; the lease lasts for the round
        cursor.execute(
            "UPDATE agents_worker SET lease_expires_at = now() + interval '1 hour' WHERE id = %s",
            [worker],
        )
    while time.time() < start:
        time.sleep(0.001)
    ids: list[str] = []
    empty, place = 0, runs.START
    while empty < 3:
        claimed = runs.claim(worker_id=worker, limit=batch, place=place)
        place = claimed.place
        ids += [str(one.run_id) for one in claimed]
        empty = 0 if claimed else empty + 1
        if not claimed:
            time.sleep(0.002)
    results.put((ids, time.time()))


def one_round(claimers: int, batch: int) -> float:
    """Claims a second of one round; fails when a run was claimed twice or none."""
    queue()
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    start = time.time() + 4 + claimers * 0.5
    processes = [
        context.Process(target=claimer, args=(batch, start, results)) for _ in range(claimers)
    ]
    for process in processes:
        process.start()
    answers = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(20)
    ids = [one for part, _ in answers for one in part]
    assert len(ids) == len(set(ids)), "a run was claimed twice"
    assert len(ids) == QUEUED, f"{len(ids)} of {QUEUED} were claimed"
    return QUEUED / (max(end for _, end in answers) - start)


def bench() -> Table:
    table = Table(
        name="claims",
        title=f"Claims a second through Python ({ISSUES:,} issues, {QUEUED:,} queued runs)",
        columns=("claimers", "batch", f"claims/s, median of {ROUNDS} rounds", "claimed twice"),
        notes=["Each claimer is a process with its own connection; caps are counted under lock."],
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
                rates = [one_round(claimers, batch) for _ in range(ROUNDS)]
                table.add(claimers, batch, spread(rates), 0)
        finally:
            connections.close_all()
            server.stop()
    return table
