"""Lists of issues, as JSON that PostgreSQL writes.

A list is the most read answer of all, and building a hundred rows in Python costs several times
what reading them does. The page is chosen by an ordinary queryset (filters, order, limit); one
statement around it writes each row's JSON with its labels, blockers and live run. The shape is that
of `shapes.issue`, shorter where a list repeats itself; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from companies import wire
from issues.models import Issue

EXCERPT = 160

_AT = "to_char({0} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"


def _at(column: str) -> str:
    return _AT.format(column)


_ROW = f"""
json_build_object(
    'id', i.id, 'companyId', i.company_id, 'projectId', i.project_id, 'goalId', i.goal_id,
    'parentId', i.parent_id, 'title', i.title,
    'description', nullif(left(i.description, {EXCERPT}), ''),
    'status', i.status, 'version', i.version, 'statusVersion', i.version,
    'workMode', 'standard',
    'priority', (ARRAY['critical', 'high', 'medium', 'low'])[i.priority + 1],
    'assigneeAgentId', i.assignee_agent_id, 'assigneeUserId', i.assignee_user_id,
    'checkoutRunId', held.run_id, 'checkoutAgentId', held.agent_id,
    'executionRunId', held.run_id, 'executionLockedAt', {_at("held.created_at")},
    'createdByAgentId', i.created_by_agent_id, 'createdByUserId', i.created_by_user_id,
    'issueNumber', i.number, 'identifier', i.identifier, 'originKind', 'manual',
    'requestDepth', i.request_depth, 'billingCode', nullif(i.billing_code, ''),
    'blockedReason', nullif(i.blocked_reason, ''),
    'startedAt', {_at("i.started_at")}, 'completedAt', {_at("i.completed_at")},
    'cancelledAt', {_at("i.cancelled_at")}, 'hiddenAt', {_at("i.archived_at")}
)::jsonb || json_build_object(
    'createdAt', {_at("i.created_at")}, 'updatedAt', {_at("i.updated_at")},
    'labels', coalesce(labels.labels, '[]'), 'labelIds', coalesce(labels.ids, '[]'),
    'descriptionTruncated', length(i.description) > {EXCERPT},
    'activeRun', live.run,
    'blockerAttention', json_strip_nulls(json_build_object(
        'state', CASE WHEN waits.count > 0 THEN 'needs_attention' ELSE 'none' END,
        'reason', CASE WHEN waits.count > 0 THEN 'attention_required' END,
        'unresolvedBlockerCount', coalesce(waits.count, 0),
        'sampleBlockerIdentifier', waits.identifier,
        'directBlockerIssueId', waits.blocking_id)),
    'lastActivityAt', {_at("i.updated_at")}
)::jsonb
"""

# Only constants of this module go in by format; what a caller says goes by parameter.
_LIST = f"""
WITH page AS MATERIALIZED (SELECT p.*, row_number() OVER () AS place FROM (%s) AS p),
labels AS (
    SELECT l.issue_id,
        json_agg(json_build_object(
            'id', b.id, 'companyId', b.company_id, 'name', b.name, 'color', b.color,
            'createdAt', {_at("b.created_at")}, 'updatedAt', {_at("b.updated_at")}
        ) ORDER BY b.name, l.id) AS labels,
        json_agg(b.id ORDER BY b.name, l.id) AS ids
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
    SELECT DISTINCT ON (r.issue_id) r.issue_id, json_strip_nulls(json_build_object(
        'id', r.id,
        'status', CASE WHEN r.status = 'queued' AND r.attempt > 1 AND r.not_before > now()
                       THEN 'scheduled_retry' ELSE r.status END,
        'agentId', r.agent_id, 'agentName', a.name, 'invocationSource', r.source,
        'triggerDetail', CASE WHEN r.source = 'on_demand' THEN 'manual' ELSE 'system' END,
        'startedAt', {_at("r.started_at")},
        'finishedAt', {_at("r.finished_at")}, 'lastOutputAt', {_at("r.output_at")},
        'createdAt', {_at("r.created_at")})) AS run
    FROM agents_heartbeatrun r JOIN agents_agent a ON a.id = r.agent_id
    WHERE r.issue_id IN (SELECT id FROM page) AND r.status IN ('queued', 'running')
    ORDER BY r.issue_id, r.status DESC, r.created_at DESC
)
SELECT ({_ROW})::text, i.id, i.created_at, i.updated_at, i.priority
FROM page
JOIN issues_issue i ON i.id = page.id
LEFT JOIN issues_checkout held ON held.issue_id = i.id AND held.released_at IS NULL
LEFT JOIN labels ON labels.issue_id = i.id
LEFT JOIN waits ON waits.issue_id = i.id
LEFT JOIN live ON live.issue_id = i.id
ORDER BY page.place
"""  # noqa: S608
_COLUMNS = ("json", "id", "created_at", "updated_at", "priority")


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
        rows: list[dict[str, Any]] = [
            dict(zip(_COLUMNS, row, strict=True)) for row in database.fetchall()
        ]
    more, rows = len(rows) > limit, rows[:limit]
    body = "[" + ",".join(row["json"] for row in rows) + "]"
    response = wire.written(body.encode())
    if more:
        wire.link_next(request, response, rows[-1], keys)
    return response
