"""Issues, comments and interactions as the API shows them: rows in, plain dictionaries out.

What stands around an issue: `around.py`. Lists of issues: `listed.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import FilteredRelation, Q, QuerySet

from agents import shapes as run_shapes
from agents.models import HeartbeatRun
from companies import shapes as company_shapes
from companies.models import Goal, Project
from issues import around, document_shapes
from issues.models import Comment, Interaction, Issue, Priority

COLUMNS = (
    "id", "company_id", "number", "identifier", "title", "description", "status", "priority",
    "assignee_agent_id", "assignee_user_id", "project_id", "goal_id", "parent_id",
    "request_depth", "billing_code", "blocked_reason", "created_by_user_id",
    "created_by_agent_id", "version", "started_at", "completed_at", "cancelled_at",
    "archived_at", "created_at", "updated_at", "held__run_id", "held__agent_id",
    "held__created_at",
)  # fmt: skip
PRIORITIES = dict(Priority.choices)


def rows(issues: QuerySet[Issue]) -> QuerySet[Any]:
    """The columns that `issue` needs."""
    held = FilteredRelation("checkouts", condition=Q(checkouts__released_at__isnull=True))
    return issues.annotate(held=held).values(*COLUMNS)


def issue(row: dict[str, Any], labels: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The part that all answers about an issue share."""
    return {
        "id": row["id"],
        "companyId": row["company_id"],
        "projectId": row["project_id"],
        "goalId": row["goal_id"],
        "parentId": row["parent_id"],
        "title": row["title"],
        "description": row["description"] or None,
        "status": row["status"],
        "version": row["version"],
        "statusVersion": row["version"],
        "workMode": "standard",
        "priority": PRIORITIES[row["priority"]],
        "assigneeAgentId": row["assignee_agent_id"],
        "assigneeUserId": row["assignee_user_id"],
        "checkoutRunId": row["held__run_id"],
        "checkoutAgentId": row["held__agent_id"],
        "executionRunId": row["held__run_id"],
        "executionLockedAt": row["held__created_at"],
        "createdByAgentId": row["created_by_agent_id"],
        "createdByUserId": row["created_by_user_id"],
        "issueNumber": row["number"],
        "identifier": row["identifier"],
        "originKind": "manual",
        "requestDepth": row["request_depth"],
        "billingCode": row["billing_code"] or None,
        "blockedReason": row["blocked_reason"] or None,
        "startedAt": row["started_at"],
        "completedAt": row["completed_at"],
        "cancelledAt": row["cancelled_at"],
        "hiddenAt": row["archived_at"],
        "createdAt": row["created_at"],
        "updatedAt": row["updated_at"],
        "labels": labels or [],
        "labelIds": [label["id"] for label in labels or ()],
    }


def full(found: Issue) -> dict[str, Any]:
    """One issue with all that stands around it."""
    near = around.read(found.pk)
    blockers = near["blockers"] or []
    waiting = [one for one in blockers if one["status"] not in _CLOSED]
    return {
        **issue(_row(found, near["held"]), near["labels"]),
        "ancestors": near["ancestors"] or [],
        "blockedBy": blockers,
        "blocks": near["dependants"] or [],
        "blockerAttention": attention([(one["id"], one["identifier"]) for one in waiting]),
        "reviewAttention": _review(found, near["asked"] or []),
        "activeRun": near["run"],
        "project": company_shapes.project(found.project),
        "goal": company_shapes.goal(found.goal),
        "relatedWork": {"outbound": [], "inbound": []},
        "referencedIssueIdentifiers": [],
        "planDocument": None,
        "documentSummaries": near["documents"] or [],
        "workProducts": near["products"] or [],
        "mentionedProjects": [],
        "currentExecutionWorkspace": None,
    }


def written(found: Issue) -> dict[str, Any]:
    """An issue as the answer to a write: itself and what blocks it."""
    near = around.read(found.pk, "held", "labels", "blockers", "dependants")
    return _written(_row(found, near["held"]), near["labels"], near["blockers"], near["dependants"])


def created(found: Issue, *, linked: bool, labelled: bool) -> dict[str, Any]:
    """The same for an issue that is new: nobody holds it and nothing waits for it yet. `linked`:
    it was made with blockers; `labelled`: with labels."""
    blockers = around.read(found.pk, "blockers")["blockers"] if linked else None
    labels = document_shapes.labels([found.pk]).get(found.pk) if labelled else None
    return _written(_row(found, None), labels, blockers, None)


def _written(
    row: dict[str, Any],
    labels: list[dict[str, Any]] | None,
    blockers: list[dict[str, Any]] | None,
    dependants: Any,
) -> dict[str, Any]:
    return {
        **issue(row, labels),
        "blockedBy": blockers or [],
        "blocks": dependants or [],
        "relatedWork": {"outbound": [], "inbound": []},
        "referencedIssueIdentifiers": [],
    }


