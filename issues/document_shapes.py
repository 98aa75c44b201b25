"""Documents, work products, labels and approvals as the API shows them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from issues.approval_models import Approval, ApprovalComment
from issues.document_models import Document, DocumentRevision, IssueLabel, Label, WorkProduct


def document(row: Document, latest_id: uuid.UUID | None) -> dict[str, Any]:
    return {
        "id": row.id,
        "companyId": row.company_id,
        "issueId": row.issue_id,
        "key": row.key,
        "title": row.title or None,
        "format": row.format,
        "body": row.body,
        "latestRevisionId": latest_id,
        "latestRevisionNumber": row.revision,
        "createdByAgentId": row.created_by_agent_id,
        "createdByUserId": row.created_by_user_id,
        "updatedByAgentId": row.updated_by_agent_id,
        "updatedByUserId": row.updated_by_user_id,
        "lockedAt": row.locked_at,
        "lockedByAgentId": row.locked_by_agent_id,
        "lockedByUserId": row.locked_by_user_id,
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
    }


def documents(rows: Sequence[Document]) -> list[dict[str, Any]]:
    """Documents with their latest revisions, in one statement more."""
    latest = {
        (one, number): revision_id
        for revision_id, one, number in DocumentRevision.objects.filter(
            document__in=rows
        ).values_list("id", "document_id", "number")
    }
    return [document(row, latest.get((row.id, row.revision))) for row in rows]


def revision(row: DocumentRevision, of: Document) -> dict[str, Any]:
    return {
        "id": row.id,
        "companyId": row.company_id,
        "documentId": row.document_id,
        "issueId": of.issue_id,
        "key": of.key,
        "revisionNumber": row.number,
        "title": row.title or None,
        "format": row.format,
        "body": row.body,
        "changeSummary": row.change_summary or None,
        "createdByAgentId": row.created_by_agent_id,
        "createdByUserId": row.created_by_user_id,
        "createdByRunId": row.run_id,
        "createdAt": row.created_at,
    }


def product(row: WorkProduct) -> dict[str, Any]:
    return {
        "id": row.id,
        "companyId": row.company_id,
        "projectId": row.issue.project_id,
        "issueId": row.issue_id,
        "type": row.type,
        "provider": row.provider or None,
        "externalId": row.external_id or None,
        "title": row.title,
        "url": row.url or None,
        "status": row.status,
        "reviewState": row.review_state,
        "isPrimary": row.is_primary,
        "healthStatus": "unknown",
        "summary": row.summary or None,
        "metadata": row.metadata,
        "createdByRunId": row.created_by_run_id,
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
    }


def label(row: Label) -> dict[str, Any]:
    return {**_row(row, row.updated_at), "name": row.name, "color": row.color}


def labels(ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[dict[str, Any]]]:
    """The labels of each of these issues, in one statement."""
    found: dict[uuid.UUID, list[dict[str, Any]]] = {}
    pairs = IssueLabel.objects.filter(issue_id__in=ids).select_related("label")
    for pair in pairs.order_by("label__name", "id"):
        found.setdefault(pair.issue_id, []).append(label(pair.label))
    return found


def approval(row: Approval) -> dict[str, Any]:
    return {
        **_row(row, row.updated_at),
        "type": row.type,
        "requestedByAgentId": row.requested_by_agent_id,
        "requestedByUserId": row.requested_by_user_id,
        "agentId": row.agent_id,
        "status": row.status,
        "payload": row.payload,
        "decisionNote": row.decision_note or None,
        "decidedByUserId": row.decided_by_id,
        "decidedAt": row.decided_at,
        "singleUse": row.single_use,
        "consumedByRunId": row.consumed_by_run_id,
        "consumedAt": row.consumed_at,
    }


def approval_comment(row: ApprovalComment) -> dict[str, Any]:
    return {
        **_row(row, row.created_at),
        "approvalId": row.approval_id,
        "authorAgentId": row.author_agent_id,
        "authorUserId": row.author_user_id,
        "body": row.body,
    }


def _row(row: Label | Approval | ApprovalComment, updated_at: datetime) -> dict[str, Any]:
    """What every row of a company says of itself."""
    return {
        "id": row.id,
        "companyId": row.company_id,
        "createdAt": row.created_at,
        "updatedAt": updated_at,
    }
