"""Lists of issues as the API shows them: one statement for a page, one plain loop over its rows.

A list is the most read answer of all. The page is chosen by an ordinary queryset (filters, order,
limit); one statement around it reads the columns of its rows with labels, blockers and live runs.
No models in between: a hundred of them cost more than all the rest, and so did writing the JSON in
the database. The shape is that of `shapes.issue`, shorter where a list repeats itself; a test holds
the two together.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from companies import wire
from issues import shapes
from issues.models import Issue

EXCERPT = 100

# The order is that of `_row`.
_COLUMNS = f"""
    i.id, i.company_id, i.project_id, i.goal_id, i.parent_id, i.title,
    left(i.description, {EXCERPT}), length(i.description) > {EXCERPT}, i.status, i.version,
    i.priority, i.assignee_agent_id, i.assignee_user_id, held.run_id,
    held.created_at, i.created_by_agent_id, i.created_by_user_id, i.number, i.identifier,
    i.request_depth, i.billing_code, i.blocked_reason, i.started_at, i.completed_at,
    i.cancelled_at, i.archived_at, i.created_at, i.updated_at,
    labels.labels, waits.count, waits.identifier, waits.blocking_id,
    live.id, live.status, live.agent_id, live.name, live.source, live.started_at,
    live.output_at, live.created_at
"""

# Only constants of this module go in by format; what a caller says goes by parameter.
_LIST = f"""
WITH page AS MATERIALIZED (SELECT p.id, row_number() OVER () AS place FROM (%s) AS p),
labels AS (
    SELECT l.issue_id,
        json_agg(json_build_object(
            'id', b.id, 'companyId', b.company_id, 'name', b.name, 'color', b.color,
            'createdAt', {wire.moment_sql("b.created_at")},
            'updatedAt', {wire.moment_sql("b.updated_at")}
        ) ORDER BY b.name, l.id) AS labels
    FROM issues_issuelabel l JOIN issues_label b ON b.id = l.label_id
    WHERE l.issue_id IN (SELECT id FROM page) GROUP BY l.issue_id
), waits AS (
    SELECT w.issue_id, count(*) AS count,
        (array_agg(o.identifier ORDER BY w.created_at, w.id))[1] AS identifier,
        (array_agg(o.id ORDER BY w.created_at, w.id))[1] AS blocking_id
    FROM issues_blocker w JOIN issues_issue o ON o.id = w.blocking_id
    WHERE w.issue_id IN (SELECT id FROM page) AND o.status NOT IN ('done', 'cancelled')
    GROUP BY w.issue_id
), live AS (
    SELECT DISTINCT ON (r.issue_id) r.issue_id, r.id,
        CASE WHEN r.status = 'queued' AND r.attempt > 1 AND r.not_before > now()
             THEN 'scheduled_retry' ELSE r.status END AS status,
        r.agent_id, a.name, r.source, r.started_at, r.output_at, r.created_at
    FROM agents_heartbeatrun r JOIN agents_agent a ON a.id = r.agent_id
    WHERE r.issue_id IN (SELECT id FROM page) AND r.status IN ('queued', 'running')
    ORDER BY r.issue_id, r.status DESC, r.created_at DESC
)
SELECT {_COLUMNS}
FROM page
JOIN issues_issue i ON i.id = page.id
LEFT JOIN issues_checkout held ON held.issue_id = i.id AND held.released_at IS NULL
LEFT JOIN labels ON labels.issue_id = i.id
LEFT JOIN waits ON waits.issue_id = i.id
LEFT JOIN live ON live.issue_id = i.id
ORDER BY page.place
"""  # noqa: S608


def respond(
    request: HttpRequest,
    issues: QuerySet[Issue],
    *,
    keys: Sequence[str],
    limit: int,
    cursor: str | None,
) -> HttpResponse:
    """A page of `issues` as a bare array, with the next page's address in its headers."""
    wanted = wire.from_cursor(issues, keys, cursor).values("id")[: limit + 1]
    sql, params = wanted.query.sql_with_params()
    with connection.cursor() as database:
        database.execute(_LIST.replace("%s", sql, 1), params)
        found = database.fetchall()
    response = wire.written(wire.dumps([_row(*one) for one in found[:limit]]))
    if len(found) > limit:
        wire.link_next(request, response, _ordered(found[limit - 1]), keys)
    return response