def _row(found: Issue, held: dict[str, Any] | None) -> dict[str, Any]:
    """The columns of `rows`, of an issue that is loaded already."""
    row = {name: getattr(found, name) for name in COLUMNS if not name.startswith("held__")}
    for name in ("run_id", "agent_id", "created_at"):
        row[f"held__{name}"] = held[name] if held else None
    return row


def attention(blockers: Sequence[tuple[uuid.UUID, str]]) -> dict[str, Any]:
    """What keeps an issue waiting, in short."""
    first = blockers[0] if blockers else (None, None)
    return {
        "state": "needs_attention" if blockers else "none",
        "reason": "attention_required" if blockers else None,
        "unresolvedBlockerCount": len(blockers),
        "sampleBlockerIdentifier": first[1],
        "directBlockerIssueId": first[0],
    }


def _review(found: Issue, asked: Sequence[Any]) -> dict[str, Any]:
    """What a review waits for; `asked` are the pending interactions."""
    paths = [{"kind": "interaction", "id": one} for one in asked]
    waits = found.status == Issue.Status.IN_REVIEW
    return {"state": "waiting" if waits else "none", "paths": paths, "reason": None}


def live_runs(ids: Sequence[uuid.UUID], now: datetime) -> dict[uuid.UUID, dict[str, Any]]:
    """For each issue its running run, or else the queued one."""
    found: dict[uuid.UUID, dict[str, Any]] = {}
    runs = (
        HeartbeatRun.objects.live()
        .filter(issue_id__in=ids)
        .select_related("agent")
        # "running" sorts behind "queued" and so wins.
        .order_by("status", "created_at")
    )
    for run in runs:
        if run.issue_id is not None:
            found[run.issue_id] = run_shapes.brief_run(run, now)
    return found


def context(found: Issue, wake_comment: Comment | None) -> dict[str, Any]:
    """What an agent reads at the start of a heartbeat."""
    near = around.read(found.pk, "held", "labels", "ancestors", "blockers", "dependants", "asked")
    row = _written(_row(found, near["held"]), near["labels"], near["blockers"], near["dependants"])
    keep = (
        "id", "identifier", "title", "description", "status", "version", "workMode", "priority",
        "projectId", "goalId", "parentId", "blockedBy", "blocks", "assigneeAgentId",
        "assigneeUserId", "originKind", "updatedAt",
    )  # fmt: skip
    waiting = [(b["id"], b["identifier"]) for b in row["blockedBy"] if b["status"] not in _CLOSED]
    comments = Comment.objects.filter(issue=found, deleted_at=None)
    latest = comments.order_by("-created_at", "-id").first()
    return {
        "issue": {
            **{name: row[name] for name in keep},
            "blockerAttention": attention(waiting),
            "reviewAttention": _review(found, near["asked"] or []),
        },
        "ancestors": near["ancestors"] or [],
        "project": _short(found.project, "name", "status", "targetDate"),
        "goal": _short(found.goal, "title", "status", "level", "parentId"),
        "commentCursor": {
            "totalComments": comments.count(),
            "latestCommentId": latest.pk if latest else None,
            "latestCommentAt": latest.created_at if latest else None,
        },
        "wakeComment": comment(wake_comment) if wake_comment else None,
        "attachments": [],
        "continuationSummary": None,
        "currentExecutionWorkspace": None,
    }


_CLOSED = frozenset(Issue.CLOSED)


def _short(thing: Project | Goal | None, *names: str) -> dict[str, Any] | None:
    if thing is None:
        return None
    if isinstance(thing, Project):
        shape = company_shapes.project(thing)
    else:
        shape = company_shapes.goal(thing)
    return {name: shape[name] for name in ("id", *names)} if shape else None


def comment(row: Comment) -> dict[str, Any]:
    """One entry of a thread; a deleted one keeps its place and loses its words."""
    gone = row.deleted_at is not None
    kind = "user" if row.author_user_id else "agent" if row.author_agent_id else "system"
    return {
        "id": row.id,
        "companyId": row.company_id,
        "issueId": row.issue_id,
        "authorAgentId": row.author_agent_id,
        "authorUserId": row.author_user_id,
        "authorType": kind,
        "createdByRunId": row.run_id,
        "body": "" if gone else row.body,
        "deletedAt": row.deleted_at,
        "createdAt": row.created_at,
        "updatedAt": row.deleted_at or row.created_at,
    }


def interaction(row: Interaction) -> dict[str, Any]:
    """Something that an agent asks of people."""
    payload = row.payload if isinstance(row.payload, dict) else {}
    return {
        "id": row.id,
        "companyId": row.company_id,
        "issueId": row.issue_id,
        "kind": row.kind,
        "status": row.status,
        "title": payload.get("title"),
        "payload": payload,
        "response": row.response,
        "result": row.response,
        "createdByAgentId": row.asked_by_agent_id,
        "sourceRunId": row.run_id,
        "resolvedByUserId": row.answered_by_id,
        "resolvedAt": row.answered_at,
        "createdAt": row.created_at,
        "updatedAt": row.answered_at or row.created_at,
    }
