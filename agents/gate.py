"""The start gate as PostgreSQL reads it: whose queued runs may start, in which order, and how many.

Two statements, called by `claims.py`: `LOOK` finds who may start something and locks their rows,
`TAKE` counts afresh under these locks and starts. What is not here: who calls them and when.
"""

from __future__ import annotations

from agents.wakes import ANSWERING, ORIGINAL_REASON

_ANSWERS = (
    f"coalesce(r.payload ->> '{ORIGINAL_REASON}', r.reason) IN "
    f"({', '.join(repr(reason) for reason in ANSWERING)})"
)

# Why a queued run has nothing left to do; '' when it has.
_STALE = f"""
CASE WHEN r.issue_id IS NULL OR {_ANSWERS} THEN ''
     WHEN i.archived_at IS NOT NULL THEN 'issue_archived'
     WHEN i.status IN ('done', 'cancelled') THEN 'issue_closed'
     WHEN i.assignee_agent_id IS DISTINCT FROM r.agent_id THEN 'issue_reassigned'
     WHEN i.status = 'backlog' THEN 'issue_in_backlog'
     ELSE '' END
"""

# Stale runs pass, to be cancelled; the others wait while their issue cannot go on.
_DUE = f"""
r.status = 'queued' AND r.not_before <= clock_timestamp()
AND (r.issue_id IS NULL OR ({_STALE}) <> '' OR (
    r.issue_id NOT IN (SELECT active.issue_id FROM active WHERE active.issue_id IS NOT NULL)
    AND ({_ANSWERS} OR r.reason = 'issue_blockers_resolved' OR i.status <> 'blocked')
    AND ({_ANSWERS} OR NOT EXISTS (
        SELECT 1 FROM issues_blocker b JOIN issues_issue before ON before.id = b.blocking_id
        WHERE b.issue_id = r.issue_id AND before.status NOT IN ('done', 'cancelled')))))
"""  # noqa: S608


# Everything that runs now at some companies, read once: few rows, in an index of their own. Asking
# agent by agent, or issue by issue, made the planner read all running runs again and again: any of
# the small indexes of running runs looks empty to it, and as good as the right one.
def _working(companies: str) -> str:
    return f"""
active AS MATERIALIZED (
    SELECT x.company_id, x.agent_id, x.issue_id FROM agents_heartbeatrun x
    WHERE x.status = 'running' AND x.company_id = ANY ({companies})
), working AS MATERIALIZED (
    SELECT company_id, agent_id, count(*) AS runs FROM active GROUP BY company_id, agent_id
)"""  # noqa: S608


# What an agent's own limits leave: concurrent runs, runs a day, micro-dollars a day (UTC). Days
# are counted only for agents that have such a limit.
_AGENT_ROOM = """
LEFT JOIN working busy ON busy.company_id = a.company_id AND busy.agent_id = a.id
CROSS JOIN LATERAL (
    SELECT count(*) AS runs, coalesce(sum(x.cost_micros), 0) AS micros
    FROM agents_heartbeatrun x
    WHERE (a.max_daily_runs IS NOT NULL OR a.max_daily_cost_micros IS NOT NULL)
      AND x.agent_id = a.id AND x.started_at IS NOT NULL
      AND x.created_at >= date_trunc('day', clock_timestamp(), 'UTC')) today
"""
_ROOM = """
least(a.max_concurrent_runs - coalesce(busy.runs, 0),
      coalesce(a.max_daily_runs - today.runs, 1000))
"""
_ALLOWED = """
a.status = 'active'
AND (a.max_daily_cost_micros IS NULL OR today.micros < a.max_daily_cost_micros)
AND NOT EXISTS (SELECT 1 FROM agents_hold h WHERE h.agent_id = a.id)
"""

