"""What stands around one issue, in one statement that writes its own JSON.

Asked for one after the other, the dozen small sets around an issue cost more than all else that
reading it takes, and most of them are empty. The shapes are those of `shapes.py` and
`document_shapes.py`; a test holds them together. For lists of issues: `listed.py`.
"""

from __future__ import annotations

import functools
import uuid
from typing import Any

import orjson
from django.db import connection

from companies.wire import moment_sql

MAX_ANCESTORS = 20
_PRIORITY = "(ARRAY['critical', 'high', 'medium', 'low'])[{0}.priority + 1]"


def _end(name: str) -> str:
    """An issue at the other end of a blocker."""
    return f"""json_build_object(
        'id', {name}.id, 'identifier', {name}.identifier, 'title', {name}.title,
        'status', {name}.status, 'priority', {_PRIORITY.format(name)},
        'assigneeAgentId', {name}.assignee_agent_id, 'assigneeUserId', {name}.assignee_user_id,
        'scheduledRetry', NULL)"""


_HELD = f"""
SELECT json_build_object('run_id', h.run_id, 'agent_id', h.agent_id,
    'created_at', {moment_sql("h.created_at")})
FROM issues_checkout h WHERE h.issue_id = %(issue)s AND h.released_at IS NULL
"""  # noqa: S608
_LABELS = f"""
SELECT json_agg(json_build_object(
    'id', b.id, 'companyId', b.company_id, 'name', b.name, 'color', b.color,
    'createdAt', {moment_sql("b.created_at")}, 'updatedAt', {moment_sql("b.updated_at")}
    ) ORDER BY b.name, l.id)
FROM issues_issuelabel l JOIN issues_label b ON b.id = l.label_id WHERE l.issue_id = %(issue)s
"""  # noqa: S608
_ANCESTORS = f"""
SELECT json_agg(json_build_object(
    'id', a.id, 'identifier', a.identifier, 'title', a.title,
    'description', nullif(a.description, ''), 'status', a.status,
    'priority', {_PRIORITY.format("a")}, 'assigneeAgentId', a.assignee_agent_id,
    'assigneeUserId', a.assignee_user_id, 'projectId', a.project_id, 'goalId', a.goal_id
    ) ORDER BY chain.depth)
FROM chain JOIN issues_issue a ON a.id = chain.id
"""  # noqa: S608
_BLOCKERS = f"""
SELECT json_agg({_end("o")} ORDER BY w.created_at, w.id)
FROM issues_blocker w JOIN issues_issue o ON o.id = w.blocking_id WHERE w.issue_id = %(issue)s
"""  # noqa: S608
_DEPENDANTS = f"""
SELECT json_agg({_end("o")} ORDER BY w.created_at, w.id)
FROM issues_blocker w JOIN issues_issue o ON o.id = w.issue_id WHERE w.blocking_id = %(issue)s
"""  # noqa: S608
_ASKED = """
SELECT json_agg(n.id ORDER BY n.created_at, n.id)
FROM issues_interaction n WHERE n.issue_id = %(issue)s AND n.status = 'pending'
"""
_RUN = f"""
SELECT json_build_object(
    'id', r.id,
    'status', CASE WHEN r.status = 'queued' AND r.attempt > 1 AND r.not_before > now()
                   THEN 'scheduled_retry' ELSE r.status END,
    'agentId', r.agent_id, 'agentName', a.name, 'adapterType', r.adapter_type,
    'issueId', r.issue_id, 'invocationSource', r.source,
    'triggerDetail', CASE WHEN r.source = 'on_demand' THEN 'manual' ELSE 'system' END,
    'wakeReason', r.reason, 'startedAt', {moment_sql("r.started_at")},
    'finishedAt', {moment_sql("r.finished_at")}, 'lastOutputAt', {moment_sql("r.output_at")},
    'createdAt', {moment_sql("r.created_at")})
FROM agents_heartbeatrun r JOIN agents_agent a ON a.id = r.agent_id
WHERE r.issue_id = %(issue)s AND r.status IN ('queued', 'running')
ORDER BY r.status DESC, r.created_at DESC LIMIT 1
"""  # noqa: S608
_DOCUMENTS = f"""
SELECT json_agg(json_build_object(
    'id', d.id, 'companyId', d.company_id, 'issueId', d.issue_id, 'key', d.key,
    'title', nullif(d.title, ''), 'format', d.format, 'latestRevisionId', v.id,
    'latestRevisionNumber', d.revision, 'createdByAgentId', d.created_by_agent_id,
    'createdByUserId', d.created_by_user_id, 'updatedByAgentId', d.updated_by_agent_id,
    'updatedByUserId', d.updated_by_user_id, 'lockedAt', {moment_sql("d.locked_at")},
    'lockedByAgentId', d.locked_by_agent_id, 'lockedByUserId', d.locked_by_user_id,
    'createdAt', {moment_sql("d.created_at")}, 'updatedAt', {moment_sql("d.updated_at")}
    ) ORDER BY d.key, d.id)
FROM issues_document d
LEFT JOIN issues_documentrevision v ON v.document_id = d.id AND v.number = d.revision
WHERE d.issue_id = %(issue)s
"""  # noqa: S608
_PRODUCTS = f"""
SELECT json_agg(json_build_object(
    'id', p.id, 'companyId', p.company_id, 'projectId', i.project_id, 'issueId', p.issue_id,
    'type', p.type, 'provider', nullif(p.provider, ''),
    'externalId', nullif(p.external_id, ''), 'title', p.title, 'url', nullif(p.url, ''),
    'status', p.status, 'reviewState', p.review_state, 'isPrimary', p.is_primary,
    'healthStatus', 'unknown', 'summary', nullif(p.summary, ''), 'metadata', p.metadata,
    'createdByRunId', p.created_by_run_id, 'createdAt', {moment_sql("p.created_at")},
    'updatedAt', {moment_sql("p.updated_at")}) ORDER BY p.created_at, p.id)
FROM issues_workproduct p JOIN issues_issue i ON i.id = p.issue_id
WHERE p.issue_id = %(issue)s
"""  # noqa: S608

