"""A company that has worked for months: thousands of issues, runs and deeds, written by SQL.

Every row is one that the product itself could have written (the checks and keys of the database
hold), but they come in a few statements, so that a bench of a hundred thousand runs begins within
seconds.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from companies import partitions

ISSUES = 10_000
RUNS = 100_000
DAYS = 60  # of history
LIVE = 20  # runs that go on, and as many that wait

# One in five waits in each open status, two are done; most belong to an agent.
_ISSUES = """
INSERT INTO issues_issue (id, company_id, number, identifier, title, description, status,
    priority, request_depth, billing_code, blocked_reason, version, assignee_agent_id,
    created_at, updated_at, completed_at)
SELECT uuidv7(at - now()), %(company)s, n, %(prefix)s || '-' || n,
    'An issue of the usual length, number ' || n, repeat('What should be done, in words. ', 20),
    status, n %% 4, 0, '', '', 1, (%(agents)s::uuid[])[n %% %(staff)s + 1],
    at, at, CASE WHEN status = 'done' THEN at END
FROM (SELECT n, CASE WHEN n <= 5 * %(live)s AND n %% 5 = 1 THEN 'in_progress'
                     ELSE (ARRAY['backlog', 'todo', 'in_review', 'done', 'done'])[n %% 5 + 1]
                END AS status,
             %(now)s - n * %(issue_step)s AS at
      FROM generate_series(1, %(issues)s) n) AS given
"""
_RUNS = """
INSERT INTO agents_heartbeatrun (id, company_id, agent_id, issue_id, status, priority, source,
    reason, wake_count, comment_ids, payload, not_before, attempt, created_at, epoch, adapter_type,
    model, started_at, finished_at, cancel_reason, session, code, message, summary, result,
    input_tokens, cached_tokens, output_tokens, cost_micros, unpriced_calls)
SELECT uuidv7(at - now()), %(company)s, i.assignee_agent_id, i.id, ending, i.priority, 'assignment',
    'assigned', 1, '{}', '{"taskKey": "main"}', at, 1, at, 1, 'openai', 'mock', at,
    at + interval '40 seconds', '', '{}', CASE WHEN ending = 'failed' THEN 'timeout' ELSE '' END,
    '', repeat('What it did, in a sentence. ', 8), '{"finish": "stop"}', 9000, 2000, 700, 12345, 0
FROM (SELECT n, CASE WHEN n %% 12 = 0 THEN 'failed' ELSE 'succeeded' END AS ending,
             %(now)s - n * %(run_step)s AS at
      FROM generate_series(1, %(runs)s) n) AS given
JOIN issues_issue i ON i.company_id = %(company)s AND i.number = n %% %(issues)s + 1
"""
# What goes on now: each issue in progress runs, as many wait.
_LIVE = """
INSERT INTO agents_heartbeatrun (id, company_id, agent_id, issue_id, status, priority, source,
    reason, wake_count, comment_ids, payload, not_before, attempt, created_at, epoch, adapter_type,
    model, started_at, cancel_reason, session, code, message, summary, result, input_tokens,
    cached_tokens, output_tokens, cost_micros, unpriced_calls)
SELECT uuidv7(), company_id, assignee_agent_id, id,
    CASE status WHEN 'todo' THEN 'queued' ELSE 'running' END, priority, 'assignment', 'assigned',
    1, '{}', '{}', %(now)s, 1, %(now)s, 1, 'openai', 'mock',
    CASE status WHEN 'todo' THEN NULL ELSE %(now)s END, '', '{}', '', '', '', '{}', 0, 0, 0, 0, 0
FROM issues_issue
WHERE company_id = %(company)s AND (status = 'in_progress' OR (status = 'todo'
    AND number <= 10 * %(live)s))
"""
_ACTIVITY = """
INSERT INTO companies_activity (id, company_id, occurred_at, actor_type, actor_id, actor_name,
    run_id, action, entity_type, entity_id, entity_name, details)
SELECT gen_random_uuid(), r.company_id, r.finished_at, 'agent', r.agent_id, a.name, r.id,
    'issue.updated', 'issue', i.id, i.identifier || ' ' || i.title,
    '{"before": {"status": "todo"}, "after": {"status": "in_review"}}'
FROM agents_heartbeatrun r JOIN issues_issue i ON i.id = r.issue_id
JOIN agents_agent a ON a.id = r.agent_id
WHERE r.company_id = %(company)s AND r.finished_at IS NOT NULL
"""
_COSTS = """
INSERT INTO billing_daycost (company_id, day, agent_id, project_id, provider, model, spent_micros,
    events, unpriced_events, tokens, input_tokens, cached_tokens, output_tokens, last_at)
SELECT company_id, (started_at AT TIME ZONE 'UTC')::date, agent_id, NULL, 'openai', model,
    sum(cost_micros), count(*), 0, sum(input_tokens), sum(input_tokens), sum(cached_tokens),
    sum(output_tokens), max(finished_at)
FROM agents_heartbeatrun WHERE company_id = %(company)s AND finished_at IS NOT NULL
GROUP BY 1, 2, 3, 5, 6
"""
_SPENT = """
INSERT INTO billing_spend (company_id, scope, scope_id, "window", period_start, spent_micros,
    reserved_micros, tokens, events, unpriced_events, updated_at)
SELECT %(company)s, scope, CASE scope WHEN 'agent' THEN agent_id ELSE company_id END, 'month',
    %(month)s, sum(spent_micros), 0, sum(tokens), sum(events), 0, %(now)s
FROM billing_daycost CROSS JOIN (VALUES ('company'), ('agent')) AS s (scope)
WHERE company_id = %(company)s AND day >= %(month)s
GROUP BY scope, 3
"""
_COUNTER = """
INSERT INTO issues_issuecounter (company_id, last_number) VALUES (%(company)s, %(issues)s)
ON CONFLICT (company_id) DO UPDATE SET last_number = excluded.last_number
"""
FILLED = ("issues_issue", "agents_heartbeatrun", "companies_activity", "billing_daycost")


def fill(
    company: Any, agents: list[Any], *, now: datetime, issues: int = ISSUES, runs: int = RUNS
) -> None:
    """Give `company` this many issues and runs, spread evenly over its agents and two months."""
    since = partitions.month_start(now - timedelta(days=DAYS))
    partitions.ensure("companies_activity", now=since)
    values = {
        "company": company.id,
        "prefix": company.issue_prefix,
        "agents": [agent.id for agent in agents],
        "staff": len(agents),
        "issues": issues,
        "runs": runs,
        "live": LIVE,
        "now": now,
        "month": now.date().replace(day=1),
        "issue_step": timedelta(days=DAYS) / issues,
        "run_step": timedelta(days=DAYS) / runs,
    }
    with connection.cursor() as cursor:
        for statement in (_ISSUES, _RUNS, _LIVE, _ACTIVITY, _COSTS, _SPENT, _COUNTER):
            cursor.execute(statement, values)
        for table in FILLED:
            cursor.execute(f"VACUUM ANALYZE {table}")
