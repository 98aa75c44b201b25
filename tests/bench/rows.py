"""Rows by the hundred thousand for benchmarks, made by the database itself."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.house.instance import environment, free_port, manage


@contextmanager
def database(**env: str) -> Iterator[None]:
    """A server of our own with an empty, migrated database, and Django set up for it. Must be
    entered before Django is, because the settings take their data folder from the environment."""
    with tempfile.TemporaryDirectory(prefix="paperclip-bench-") as folder:
        os.chmod(folder, 0o755)  # the database runs as an ordinary user
        os.environ.update(
            environment(Path(folder) / "data", free_port(), **env),
            DJANGO_SETTINGS_MODULE="paperclip.settings",
        )
        import django

        django.setup()
        from django.conf import settings
        from django.db import connections

        from companies import live
        from paperclip import postgres

        server = postgres.start(settings.PG_DIR)
        try:
            postgres.create_database(settings.PG_DIR, "paperclip")
            done = manage("migrate", "-v", "0", env=dict(os.environ))
            assert done.returncode == 0, done.stderr
            yield
        finally:
            live.close()
            connections.close_all()
            server.stop()


def companies(count: int, *, agents: int, runs_an_agent: int, adapter_type: str = "demo") -> None:
    """Companies with room for all their agents, and `agents` agents in each."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO companies_company (id, name, description, status, pause_reason,
                issue_prefix, max_concurrent_agents, is_demo, created_at, updated_at)
            SELECT uuidv7(), 'Company ' || n, '', 'active', '', 'B' || n, 1000, false, now(), now()
            FROM generate_series(1, %s) n""",
            [count],
        )
        cursor.execute(
            "INSERT INTO issues_issuecounter (company_id, last_number)"
            " SELECT id, 10000000 FROM companies_company ON CONFLICT DO NOTHING"
        )
    hire(agents, runs_an_agent=runs_an_agent, adapter_type=adapter_type)


def hire(agents: int, *, runs_an_agent: int, adapter_type: str, name: str = "A") -> None:
    """So many agents more in each company."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO agents_agent (id, company_id, number, name, slug, role, title, icon,
                capabilities, status, error_code, adapter_type, adapter_config, instructions,
                on_finish, can_hire, heartbeat_enabled, interval_seconds, cron, timezone,
                wake_on_demand, max_concurrent_runs, version, created_at, updated_at)
            SELECT uuidv7(), c.id, nextval('agents_agent_number'), %s || n, lower(%s) || n,
                'general', '', '', '', 'active', '', %s, '{}', '', 'done', false, false, 300,
                '', 'UTC', true, %s, 1, now(), now()
            FROM companies_company c, generate_series(1, %s) n""",
            [name, name, adapter_type, runs_an_agent, agents],
        )


def issues(count: int, *, open_every: int) -> None:
    """`count` issues, dealt out to all agents; one of `open_every` is to do, the rest is done.

    The two numbers should share no factor with the agents of a company, so that all get their
    part. Indexes are built afterwards and nothing is checked: it would take minutes.
    """
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'issues_issue'"
            " AND indexdef NOT LIKE 'CREATE UNIQUE%'"
        )
        indexes = cursor.fetchall()
        for name, _ in indexes:
            cursor.execute(f'DROP INDEX "{name}"')
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            """
            INSERT INTO issues_issue (id, company_id, number, identifier, title, description,
                status, priority, request_depth, billing_code, blocked_reason, version,
                assignee_agent_id, created_at, updated_at, completed_at)
            SELECT uuidv7(), a.company_id, n, a.issue_prefix || '-' || n, 'Issue ' || n, '',
                CASE WHEN n %% %s = 0 THEN 'todo' ELSE 'done' END, n %% 4, 0, '', '', 1, a.id,
                now(), now(), CASE WHEN n %% %s = 0 THEN NULL ELSE now() END
            FROM (SELECT a.id, a.company_id, c.issue_prefix,
                         row_number() OVER (PARTITION BY a.company_id ORDER BY a.id) - 1 AS place,
                         count(*) OVER (PARTITION BY a.company_id) AS agents
                  FROM agents_agent a JOIN companies_company c ON c.id = a.company_id) a
            JOIN generate_series(1, %s / (SELECT count(*) FROM companies_company)) n
              ON n %% a.agents = a.place""",
            [open_every, open_every, count],
        )
        cursor.execute("SET session_replication_role = DEFAULT")
        for _, definition in indexes:
            cursor.execute(definition)
        cursor.execute("ANALYZE")


def queue(count: int) -> None:
    """One queued run for each of `count` open issues, and no other run."""
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
            [count],
        )
        cursor.execute("ANALYZE agents_heartbeatrun")


def hand_over(name: str, issues_an_agent: int) -> None:
    """Each agent of that name gets so many finished issues of its company to look at again."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE issues_issue i SET assignee_agent_id = given.agent_id, status = 'in_review'
            FROM (SELECT a.id AS agent_id, a.company_id,
                         row_number() OVER (PARTITION BY a.company_id ORDER BY a.id) AS place
                  FROM agents_agent a CROSS JOIN generate_series(1, %s) WHERE a.name LIKE %s) given
            JOIN (SELECT id, company_id,
                         row_number() OVER (PARTITION BY company_id ORDER BY id) AS place
                  FROM issues_issue WHERE status = 'done') free
              ON free.company_id = given.company_id AND free.place = given.place
            WHERE i.id = free.id""",
            [issues_an_agent, f"{name}%"],
        )
        cursor.execute("VACUUM ANALYZE issues_issue")


def queue_timers(name: str) -> int:
    """One queued beat of a timer, about no issue, for each agent of that name, and no other run;
    returns how many."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE agents_heartbeatrun CASCADE")
        cursor.execute(
            """
            INSERT INTO agents_heartbeatrun (id, company_id, agent_id, status, priority,
                source, reason, wake_count, comment_ids, payload, not_before, scheduled_for,
                attempt, created_at, epoch, adapter_type, model, cancel_reason, session, code,
                message, summary, result, input_tokens, cached_tokens, output_tokens, cost_micros,
                unpriced_calls)
            SELECT uuidv7(), company_id, id, 'queued', 2, 'timer', 'heartbeat_timer', 1, '{}', '{}',
                now(), now(), 1, now(), 0, '', '', '', '{}', '', '', '', '{}', 0, 0, 0, 0, 0
            FROM agents_agent WHERE name LIKE %s ORDER BY number""",
            [f"{name}%"],
        )
        count = cursor.rowcount
        cursor.execute("ANALYZE agents_heartbeatrun")
    return count


def reopen() -> None:
    """Take back what runs did: their output, comments, activity, and the state of their issues."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE agents_heartbeatrun, agents_runevent, companies_activity CASCADE")
        cursor.execute("UPDATE issues_issue SET status = 'todo' WHERE completed_at > created_at")
        cursor.execute("VACUUM ANALYZE issues_issue")


def server_seconds() -> float:
    """Processor time of the database server so far, of ended sessions as well."""
    from django.conf import settings

    from paperclip import postgres

    socket = str(postgres.socket_dir(settings.PG_DIR))
    for process in psutil.process_iter():
        try:
            if socket in process.cmdline():
                own = process.cpu_times()
                return sum(own[:4]) + sum(map(_seconds, process.children(recursive=True)))
        except psutil.Error:
            continue
    raise AssertionError("the server is not there")


def _seconds(process: psutil.Process) -> float:
    """Processor time of a process; of one that has just ended its parent's has it."""
    try:
        return sum(process.cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0