# Room on the connections to providers: how many runs more may start on each. A breaker that is
# not closed lets one run in after its time, to try. `diverts`: another provider may be asked.
# All connections are of companies whose rows are locked, which makes the counts exact.
_PROVIDERS = """
SELECT p.id, p.breaker <> 'closed' AND p.disabled_at IS NULL AND p.open_code IN
           ('rate_limited', 'provider_overloaded', 'connect_failed', 'idle_timeout',
            'stream_broken') AS diverts,
       CASE WHEN p.disabled_at IS NOT NULL THEN 0
            WHEN p.breaker = 'closed' THEN coalesce(p.max_concurrent_runs, 1000000) - at_work.runs
            WHEN p.open_until <= clock_timestamp() THEN
                 least(coalesce(p.max_concurrent_runs, 1000000) - at_work.runs, 1 - at_work.trying)
            ELSE 0 END AS room
FROM agents_providerconnection p
CROSS JOIN LATERAL (
    SELECT count(*) AS runs, count(*) FILTER (WHERE x.started_at >= p.open_until) AS trying
    FROM agents_heartbeatrun x
    WHERE x.connection_id = p.id AND x.status = 'running') at_work
"""
# The connection on which an agent's next run would start: its own, or else the first fallback
# that has room. None of it concerns agents without a connection.
_ROUTE = """
LEFT JOIN provider own ON own.id = a.connection_id
LEFT JOIN LATERAL (
    SELECT p.id, p.room FROM agents_agentfallback f JOIN provider p ON p.id = f.connection_id
    WHERE f.agent_id = a.id AND p.room > 0 ORDER BY f.position LIMIT 1
) spare ON own.room <= 0 AND own.diverts
"""
_REACHABLE = "(a.connection_id IS NULL OR own.room > 0 OR spare.room > 0)"

# Room for runs of each kind of adapter that one instance may only have a few of. Read only when an
# agent of such a kind is there; the turn of the instance makes the counts exact.
_KINDS = """
SELECT cap.kind, cap.most - (
    SELECT count(*) FROM agents_heartbeatrun x
    JOIN agents_worker carrier ON carrier.id = x.worker_id
    JOIN agents_worker mine ON mine.id = %(worker_id)s AND mine.instance = carrier.instance
    WHERE x.status = 'running' AND x.adapter_type = cap.kind) AS room
FROM unnest(%(kinds)s::text[], %(mosts)s::int[]) AS cap (kind, most)
"""
_KIND_ROOM = """
CASE WHEN a.adapter_type = ANY (%(kinds)s::text[])
     THEN (SELECT kind.room FROM kind WHERE kind.kind = a.adapter_type) ELSE 1000000 END
"""

# One turn an instance: its claimers would only queue behind each other's rows, and what the whole
# instance may run is counted exactly by one at a time. Others' instances are not waited for. The
# long statements are planned once a connection; planning them takes as long as running them.
TURN = """
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL lock_timeout = '{patience_ms}ms';
SELECT pg_advisory_xact_lock(hashtextextended('paperclip.claim:' || instance, 0))
FROM agents_worker WHERE id = '{worker_id}'
"""

