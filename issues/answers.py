"""What the API answers about issues, in types. See `companies/answers.py`."""

from __future__ import annotations

import uuid
from datetime import date, datetime
from typing import Any, Literal

from agents.answers import LiveRun
from companies.answers import Goal, Project
from companies.wire import Answer

Status = Literal["backlog", "todo", "in_progress", "in_review", "blocked", "done", "cancelled"]
Priority = Literal["critical", "high", "medium", "low"]


class Label(Answer):
    id: uuid.UUID
    company_id: uuid.UUID
    name: str
    color: str
    created_at: datetime
    updated_at: datetime


class Issue(Answer):
    """What all answers about an issue share."""

    id: uuid.UUID
    company_id: uuid.UUID
    project_id: uuid.UUID | None
    goal_id: uuid.UUID | None
    parent_id: uuid.UUID | None
    title: str
    description: str | None
    status: Status
    version: int
    status_version: int
    work_mode: Literal["standard"]
    priority: Priority
    assignee_agent_id: uuid.UUID | None
    assignee_user_id: uuid.UUID | None
    checkout_run_id: uuid.UUID | None
    checkout_agent_id: uuid.UUID | None
    execution_run_id: uuid.UUID | None
    execution_locked_at: datetime | None
    created_by_agent_id: uuid.UUID | None
    created_by_user_id: uuid.UUID | None
    issue_number: int
    identifier: str
    origin_kind: str
    request_depth: int
    billing_code: str | None
    blocked_reason: str | None
    started_at: datetime | None
    completed_at: datetime | None
    cancelled_at: datetime | None
    hidden_at: datetime | None
    created_at: datetime
    updated_at: datetime
    labels: list[Label]
    label_ids: list[uuid.UUID]


class BlockerAttention(Answer):
    """What keeps an issue waiting, in short; in lists without the keys that would be null."""

    state: Literal["none", "needs_attention"]
    unresolved_blocker_count: int
    reason: str | None = None
    sample_blocker_identifier: str | None = None
    direct_blocker_issue_id: uuid.UUID | None = None


class ListedRun(Answer):
    """The live run of an issue in a list; without the keys that would be null."""

    id: uuid.UUID
    status: Literal["queued", "scheduled_retry", "running"]
    agent_id: uuid.UUID
    agent_name: str
    invocation_source: str
    trigger_detail: Literal["manual", "system"]
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    last_output_at: datetime | None = None


class ListedIssue(Issue):
    """An issue in a list. `description` is its beginning."""

    checkout_agent_id: uuid.UUID | None = None
    """Left out in lists; the run that holds the issue is there."""
    description_truncated: bool
    active_run: ListedRun | None
    blocker_attention: BlockerAttention
    last_activity_at: datetime


class BlockEnd(Answer):
    """The other end of a blocker."""

    id: uuid.UUID
    identifier: str
    title: str
    status: Status
    priority: Priority
    assignee_agent_id: uuid.UUID | None
    assignee_user_id: uuid.UUID | None
    scheduled_retry: None


class RelatedWork(Answer):
    outbound: list[Any]
    inbound: list[Any]


class WrittenIssue(Issue):
    """The answer to a write: the issue and what blocks it."""

    blocked_by: list[BlockEnd]
    blocks: list[BlockEnd]
    related_work: RelatedWork
    referenced_issue_identifiers: list[str]


class Change(Answer):
    """From what to what; only for what changed."""

    from_: Any
    to: Any

    model_config = {"alias_generator": lambda name: name.rstrip("_"), "extra": "allow"}


class ChangedIssue(WrittenIssue):
    changes: dict[str, Change]
    comment: Comment | None = None
    """Only when the change came with one."""


class Ancestor(Answer):
    id: uuid.UUID
    identifier: str
    title: str
    description: str | None
    status: Status
    priority: Priority
    assignee_agent_id: uuid.UUID | None
    assignee_user_id: uuid.UUID | None
    project_id: uuid.UUID | None
    goal_id: uuid.UUID | None


class ReviewPath(Answer):
    kind: Literal["interaction"]
    id: uuid.UUID


class ReviewAttention(Answer):
    state: Literal["none", "waiting"]
    paths: list[ReviewPath]
    reason: None


class DocumentSummary(Answer):
    """A document without its text."""

    id: uuid.UUID
    company_id: uuid.UUID
    issue_id: uuid.UUID
    key: str
    title: str | None
    format: Literal["markdown", "text", "json"]
    latest_revision_id: uuid.UUID | None
    latest_revision_number: int
    created_by_agent_id: uuid.UUID | None
    created_by_user_id: uuid.UUID | None
    updated_by_agent_id: uuid.UUID | None
    updated_by_user_id: uuid.UUID | None
    locked_at: datetime | None
    locked_by_agent_id: uuid.UUID | None
    locked_by_user_id: uuid.UUID | None
    created_at: datetime
    updated_at: datetime


class Document(DocumentSummary):
    body: str


class DocumentRevision(Answer):
    id: uuid.UUID
    company_id: uuid.UUID
    document_id: uuid.UUID
    issue_id: uuid.UUID
    key: str
    revision_number: int
    title: str | None
    format: Literal["markdown", "text", "json"]
    body: str
    change_summary: str | None
    created_by_agent_id: uuid.UUID | None
    created_by_user_id: uuid.UUID | None
    created_by_run_id: uuid.UUID | None
    created_at: datetime