_SETS = {
    "held": _HELD,
    "labels": _LABELS,
    "ancestors": _ANCESTORS,
    "blockers": _BLOCKERS,
    "dependants": _DEPENDANTS,
    "asked": _ASKED,
    "run": _RUN,
    "documents": _DOCUMENTS,
    "products": _PRODUCTS,
}
# Those that nobody looks into stay the text that they go out as.
_WHOLE = frozenset({"ancestors", "dependants", "run", "documents", "products"})
_CHAIN = f"""
WITH RECURSIVE chain (id, parent_id, depth) AS (
    SELECT a.id, a.parent_id, 1
    FROM issues_issue i JOIN issues_issue a ON a.id = i.parent_id WHERE i.id = %(issue)s
    UNION ALL
    SELECT a.id, a.parent_id, chain.depth + 1
    FROM chain JOIN issues_issue a ON a.id = chain.parent_id
    WHERE chain.depth < {MAX_ANCESTORS}
)
"""  # noqa: S608


def read(issue_id: uuid.UUID, *names: str) -> dict[str, Any]:
    """The sets around an issue by their names in `_SETS`, all of them or those that are asked for;
    what is empty is None."""
    names = names or tuple(_SETS)
    with connection.cursor() as cursor:
        cursor.execute(_statement(names), {"issue": issue_id})
        texts = cursor.fetchone()
    return {
        name: None
        if text is None
        else orjson.Fragment(text)
        if name in _WHOLE
        else orjson.loads(text)
        for name, text in zip(names, texts, strict=True)
    }


@functools.cache
def _statement(names: tuple[str, ...]) -> str:
    columns = ", ".join(f"({_SETS[name]})::text" for name in names)
    return f"{_CHAIN if 'ancestors' in names else ''}SELECT {columns}"