# A loose index scan: one probe for each agent with something queued, however long its queue is.
# Then a few companies are locked, the next ones where the first are in another claimer's hands:
# many claimers at once do not wait for each other and do not go away empty. Then their agents.
LOOK = f"""
WITH RECURSIVE pair AS (
    (SELECT r.company_id, r.agent_id, 1 AS n FROM agents_heartbeatrun r
     WHERE r.status = 'queued'
       AND (r.company_id, r.agent_id) > (%(company_id)s::uuid, %(agent_id)s::uuid)
     ORDER BY r.company_id, r.agent_id LIMIT 1)
    UNION ALL
    SELECT following.company_id, following.agent_id, pair.n + 1
    FROM pair CROSS JOIN LATERAL (
        SELECT r.company_id, r.agent_id FROM agents_heartbeatrun r
        WHERE r.status = 'queued'
          AND (r.company_id, r.agent_id) > (pair.company_id, pair.agent_id)
        ORDER BY r.company_id, r.agent_id LIMIT 1) following
    WHERE pair.n < %(window)s
), {_working("ARRAY(SELECT DISTINCT company_id FROM pair)")}
, busy_company AS MATERIALIZED (
    SELECT company_id, count(*) AS agents, sum(runs) AS runs FROM working GROUP BY company_id
), provider AS MATERIALIZED (
    {_PROVIDERS} WHERE p.company_id IN (SELECT company_id FROM pair)
), kind AS MATERIALIZED (
    {_KINDS}
), candidate AS MATERIALIZED (
    SELECT a.company_id, a.id AS agent_id, head.priority, head.id,
           coalesce(bc.runs, 0) + row_number() OVER (
               PARTITION BY a.company_id ORDER BY head.priority, head.id) AS turn
    FROM pair
    JOIN agents_agent a ON a.id = pair.agent_id
    JOIN companies_company c ON c.id = pair.company_id AND c.status = 'active'
    LEFT JOIN busy_company bc ON bc.company_id = pair.company_id
    {_AGENT_ROOM}
    {_ROUTE}
    CROSS JOIN LATERAL (
        SELECT r.priority, r.id
        FROM agents_heartbeatrun r LEFT JOIN issues_issue i ON i.id = r.issue_id
        WHERE r.company_id = pair.company_id AND r.agent_id = pair.agent_id AND {_DUE}
        ORDER BY r.priority, r.id LIMIT 1) head
    WHERE {_ALLOWED} AND {_ROOM} > 0 AND {_REACHABLE} AND {_KIND_ROOM} > 0
      AND (busy.runs > 0 OR coalesce(bc.agents, 0) < c.max_concurrent_agents)
), company AS (
    SELECT company_id, row_number() OVER (ORDER BY min(turn), min(priority), random()) AS place
    FROM candidate GROUP BY company_id
), locked_company AS MATERIALIZED (
    SELECT c.id FROM company
    JOIN companies_company c ON c.id = company.company_id AND c.status = 'active'
    ORDER BY company.place LIMIT %(most)s FOR NO KEY UPDATE OF c SKIP LOCKED
), locked_agent AS MATERIALIZED (
    SELECT a.id FROM candidate
    JOIN locked_company ON locked_company.id = candidate.company_id
    JOIN agents_agent a ON a.id = candidate.agent_id AND a.status = 'active'
    ORDER BY candidate.turn, candidate.priority, candidate.id
    LIMIT %(limit)s FOR NO KEY UPDATE OF a SKIP LOCKED
)
SELECT (SELECT count(*) FROM pair), (SELECT count(*) FROM candidate),
       ARRAY(SELECT id FROM locked_company), ARRAY(SELECT id FROM locked_agent),
       last.company_id, last.agent_id
FROM pair last ORDER BY last.n DESC LIMIT 1
"""  # noqa: S608