class WorkProduct(Answer):
    """A result that lives elsewhere."""

    id: uuid.UUID
    company_id: uuid.UUID
    project_id: uuid.UUID | None
    issue_id: uuid.UUID
    type: str
    provider: str | None
    external_id: str | None
    title: str
    url: str | None
    status: str
    review_state: str
    is_primary: bool
    health_status: Literal["unknown"]
    summary: str | None
    metadata: dict[str, Any] | None
    created_by_run_id: uuid.UUID | None
    created_at: datetime
    updated_at: datetime


class WholeIssue(WrittenIssue):
    """One issue with all that stands around it."""

    ancestors: list[Ancestor]
    blocker_attention: BlockerAttention
    review_attention: ReviewAttention
    active_run: LiveRun | None
    project: Project | None
    goal: Goal | None
    plan_document: None
    document_summaries: list[DocumentSummary]
    work_products: list[WorkProduct]
    mentioned_projects: list[Any]
    current_execution_workspace: None


class IssueCounts(Answer):
    count: int
    by_status: dict[str, int]


# --- what an agent reads ---------------------------------------------------------------------


class InboxRun(Answer):
    id: uuid.UUID
    status: str
    agent_id: uuid.UUID


class InboxIssue(Answer):
    """An issue that waits for the calling agent."""

    id: uuid.UUID
    identifier: str
    title: str
    status: Status
    priority: Priority
    project_id: uuid.UUID | None
    goal_id: uuid.UUID | None
    parent_id: uuid.UUID | None
    updated_at: datetime
    active_run: InboxRun | None
    active_recovery_action: None
    dependency_ready: bool
    unresolved_blocker_count: int
    unresolved_blocker_issue_ids: list[uuid.UUID]


class ContextIssue(Answer):
    id: uuid.UUID
    identifier: str
    title: str
    description: str | None
    status: Status
    version: int
    work_mode: Literal["standard"]
    priority: Priority
    project_id: uuid.UUID | None
    goal_id: uuid.UUID | None
    parent_id: uuid.UUID | None
    blocked_by: list[BlockEnd]
    blocks: list[BlockEnd]
    assignee_agent_id: uuid.UUID | None
    assignee_user_id: uuid.UUID | None
    origin_kind: str
    updated_at: datetime
    blocker_attention: BlockerAttention
    review_attention: ReviewAttention


class ContextProject(Answer):
    id: uuid.UUID
    name: str
    status: str
    target_date: date | None


class ContextGoal(Answer):
    id: uuid.UUID
    title: str
    status: str
    level: str
    parent_id: uuid.UUID | None


class CommentCursor(Answer):
    """How far the thread reaches; `latestCommentId` goes into `after`."""

    total_comments: int
    latest_comment_id: uuid.UUID | None
    latest_comment_at: datetime | None


class HeartbeatContext(Answer):
    """What an agent reads at the start of a heartbeat."""

    issue: ContextIssue
    ancestors: list[Ancestor]
    project: ContextProject | None
    goal: ContextGoal | None
    comment_cursor: CommentCursor
    wake_comment: Comment | None
    attachments: list[Any]
    continuation_summary: None
    current_execution_workspace: None


# --- the thread ------------------------------------------------------------------------------


class Comment(Answer):
    """One entry of a thread; a deleted one keeps its place and loses its words."""

    id: uuid.UUID
    company_id: uuid.UUID
    issue_id: uuid.UUID
    author_agent_id: uuid.UUID | None
    author_user_id: uuid.UUID | None
    author_type: Literal["user", "agent", "system"]
    created_by_run_id: uuid.UUID | None
    body: str
    deleted_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Interaction(Answer):
    """What an agent asks of people."""

    id: uuid.UUID
    company_id: uuid.UUID
    issue_id: uuid.UUID
    kind: Literal["ask_user_questions", "request_confirmation", "suggest_tasks"]
    status: Literal["pending", "answered", "accepted", "rejected", "cancelled"]
    title: str | None
    payload: dict[str, Any]
    response: Any
    result: Any
    created_by_agent_id: uuid.UUID | None
    source_run_id: uuid.UUID | None
    resolved_by_user_id: uuid.UUID | None
    resolved_at: datetime | None
    created_at: datetime
    updated_at: datetime


class InboxMark(Answer):
    """What a person noted down about an issue for themselves."""

    issue_id: uuid.UUID
    user_id: uuid.UUID
    last_read_at: datetime | None
    archived_at: datetime | None


# --- approvals -------------------------------------------------------------------------------


class Approval(Answer):
    id: uuid.UUID
    company_id: uuid.UUID
    type: Literal[
        "hire_agent", "approve_ceo_strategy", "budget_override_required", "request_board_approval"
    ]
    requested_by_agent_id: uuid.UUID | None
    requested_by_user_id: uuid.UUID | None
    agent_id: uuid.UUID | None
    status: Literal["pending", "revision_requested", "approved", "rejected"]
    payload: dict[str, Any]
    decision_note: str | None
    decided_by_user_id: uuid.UUID | None
    decided_at: datetime | None
    single_use: bool
    consumed_by_run_id: uuid.UUID | None
    consumed_at: datetime | None
    created_at: datetime
    updated_at: datetime


class ApprovalComment(Answer):
    id: uuid.UUID
    company_id: uuid.UUID
    approval_id: uuid.UUID
    author_agent_id: uuid.UUID | None
    author_user_id: uuid.UUID | None
    body: str
    created_at: datetime
    updated_at: datetime


ChangedIssue.model_rebuild()
HeartbeatContext.model_rebuild()
