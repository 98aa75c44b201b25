"""The end of a run as PostgreSQL sees it: what is read, locked and written at its issue.

Each verb is one statement; in which order, and what they mean, is `work.report`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from agents.models import Agent, HeartbeatRun
from companies import rows
from companies.ids import new_id
from issues.models import Issue


@dataclass(frozen=True, slots=True)
class Seen:
    """A run that is about to end, with its agent; how many issues its agent has made since it
    began; whether it has any issue checked out."""

    run: HeartbeatRun
    made: int
    holds: bool


_RUN = rows.part(
    HeartbeatRun, "id", "company_id", "agent_id", "issue_id", "status", "priority", "source",
    "reason", "comment_ids", "payload", "attempt", "created_at", "epoch", "adapter_type",
    "connection_id", "started_at", "acted_at", "cancel_reason", "cost_micros",
)  # fmt: skip
_AGENT = rows.part(
    Agent, "id", "company_id", "name", "status", "adapter_type", "on_finish", "loop_limits"
)
# An issue without its description, which may be long.
_ISSUE = rows.part(
    Issue, "id", "company_id", "number", "identifier", "title", "status", "priority",
    "assignee_agent_id", "assignee_user_id", "parent_id", "blocked_reason", "version",
    "started_at", "completed_at", "cancelled_at", "updated_at",
)  # fmt: skip

# The graph's lock is taken on the way, for what is asked after this.
_READ = f"""
SELECT {rows.columns(_RUN, "r")}, {rows.columns(_AGENT, "a")},
       (SELECT count(*) FROM issues_issue made
        WHERE made.created_by_agent_id = r.agent_id AND made.company_id = r.company_id
          AND made.created_at >= r.started_at),
       EXISTS (SELECT 1 FROM issues_checkout c WHERE c.run_id = r.id AND c.released_at IS NULL),
       CASE WHEN r.issue_id IS NOT NULL THEN pg_advisory_xact_lock_shared(
           hashtext('issues.graph'), hashtext(r.company_id::text)) END
FROM agents_heartbeatrun r JOIN agents_agent a ON a.id = r.agent_id
WHERE r.id = %(run_id)s AND r.epoch = %(epoch)s
"""  # noqa: S608


def read(*, run_id: uuid.UUID, epoch: int) -> Seen | None:
    """The run, None when it has left this epoch. Takes its company's graph lock (`graph.lock`,
    shared) when it is about an issue."""
    found = rows.fetch(_READ, {"run_id": run_id, "epoch": epoch}, _RUN, _AGENT)
    if not found:
        return None
    run: HeartbeatRun
    run, run.agent, made, holds, _ = found[0]
    return Seen(run, made, holds)


# The run's issue, whom closing it may free (its parent, what it blocks), and all that the run has
# checked out. Asked for under the graph's lock, locked in the order of their ids.
_LOCK = f"""
SELECT {rows.columns(_ISSUE, "i")},
       EXISTS (SELECT 1 FROM issues_checkout c
               WHERE c.issue_id = i.id AND c.run_id = %(run_id)s AND c.released_at IS NULL)
FROM issues_issue i
WHERE i.id = ANY (ARRAY(
    SELECT %(issue_id)s::uuid
    UNION ALL SELECT own.parent_id FROM issues_issue own WHERE own.id = %(issue_id)s
    UNION ALL SELECT b.issue_id FROM issues_blocker b WHERE b.blocking_id = %(issue_id)s
    UNION ALL SELECT c.issue_id FROM issues_checkout c
              WHERE c.run_id = %(run_id)s AND c.released_at IS NULL))
