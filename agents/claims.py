"""How queued runs start: the one gate that every run passes.

Who may start is decided by PostgreSQL in one short transaction: the rows of the companies and
agents concerned are locked, then, with a fresh look at what runs and what is held, as many runs
are taken as every cap allows. A pause or another claim takes the same locks, so that neither can
slip in between the count and the start. Everything is SKIP LOCKED: claimers never wait for each
other. Read next: `runs.py`.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from django.db import connection, transaction

from agents.wakes import ANSWERING, ORIGINAL_REASON
from companies import faultpoints, live

WINDOW = 128  # agents with something queued that one claim looks at
FEWEST_COMPANIES = 4  # of which one claim takes from, at least, where there are as many
NOBODY = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that now belongs to the claiming worker, as long as its epoch stands."""

    run_id: uuid.UUID
    epoch: int
    company_id: uuid.UUID
    agent_id: uuid.UUID
    issue_id: uuid.UUID | None
    created_at: datetime
    adapter_type: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where the next claim goes on looking, so that everybody has a turn."""

    company_id: uuid.UUID = NOBODY
    agent_id: uuid.UUID = NOBODY


START = Place()


class Batch(list[Claimed]):
    """What was claimed. `more`: there is work that another look may get. `place`: for that look."""

    def __init__(self, runs: list[Claimed], *, more: bool, place: Place) -> None:
        super().__init__(runs)
        self.more = more
        self.place = place


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
    NOT EXISTS (SELECT 1 FROM agents_heartbeatrun other
                WHERE other.issue_id = r.issue_id AND other.status = 'running')
    AND ({_ANSWERS} OR r.reason = 'issue_blockers_resolved' OR i.status <> 'blocked')
    AND ({_ANSWERS} OR NOT EXISTS (
        SELECT 1 FROM issues_blocker b JOIN issues_issue before ON before.id = b.blocking_id
        WHERE b.issue_id = r.issue_id AND before.status NOT IN ('done', 'cancelled')))))
"""  # noqa: S608

# Everything that runs now, counted once: few rows, in an index of their own. Counting agent by
# agent made the planner read all running runs again and again.
_WORKING = """
SELECT x.company_id, x.agent_id, count(*) AS runs FROM agents_heartbeatrun x
WHERE x.status = 'running' {of_whom} GROUP BY x.company_id, x.agent_id
"""
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

# A loose index scan: one probe for each agent with something queued, however long its queue is.
_LOOK = f"""
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
), working AS MATERIALIZED (
    {_WORKING.format(of_whom="")}
), busy_company AS MATERIALIZED (
    SELECT company_id, count(*) AS agents, sum(runs) AS runs FROM working GROUP BY company_id
), provider AS MATERIALIZED (
    {_PROVIDERS} WHERE p.company_id IN (SELECT company_id FROM pair)
), candidate AS (
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
    WHERE {_ALLOWED} AND {_ROOM} > 0 AND {_REACHABLE}
      AND (busy.runs > 0 OR coalesce(bc.agents, 0) < c.max_concurrent_agents)
), company AS (
    SELECT company_id, row_number() OVER (ORDER BY min(turn), min(priority), random()) AS place
    FROM candidate GROUP BY company_id
)
SELECT (SELECT count(*) FROM pair),
       (SELECT array_agg(company_id ORDER BY place) FROM company),
       (SELECT array_agg(agent_id ORDER BY turn, priority, id) FROM candidate),
       last.company_id, last.agent_id
FROM pair last ORDER BY last.n DESC LIMIT 1
"""  # noqa: S608

# A few companies, the next ones where the first are in another claimer's hands: many claimers
# at once do not wait for each other and do not go away empty.
_LOCK_COMPANIES = """
SELECT c.id FROM unnest(%(companies)s::uuid[]) WITH ORDINALITY AS wanted (id, place)
JOIN companies_company c ON c.id = wanted.id AND c.status = 'active'
ORDER BY wanted.place LIMIT %(most)s FOR NO KEY UPDATE OF c SKIP LOCKED
"""
_LOCK_AGENTS = """
SELECT a.id FROM unnest(%(agents)s::uuid[]) WITH ORDINALITY AS wanted (id, place)
JOIN agents_agent a ON a.id = wanted.id AND a.status = 'active'
WHERE a.company_id = ANY (%(companies)s::uuid[])
ORDER BY wanted.place LIMIT %(limit)s FOR NO KEY UPDATE OF a SKIP LOCKED
"""