def _ordered(row: tuple[Any, ...]) -> dict[str, Any]:
    """What a list may be ordered by, of a row of `_LIST`."""
    return {"id": row[0], "priority": row[10], "created_at": row[26], "updated_at": row[27]}


def _row(
    id: uuid.UUID, company_id: uuid.UUID, project_id: uuid.UUID | None,
    goal_id: uuid.UUID | None, parent_id: uuid.UUID | None, title: str, excerpt: str,
    is_cut: bool, status: str, version: int, priority: int,
    assignee_agent_id: uuid.UUID | None, assignee_user_id: uuid.UUID | None,
    held_run_id: uuid.UUID | None, held_at: datetime | None,
    created_by_agent_id: uuid.UUID | None, created_by_user_id: uuid.UUID | None, number: int,
    identifier: str, request_depth: int, billing_code: str, blocked_reason: str,
    started_at: datetime | None, completed_at: datetime | None, cancelled_at: datetime | None,
    archived_at: datetime | None, created_at: datetime, updated_at: datetime,
    labels: list[dict[str, Any]] | None, waits: int | None, waits_for: str | None,
    waits_for_id: uuid.UUID | None, *live: Any,
) -> dict[str, Any]:  # fmt: skip
    moment = wire.moment
    changed = moment(updated_at)
    return {
        "id": id,
        "companyId": company_id,
        "projectId": project_id,
        "goalId": goal_id,
        "parentId": parent_id,
        "title": title,
        "description": excerpt or None,
        "status": status,
        "version": version,
        "statusVersion": version,
        "workMode": "standard",
        "priority": shapes.PRIORITIES[priority],
        "assigneeAgentId": assignee_agent_id,
        "assigneeUserId": assignee_user_id,
        "checkoutRunId": held_run_id,
        "executionRunId": held_run_id,
        "executionLockedAt": held_at and moment(held_at),
        "createdByAgentId": created_by_agent_id,
        "createdByUserId": created_by_user_id,
        "issueNumber": number,
        "identifier": identifier,
        "originKind": "manual",
        "requestDepth": request_depth,
        "billingCode": billing_code or None,
        "blockedReason": blocked_reason or None,
        "startedAt": started_at and moment(started_at),
        "completedAt": completed_at and moment(completed_at),
        "cancelledAt": cancelled_at and moment(cancelled_at),
        "hiddenAt": archived_at and moment(archived_at),
        "createdAt": moment(created_at),
        "updatedAt": changed,
        "labels": labels or [],
        "labelIds": [label["id"] for label in labels or ()],
        "descriptionTruncated": is_cut,
        "activeRun": _live(*live) if live[0] else None,
        "blockerAttention": _attention(waits, waits_for, waits_for_id) if waits else _NOTHING,
        "lastActivityAt": changed,
    }


_NOTHING = {"state": "none", "unresolvedBlockerCount": 0}


def _attention(count: int, identifier: str | None, issue_id: uuid.UUID | None) -> dict[str, Any]:
    return {
        "state": "needs_attention",
        "reason": "attention_required",
        "unresolvedBlockerCount": count,
        "sampleBlockerIdentifier": identifier,
        "directBlockerIssueId": issue_id,
    }


def _live(
    id: uuid.UUID, status: str, agent_id: uuid.UUID, agent: str, source: str,
    started_at: datetime | None, output_at: datetime | None, created_at: datetime,
) -> dict[str, Any]:  # fmt: skip
    run = {
        "id": id,
        "status": status,
        "agentId": agent_id,
        "agentName": agent,
        "invocationSource": source,
        "triggerDetail": "manual" if source == "on_demand" else "system",
        "createdAt": wire.moment(created_at),
    }
    if started_at is not None:
        run["startedAt"] = wire.moment(started_at)
    if output_at is not None:
        run["lastOutputAt"] = wire.moment(output_at)
    return run
