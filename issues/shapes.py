"""Issues, comments and interactions as the API shows them: rows in, plain dictionaries out.

Lists of issues are written by the database: `listed.py`.
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
from issues import document_shapes
from issues.models import Blocker, Checkout, Comment, Interaction, Issue, Priority

MAX_ANCESTORS = 20
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


def full(found: Issue, now: datetime) -> dict[str, Any]:
    """One issue with all that stands around it."""
    blockers, dependants = _related(found)
    waiting = [one for one in blockers if one["status"] not in Issue.CLOSED]
    return {
        **issue(_row(found, _held(found)), document_shapes.labels([found.pk]).get(found.pk)),
        "ancestors": ancestors(found),
        "blockedBy": blockers,
        "blocks": dependants,
        "blockerAttention": attention([(one["id"], one["identifier"]) for one in waiting]),
        "reviewAttention": _review(found),
        "activeRun": live_runs([found.pk], now).get(found.pk),
        "project": company_shapes.project(found.project),
        "goal": company_shapes.goal(found.goal),
        "relatedWork": {"outbound": [], "inbound": []},
        "referencedIssueIdentifiers": [],
        "planDocument": None,
        "documentSummaries": document_shapes.summaries(found.pk),
        "workProducts": [
            document_shapes.product(product)
            for product in found.work_products.select_related("issue").order_by("created_at", "id")
        ],
        "mentionedProjects": [],
        "currentExecutionWorkspace": None,
    }


def written(found: Issue) -> dict[str, Any]:
    """An issue as the answer to a write: itself and what blocks it."""
    blockers, dependants = _related(found)
    labels = document_shapes.labels([found.pk]).get(found.pk)
    return _written(_row(found, _held(found)), labels, blockers, dependants)


def created(found: Issue, *, linked: bool, labelled: bool) -> dict[str, Any]:
    """The same for an issue that is new: nobody holds it and nothing waits for it yet. `linked`:
    it was made with blockers; `labelled`: with labels."""
    blockers = _related(found)[0] if linked else []
    labels = document_shapes.labels([found.pk]).get(found.pk) if labelled else None
    return _written(_row(found, None), labels, blockers, [])


def _written(
    row: dict[str, Any],
    labels: list[dict[str, Any]] | None,
    blockers: list[dict[str, Any]],
    dependants: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        **issue(row, labels),
        "blockedBy": blockers,
        "blocks": dependants,
        "relatedWork": {"outbound": [], "inbound": []},
        "referencedIssueIdentifiers": [],
    }


def _row(found: Issue, held: dict[str, Any] | None) -> dict[str, Any]:
    """The columns of `rows`, of an issue that is loaded already."""
    row = {name: getattr(found, name) for name in COLUMNS if not name.startswith("held__")}
    for name in ("run_id", "agent_id", "created_at"):
        row[f"held__{name}"] = held[name] if held else None
    return row


def _held(found: Issue) -> dict[str, Any] | None:
    live = Checkout.objects.filter(issue_id=found.pk, released_at=None)
    held = live.values("run_id", "agent_id", "created_at").first()
    return dict(held) if held else None


def _related(found: Issue) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What blocks an issue, and what it blocks, in one statement."""
    names = (
        "id", "identifier", "title", "status", "priority", "assignee_agent_id",
        "assignee_user_id",
    )  # fmt: skip
    both = Q(issue_id=found.pk) | Q(blocking_id=found.pk)
    pairs = (
        Blocker.objects.filter(both)
        .order_by("created_at", "id")
        .values(*(f"{end}__{name}" for end in ("issue", "blocking") for name in names))
    )
    blockers, dependants = [], []
    for pair in pairs:
        if pair["issue__id"] == found.pk:
            blockers.append(_end(pair, "blocking"))
        else:
            dependants.append(_end(pair, "issue"))
    return blockers, dependants


def _end(pair: dict[str, Any], end: str) -> dict[str, Any]:
    return {
        "id": pair[f"{end}__id"],
        "identifier": pair[f"{end}__identifier"],
        "title": pair[f"{end}__title"],
        "status": pair[f"{end}__status"],
        "priority": PRIORITIES[pair[f"{end}__priority"]],
        "assigneeAgentId": pair[f"{end}__assignee_agent_id"],
        "assigneeUserId": pair[f"{end}__assignee_user_id"],
        "scheduledRetry": None,
    }


def ancestors(found: Issue) -> list[dict[str, Any]]:
    """Parent, grandparent and so on, nearest first."""
    chain: list[dict[str, Any]] = []
    parent_id = found.parent_id
    while parent_id is not None and len(chain) < MAX_ANCESTORS:
        row = Issue.objects.filter(pk=parent_id).values(*_ANCESTOR).first()
        if row is None:
            break
        parent_id = row["parent_id"]
        chain.append(
            {
                "id": row["id"],
                "identifier": row["identifier"],
                "title": row["title"],
                "description": row["description"] or None,
                "status": row["status"],
                "priority": PRIORITIES[row["priority"]],
                "assigneeAgentId": row["assignee_agent_id"],
                "assigneeUserId": row["assignee_user_id"],
                "projectId": row["project_id"],
                "goalId": row["goal_id"],
            }
        )
    return chain


_ANCESTOR = (
    "id", "identifier", "title", "description", "status", "priority", "assignee_agent_id",
    "assignee_user_id", "project_id", "goal_id", "parent_id",
)  # fmt: skip


def open_blockers(ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[tuple[uuid.UUID, str]]]:
    """For each issue the open ones that block it."""
    found: dict[uuid.UUID, list[tuple[uuid.UUID, str]]] = {}
    pairs = (
        Blocker.objects.filter(issue_id__in=ids)
        .exclude(blocking__status__in=Issue.CLOSED)
        .order_by("created_at", "id")
        .values_list("issue_id", "blocking_id", "blocking__identifier")
    )
    for waiting, blocking, identifier in pairs:
        found.setdefault(waiting, []).append((blocking, identifier))
    return found


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


def _review(found: Issue) -> dict[str, Any]:
    pending = list(
        Interaction.objects.filter(issue=found, status=Interaction.Status.PENDING)
        .order_by("created_at", "id")
        .values_list("id", flat=True)
    )
    paths = [{"kind": "interaction", "id": one} for one in pending]
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
    row = written(found)
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
            "reviewAttention": _review(found),
        },
        "ancestors": ancestors(found),
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