# The counts are exact here: whoever could change them waits for the rows locked above.
_TAKE = f"""
WITH working AS MATERIALIZED (
    {_WORKING.format(of_whom="AND x.company_id = ANY (%(companies)s::uuid[])")}
), company AS MATERIALIZED (
    SELECT c.id, c.max_concurrent_agents - (
        SELECT count(*) FROM working WHERE working.company_id = c.id) AS room
    FROM companies_company c
    WHERE c.id = ANY (%(companies)s::uuid[]) AND c.status = 'active'
      AND EXISTS (SELECT 1 FROM agents_worker w WHERE w.id = %(worker_id)s AND NOT w.draining
                  AND w.lease_expires_at > clock_timestamp())
), provider AS MATERIALIZED (
    {_PROVIDERS} WHERE p.company_id = ANY (%(companies)s::uuid[])
), agent AS MATERIALIZED (
    SELECT a.id, a.company_id, a.adapter_type, {_ROOM} AS room,
           coalesce(busy.runs, 0) > 0 AS at_work,
           CASE WHEN own.room > 0 THEN own.id ELSE spare.id END AS connection_id,
           CASE WHEN own.room > 0 THEN own.room ELSE spare.room END AS provider_room
    FROM agents_agent a JOIN company ON company.id = a.company_id
    {_AGENT_ROOM}
    {_ROUTE}
    WHERE a.id = ANY (%(agents)s::uuid[]) AND {_ALLOWED} AND {_REACHABLE}
), due AS MATERIALIZED (
    SELECT agent.id AS agent_id, agent.company_id, agent.at_work, agent.room,
           agent.connection_id, agent.provider_room, queued.*
    FROM agent CROSS JOIN LATERAL (
        SELECT r.id, r.priority, r.issue_id, {_STALE} AS stale
        FROM agents_heartbeatrun r LEFT JOIN issues_issue i ON i.id = r.issue_id
        WHERE r.company_id = agent.company_id AND r.agent_id = agent.id AND {_DUE}
        ORDER BY r.priority, r.id
        LIMIT least(agent.room, %(depth)s) + 4
        FOR NO KEY UPDATE OF r SKIP LOCKED) queued
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
    SELECT fit.*, row_number() OVER (
        PARTITION BY fit.connection_id ORDER BY fit.priority, fit.id) AS nth_of_provider
    FROM fit JOIN company ON company.id = fit.company_id
    LEFT JOIN newcomer ON newcomer.agent_id = fit.agent_id
    WHERE fit.at_work OR newcomer.nth <= company.room
), chosen AS MATERIALIZED (
    SELECT id, agent_id FROM admitted
    WHERE connection_id IS NULL OR nth_of_provider <= provider_room
    ORDER BY row_number() OVER (PARTITION BY company_id ORDER BY priority, id), priority, id
    LIMIT %(limit)s
), taken AS (
    UPDATE agents_heartbeatrun r
    SET status = 'running', epoch = r.epoch + 1, worker_id = %(worker_id)s,
        started_at = clock_timestamp(), output_at = clock_timestamp(),
        adapter_type = agent.adapter_type, connection_id = agent.connection_id
    FROM chosen JOIN agent ON agent.id = chosen.agent_id
    WHERE r.id = chosen.id AND r.status = 'queued'
    RETURNING r.id, r.epoch, r.company_id, r.agent_id, r.issue_id, r.created_at, r.adapter_type,
              r.attempt, r.status, r.code
), dropped AS (
    UPDATE agents_heartbeatrun r
    SET status = 'cancelled', epoch = r.epoch + 1, finished_at = clock_timestamp(),
        code = due.stale
    FROM due WHERE r.id = due.id AND due.stale <> '' AND r.status = 'queued'
    RETURNING r.id, r.epoch, r.company_id, r.agent_id, r.issue_id, r.created_at, r.adapter_type,
              r.attempt, r.status, r.code
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


def claim(
    *,
    worker_id: uuid.UUID,
    limit: int,
    place: Place = START,
    window: int = WINDOW,
) -> Batch:
    """Start up to `limit` queued runs for a live, undrained worker.

    Fair between companies (who has the least running is served first), then by priority, then by
    age. Queued runs that have lost their purpose (issue closed, archived, parked or reassigned)
    are cancelled on the way, with that as their code. Caps hold exactly, also against a claim or
    a pause at the same moment.
    """
    if limit < 1:
        return Batch([], more=False, place=place)
    with transaction.atomic(), _cursor() as cursor:
        seen, companies, agents, last = _look(cursor, place, window)
        if seen == 0:
            # Behind the last one: the next look begins at the front.
            return Batch([], more=place != START, place=START)
        onward = last if seen >= window else START
        unseen = seen >= window or place != START
        if not agents:
            return Batch([], more=unseen, place=onward)
        depth, moved = _take(cursor, worker_id, limit, companies, agents)
        faultpoints.reach("claiming")
    taken = [Claimed(*moved_row[:8]) for moved_row in moved if moved_row[8] == "running"]
    _tell(moved)
    full = len(taken) >= limit
    deepest = max(Counter(run.agent_id for run in taken).values(), default=0)
    more = not full and (unseen or len(taken) < len(agents) or deepest >= depth > 1)
    return Batch(taken, more=more, place=place if full else onward)


def _look(
    cursor: Any, place: Place, window: int
) -> tuple[int, list[uuid.UUID], list[uuid.UUID], Place]:
    """How many agents with a queue were looked at, which companies and agents among them may
    start something (in fair order), and where the look ended."""
    _execute(
        cursor,
        _LOOK,
        {"company_id": place.company_id, "agent_id": place.agent_id, "window": window},
    )
    row = cursor.fetchone()
    if row is None:
        return 0, [], [], place
    seen, companies, agents, *last = row
    return seen, companies or [], agents or [], Place(*last)


def _take(
    cursor: Any,
    worker_id: uuid.UUID,
    limit: int,
    companies: list[uuid.UUID],
    agents: list[uuid.UUID],
) -> tuple[int, list[tuple[Any, ...]]]:
    """Lock and start. Returns how many runs of an agent were considered, and what was moved."""
    most = max(FEWEST_COMPANIES, limit // 6)
    _execute(cursor, _LOCK_COMPANIES, {"companies": companies, "most": most})
    locked = [row[0] for row in cursor.fetchall()]
    if not locked:
        return 0, []
    _execute(cursor, _LOCK_AGENTS, {"agents": agents, "companies": locked, "limit": limit})
    mine = [row[0] for row in cursor.fetchall()]
    if not mine:
        return 0, []
    depth = -(-limit // len(mine))
    _execute(
        cursor,
        _TAKE,
        {
            "companies": locked,
            "agents": mine,
            "worker_id": worker_id,
            "limit": limit,
            "depth": depth,
        },
    )
    return depth, cursor.fetchall()


def _cursor() -> Any:
    """A cursor that binds on the server, so that the long statements are planned once."""
    connection.ensure_connection()
    return psycopg.Cursor(connection.connection)


def _execute(cursor: Any, statement: str, values: dict[str, Any]) -> None:
    # Behind a pooler in transaction mode a prepared statement may be on another connection.
    pooled = connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"]
    with connection.wrap_database_errors:
        cursor.execute(statement, values, prepare=not pooled)


def _tell(moved: list[tuple[Any, ...]]) -> None:
    for run_id, _, company_id, agent_id, issue_id, *_ in moved:
        live.publish(company_id, "runs")
        live.publish(company_id, "run", run_id)
        live.publish(company_id, "agent", agent_id)
        if issue_id is not None:
            live.publish(company_id, "issue", issue_id)
