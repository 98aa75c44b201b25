"""How an issue is taken: by one statement where nothing stands in the way, which is nearly always.
Whatever is unusual is left to `checkouts.py`, which locks, looks and says what is the matter.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.db import connection

from agents.models import Agent, HeartbeatRun
from companies import activity, live
from companies.activity import Actor
from companies.ids import new_id
from issues import consequences, steps
from issues.models import Issue

S = Issue.Status

# Nobody is at it and nothing is before it.
_FREE = """
    NOT EXISTS (SELECT 1 FROM issues_checkout c
                WHERE c.issue_id = i.id AND c.released_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM issues_blocker b
                    JOIN issues_issue before ON before.id = b.blocking_id
                    WHERE b.issue_id = i.id AND before.status NOT IN ('done', 'cancelled'))
"""
_WRITE = f"""
taken AS (
    UPDATE issues_issue i
    SET status = 'in_progress', started_at = coalesce(i.started_at, %(now)s), blocked_reason = '',
        completed_at = NULL, cancelled_at = NULL, version = i.version + 1, updated_at = %(now)s,
        assignee_agent_id = %(agent_id)s
    FROM free WHERE i.id = %(issue_id)s
    RETURNING i.id, i.company_id
), held AS (
    INSERT INTO issues_checkout
        (id, company_id, issue_id, agent_id, run_id, created_at, released_at, release_reason)
    SELECT %(checkout_id)s, company_id, id, %(agent_id)s, %(run_id)s, %(now)s, NULL, '' FROM taken
), noted AS (
    {activity.NOTE} WHERE EXISTS (SELECT 1 FROM taken)
)
SELECT count(*) FROM taken
"""  # noqa: S608
# The issue as it was read. Whoever sets a blocker or takes the issue raises its version under the
# row's lock: so either we see what they did, or the version is another one and we take nothing.
# Then the run, locked behind its issue as everywhere.
_BY_RUN = f"""
WITH issue AS MATERIALIZED (
    SELECT i.id FROM issues_issue i
    WHERE i.id = %(issue_id)s AND i.version = %(version)s AND i.status = %(before)s
      AND i.assignee_agent_id = %(agent_id)s AND {_FREE}
    FOR NO KEY UPDATE OF i
), free AS MATERIALIZED (
    SELECT r.id FROM issue CROSS JOIN agents_heartbeatrun r
    WHERE r.id = %(run_id)s AND r.epoch = %(epoch)s FOR NO KEY UPDATE OF r
), {_WRITE}"""  # noqa: S608
_BY_HAND = f"""
WITH free AS MATERIALIZED (
    SELECT i.id FROM issues_issue i
    WHERE i.id = %(issue_id)s AND i.version = %(version)s AND i.status = %(before)s
      AND i.company_id = %(company_id)s AND i.assignee_user_id IS NULL
      AND (i.assignee_agent_id = %(agent_id)s OR i.assignee_agent_id IS NULL) AND {_FREE}
    FOR NO KEY UPDATE OF i
), {_WRITE}"""  # noqa: S608


def at_once(run: HeartbeatRun, now: datetime) -> bool:
    """Take the run's issue, which was just read, and is its agent's and not closed. False, with
    nothing done, when anything is in the way: then the long way tells what it is."""
    issue = run.issue
    assert issue is not None
    actor = Actor("agent", run.agent_id, run.agent.name, run.pk)
    more = {"run_id": run.pk, "epoch": run.epoch}
    return _take(_BY_RUN, issue, run.agent_id, actor, now, more)


def by_hand(issue: Issue, agent: Agent, actor: Actor, now: datetime) -> bool:
    """Take an issue, which was just read and is open, for an agent that works by its own key. An
    issue of nobody becomes the agent's. False, with nothing done, when anything is in the way."""
    more = {"run_id": None, "company_id": agent.company_id}
    if not _take(_BY_HAND, issue, agent.id, actor, now, more):
        return False
    issue.assignee_agent = agent
    return True


def _take(
    statement: str,
    issue: Issue,
    agent_id: uuid.UUID,
    actor: Actor,
    now: datetime,
    more: dict[str, Any],
) -> bool:
    entry = consequences.entry(
        issue,
        actor=actor,
        action="issue.checked_out",
        now=now,
        details={
            "agentId": str(agent_id),
            "before": {"status": issue.status},
            "after": {"status": S.IN_PROGRESS},
        },
    )
    values: dict[str, Any] = {
        **more,
        "issue_id": issue.pk,
        "version": issue.version,
        "before": str(issue.status),
        "agent_id": agent_id,
        "now": now,
        "checkout_id": new_id(),
        "activity": activity.as_json([entry]),
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        (count,) = cursor.fetchone()
    if not count:
        return False
    steps.mark(issue, S.IN_PROGRESS, now)
    issue.version += 1
    issue.updated_at = now
    live.publish(issue.company_id, "activity")
    consequences.announce(issue)
    return True