# The counts are exact here: whoever could change them waits for the rows locked above.
TAKE = f"""
WITH {_working("%(companies)s::uuid[]")}, company AS MATERIALIZED (
    SELECT c.id, c.max_concurrent_agents - (
        SELECT count(*) FROM working WHERE working.company_id = c.id) AS room
    FROM companies_company c
    WHERE c.id = ANY (%(companies)s::uuid[]) AND c.status = 'active'
      AND EXISTS (SELECT 1 FROM agents_worker w WHERE w.id = %(worker_id)s AND NOT w.draining
                  AND w.lease_expires_at > clock_timestamp())
), provider AS MATERIALIZED (
    {_PROVIDERS} WHERE p.company_id = ANY (%(companies)s::uuid[])
), kind AS MATERIALIZED (
    {_KINDS}
), agent AS MATERIALIZED (
    SELECT a.id, a.company_id, a.adapter_type, {_ROOM} AS room,
           coalesce(busy.runs, 0) > 0 AS at_work,
           CASE WHEN own.room > 0 THEN own.id ELSE spare.id END AS connection_id,
           CASE WHEN own.room > 0 THEN own.room ELSE spare.room END AS provider_room,
           {_KIND_ROOM} AS kind_room
    FROM agents_agent a JOIN company ON company.id = a.company_id
    {_AGENT_ROOM}
    {_ROUTE}
    WHERE a.id = ANY (%(agents)s::uuid[]) AND {_ALLOWED} AND {_REACHABLE}
), due AS MATERIALIZED (
    SELECT agent.id AS agent_id, agent.company_id, agent.at_work, agent.room,
           agent.connection_id, agent.provider_room, agent.adapter_type, agent.kind_room,
           queued.*
    FROM agent CROSS JOIN LATERAL (
        SELECT r.id, r.priority, r.issue_id, {_STALE} AS stale
        FROM agents_heartbeatrun r LEFT JOIN issues_issue i ON i.id = r.issue_id
        WHERE r.company_id = agent.company_id AND r.agent_id = agent.id AND {_DUE}
        ORDER BY r.priority, r.id
        LIMIT least(agent.room, %(depth)s) + %(slack)s) queued
    WHERE agent.room > 0
), ready AS (
    SELECT due.*,
           row_number() OVER (PARTITION BY agent_id ORDER BY priority, id) AS nth_of_agent,
           row_number() OVER (PARTITION BY coalesce(issue_id, id) ORDER BY priority, id)
               AS nth_of_issue
    FROM due WHERE stale = ''
), fit AS (
    SELECT * FROM ready WHERE nth_of_agent <= room AND nth_of_issue = 1
), newcomer AS (
    SELECT first.agent_id, row_number() OVER (
        PARTITION BY first.company_id ORDER BY first.priority, first.id) AS nth
    FROM (SELECT DISTINCT ON (agent_id) agent_id, company_id, priority, id
          FROM fit WHERE NOT at_work ORDER BY agent_id, priority, id) first
), admitted AS (
    SELECT fit.*,
           row_number() OVER (PARTITION BY fit.connection_id ORDER BY fit.priority, fit.id)
               AS nth_of_provider,
           row_number() OVER (PARTITION BY fit.adapter_type ORDER BY fit.priority, fit.id)
               AS nth_of_kind
    FROM fit JOIN company ON company.id = fit.company_id
    LEFT JOIN newcomer ON newcomer.agent_id = fit.agent_id
    WHERE fit.at_work OR newcomer.nth <= company.room
), chosen AS MATERIALIZED (
    SELECT first.*, row_number() OVER () AS place FROM (
        SELECT id, agent_id FROM admitted
        WHERE (connection_id IS NULL OR nth_of_provider <= provider_room)
          AND nth_of_kind <= kind_room
        ORDER BY row_number() OVER (PARTITION BY company_id ORDER BY priority, id), priority, id
        LIMIT %(limit)s) first
), mine AS MATERIALIZED (
    SELECT r.id FROM agents_heartbeatrun r
    WHERE r.status = 'queued'
      AND r.id = ANY (ARRAY(SELECT id FROM chosen UNION ALL SELECT id FROM due WHERE stale <> ''))
    FOR NO KEY UPDATE OF r SKIP LOCKED
), taken AS (
    UPDATE agents_heartbeatrun r
    SET status = 'running', epoch = r.epoch + 1, worker_id = %(worker_id)s,
        started_at = clock_timestamp(), output_at = clock_timestamp(),
        adapter_type = agent.adapter_type, connection_id = agent.connection_id,
        token_digest = (%(digests)s::text[])[chosen.place]
    FROM mine JOIN chosen ON chosen.id = mine.id JOIN agent ON agent.id = chosen.agent_id
    WHERE r.id = mine.id AND r.status = 'queued'
    RETURNING r.id, r.epoch, r.company_id, r.agent_id, r.issue_id, r.created_at, r.adapter_type,
              r.attempt, r.status, r.code, chosen.place
), dropped AS (
    UPDATE agents_heartbeatrun r
    SET status = 'cancelled', epoch = r.epoch + 1, finished_at = clock_timestamp(),
        code = due.stale
    FROM mine JOIN due ON due.id = mine.id
    WHERE r.id = mine.id AND due.stale <> '' AND r.status = 'queued'
    RETURNING r.id, r.epoch, r.company_id, r.agent_id, r.issue_id, r.created_at, r.adapter_type,
              r.attempt, r.status, r.code, NULL::bigint
), moved AS (
    SELECT * FROM taken UNION ALL SELECT * FROM dropped
), noted AS (
    INSERT INTO agents_runevent
        (run_id, company_id, run_created_at, seq, epoch, kind, text, data, at)
    SELECT id, company_id, created_at, 1, epoch, 'status', '',
           jsonb_build_object('status', status, 'code', code), clock_timestamp()
    FROM moved ON CONFLICT DO NOTHING
)
SELECT * FROM moved
"""  # noqa: S608