ORDER BY i.id FOR NO KEY UPDATE OF i
"""  # noqa: S608


def lock(run: HeartbeatRun) -> tuple[dict[uuid.UUID, Issue], set[uuid.UUID]]:
    """The issues that the end of a run may touch, locked; and which of them it has checked out."""
    found = rows.fetch(_LOCK, {"run_id": run.pk, "issue_id": run.issue_id}, _ISSUE)
    return {issue.id: issue for issue, _ in found}, {issue.id for issue, taken in found if taken}


@dataclass(frozen=True, slots=True)
class Look:
    """What decides how it goes on with an issue whose run has ended."""

    is_mine: bool  # the run has it checked out
    has_spoken: bool  # the agent wrote a comment or asked something in this run
    has_failed: bool  # that the run has failed is in the thread already
    is_asked: bool  # a question to people is open
    is_called: bool  # a run of the same agent about it is queued
    has_blockers: bool  # open or not
    has_open_children: bool
    is_held: bool  # somebody else has it checked out
    is_run: bool  # another run about it is queued or going on


_LOOK = """
SELECT EXISTS (SELECT 1 FROM issues_checkout
               WHERE issue_id = %(id)s AND run_id = %(run_id)s AND released_at IS NULL),
       EXISTS (SELECT 1 FROM issues_comment
               WHERE run_id = %(run_id)s AND author_agent_id = %(agent_id)s)
    OR EXISTS (SELECT 1 FROM issues_interaction WHERE run_id = %(run_id)s),
       EXISTS (SELECT 1 FROM issues_comment
               WHERE run_id = %(run_id)s AND author_agent_id IS NULL AND author_user_id IS NULL),
       EXISTS (SELECT 1 FROM issues_interaction WHERE issue_id = %(id)s AND status = 'pending'),
       EXISTS (SELECT 1 FROM agents_heartbeatrun
               WHERE agent_id = %(agent_id)s AND issue_id = %(id)s AND status = 'queued'),
       EXISTS (SELECT 1 FROM issues_blocker WHERE issue_id = %(id)s),
       EXISTS (SELECT 1 FROM issues_issue
               WHERE parent_id = %(id)s AND status NOT IN ('done', 'cancelled')),
       EXISTS (SELECT 1 FROM issues_checkout
               WHERE issue_id = %(id)s AND run_id IS DISTINCT FROM %(run_id)s
                 AND released_at IS NULL),
       EXISTS (SELECT 1 FROM agents_heartbeatrun WHERE issue_id = %(id)s AND status = 'queued')
    OR EXISTS (SELECT 1 FROM agents_heartbeatrun
               WHERE issue_id = %(id)s AND status = 'running' AND id <> %(run_id)s)
"""


def look(issue: Issue, run: HeartbeatRun) -> Look:
    """Asked when the issue is locked: who has had it before is seen with all that they did."""
    with connection.cursor() as cursor:
        cursor.execute(_LOOK, {"id": issue.pk, "run_id": run.pk, "agent_id": run.agent_id})
        return Look(*cursor.fetchone())


@dataclass(frozen=True, slots=True)
class Words:
    """A comment that the end of a run leaves, of the agent or of the system (None)."""

    body: str
    author_agent_id: uuid.UUID | None
    id: uuid.UUID


def words(body: str, author: Agent | None) -> Words:
    return Words(body, author.pk if author is not None else None, new_id())


_WRITE = """
WITH released AS (
    UPDATE issues_checkout SET released_at = %(now)s, release_reason = %(reason)s
    WHERE issue_id = %(id)s AND run_id = %(run_id)s AND released_at IS NULL
), said AS (
    INSERT INTO issues_comment (id, company_id, issue_id, author_user_id, author_agent_id, run_id,
        body, created_at, deleted_at)
    SELECT %(comment_id)s::uuid, %(company_id)s, %(id)s, NULL, %(author_id)s::uuid, %(run_id)s,
        %(body)s, %(now)s, NULL
    WHERE %(comment_id)s::uuid IS NOT NULL
)
UPDATE issues_issue
SET status = %(status)s, blocked_reason = %(blocked_reason)s, started_at = %(started_at)s,
    completed_at = %(completed_at)s, cancelled_at = %(cancelled_at)s, version = %(version)s,
    updated_at = %(now)s
WHERE id = %(id)s AND %(changed)s
"""


def write(
    issue: Issue,
    run: HeartbeatRun,
    *,
    reason: str,
    said: Words | None,
    changed: bool,
    now: datetime,
) -> None:
    """End the run's own checkout of a locked issue, leave its words in the thread, and write the
    issue's status and what goes with it where that has `changed`."""
    if changed:
        issue.version += 1
        issue.updated_at = now
    values: dict[str, Any] = {
        "id": issue.pk,
        "company_id": issue.company_id,
        "run_id": run.pk,
        "now": now,
        "reason": reason[:40],
        "comment_id": said.id if said else None,
        "author_id": said.author_agent_id if said else None,
        "body": said.body if said else "",
        "status": str(issue.status),
        "blocked_reason": issue.blocked_reason,
        "started_at": issue.started_at,
        "completed_at": issue.completed_at,
        "cancelled_at": issue.cancelled_at,
        "version": issue.version,
        "changed": changed,
    }
    with connection.cursor() as cursor:
        cursor.execute(_WRITE, values)
