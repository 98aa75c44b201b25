"""The board: issues, their thread, what blocks them, who holds them, what is asked of people.

Read next: `board.py` (what people do), `work.py` (what agents do).
"""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import F, Q

from agents.models import Agent, HeartbeatRun
from companies.ids import new_id
from companies.models import Company, Goal, Project, TenantQuerySet, User


class IssueCounter(models.Model):
    """The last issue number of a company; its row lock hands out numbers without a gap in use."""

    company = models.OneToOneField(
        Company, primary_key=True, on_delete=models.CASCADE, related_name="issue_counter"
    )
    last_number = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.company_id} {self.last_number}"


class Priority(models.IntegerChoices):
    CRITICAL = 0, "critical"
    HIGH = 1, "high"
    MEDIUM = 2, "medium"
    LOW = 3, "low"


class IssueQuerySet(TenantQuerySet["Issue"]):
    def open(self) -> Self:
        return self.exclude(status__in=Issue.CLOSED)

    def listed(self) -> Self:
        return self.filter(archived_at__isnull=True)


class Issue(models.Model):
    class Status(models.TextChoices):
        BACKLOG = "backlog"
        TODO = "todo"
        IN_PROGRESS = "in_progress"
        IN_REVIEW = "in_review"
        BLOCKED = "blocked"
        DONE = "done"
        CANCELLED = "cancelled"

    CLOSED = (Status.DONE, Status.CANCELLED)

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # A key without an index of its own has a better one below, or is never looked up by.
    company = models.ForeignKey(
        Company, on_delete=models.CASCADE, related_name="issues", db_index=False
    )
    number = models.PositiveIntegerField(editable=False)
    identifier = models.CharField(max_length=24, unique=True, editable=False)
    title = models.CharField(max_length=300)
    description = models.TextField(blank=True, max_length=100_000)
    status = models.CharField(max_length=12, choices=Status, default=Status.BACKLOG)
    priority = models.SmallIntegerField(choices=Priority, default=Priority.MEDIUM)
    assignee_agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="issues",
        db_index=False,
    )  # fmt: skip
    assignee_user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="issues",
        db_index=False,
    )  # fmt: skip
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.SET_NULL, related_name="issues",
        db_index=False,
    )  # fmt: skip
    goal = models.ForeignKey(
        Goal, null=True, blank=True, on_delete=models.SET_NULL, related_name="issues",
        db_index=False,
    )  # fmt: skip
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="children",
        db_index=False,
    )  # fmt: skip
    request_depth = models.PositiveSmallIntegerField(default=0)
    billing_code = models.CharField(max_length=80, blank=True)
    blocked_reason = models.CharField(
        max_length=500, blank=True, help_text="Who must do what, when no issue blocks it."
    )
    created_by_user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+",
        db_index=False,
    )  # fmt: skip
    created_by_agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+",
        db_index=False,
    )  # fmt: skip
    version = models.PositiveIntegerField(default=1, editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    cancelled_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    blocked_by = models.ManyToManyField(
        "self",
        through="Blocker",
        through_fields=("issue", "blocking"),
        symmetrical=False,
        related_name="blocks",
    )

    objects = IssueQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["company", "number"], name="one_issue_a_number"),
            models.CheckConstraint(
                condition=Q(parent__isnull=True) | ~Q(parent=F("id")), name="issue_not_own_parent"
            ),
            models.CheckConstraint(
                condition=Q(assignee_agent__isnull=True) | Q(assignee_user__isnull=True),
                name="one_assignee_an_issue",
            ),
            models.CheckConstraint(
                condition=~Q(status="in_progress")
                | Q(assignee_agent__isnull=False)
                | Q(assignee_user__isnull=False),
                name="in_progress_has_an_assignee",
            ),
        ]
        indexes = [
            # Of what most issues lack, only those that have it: each change writes every index.
            *(
                models.Index(
                    fields=[name, "created_at"],
                    condition=Q(**{f"{name}__isnull": False}),
                    name=f"issue_by_{name}",
                )
                for name in (
                    *("assignee_agent", "assignee_user", "project", "goal", "parent"),
                    "created_by_agent",
                )
            ),
            # The order of the list and of a column of the board: what is counted or shown is read
            # from here, without the rows.
            models.Index(
                fields=["company", "status", "priority", "-id"],
                condition=Q(archived_at__isnull=True),
                name="issue_on_board",
            ),
            # The orders of the API's list.
            models.Index(fields=["company", "updated_at", "id"], name="issue_by_update"),
            models.Index(fields=["company", "created_at", "id"], name="issue_by_creation"),
            models.Index(
                fields=["company", "priority", "id"],
                condition=Q(archived_at__isnull=True),
                name="issue_by_priority",
            ),
            models.Index(
                fields=["assignee_agent", "priority", "id"],
                condition=Q(status__in=["todo", "in_progress", "in_review", "blocked"]),
                name="issue_inbox",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.identifier} {self.title}"


class Blocker(models.Model):
    """`issue` cannot go on before `blocking` is done. Circles are refused by the verb."""

    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    issue = models.ForeignKey(Issue, on_delete=models.CASCADE, related_name="blockers")
    blocking = models.ForeignKey(Issue, on_delete=models.CASCADE, related_name="dependants")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["Blocker"].as_manager()

    class Meta:
        ordering = ["created_at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["issue", "blocking"], name="one_blocker_a_pair"),
            models.CheckConstraint(
                condition=~Q(issue=F("blocking")), name="issue_does_not_block_itself"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.issue_id} waits for {self.blocking_id}"


class Comment(models.Model):
    """One entry of an issue's thread, by a person, an agent or the system (no author)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    issue = models.ForeignKey(Issue, on_delete=models.CASCADE, related_name="comments")
    author_user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    author_agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    run = models.ForeignKey(
        HeartbeatRun, null=True, blank=True, on_delete=models.SET_NULL, related_name="comments"
    )
    body = models.TextField(max_length=100_000)
    created_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects = TenantQuerySet["Comment"].as_manager()

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [models.Index(fields=["issue", "created_at", "id"], name="comment_by_issue")]

    def __str__(self) -> str:
        return self.body[:60]


class Checkout(models.Model):
    """An agent (and its run, if any) holding an issue. Released rows stay as history."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    issue = models.ForeignKey(Issue, on_delete=models.CASCADE, related_name="checkouts")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="checkouts")
    run = models.ForeignKey(
        HeartbeatRun, null=True, blank=True, on_delete=models.SET_NULL, related_name="checkouts"
    )
    created_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True, blank=True)
    release_reason = models.CharField(max_length=40, blank=True)

    objects = TenantQuerySet["Checkout"].as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["issue"],
                condition=Q(released_at__isnull=True),
                name="one_live_checkout_an_issue",
            )
        ]

    def __str__(self) -> str:
        return f"{self.issue_id} by {self.agent_id}"


class Interaction(models.Model):
    """Something an agent asks of people in a thread; the issue waits for the answer."""

    class Kind(models.TextChoices):
        QUESTION = "ask_user_questions"
        CONFIRMATION = "request_confirmation"
        TASKS = "suggest_tasks"

    class Status(models.TextChoices):
        PENDING = "pending"
        ANSWERED = "answered"
        ACCEPTED = "accepted"
        REJECTED = "rejected"
        CANCELLED = "cancelled"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    issue = models.ForeignKey(Issue, on_delete=models.CASCADE, related_name="interactions")
    kind = models.CharField(max_length=24, choices=Kind, default=Kind.QUESTION)
    status = models.CharField(max_length=10, choices=Status, default=Status.PENDING)
    payload = models.JSONField(default=dict)
    response = models.JSONField(null=True, blank=True)
    asked_by_agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    run = models.ForeignKey(
        HeartbeatRun, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    answered_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True, blank=True)

    objects = TenantQuerySet["Interaction"].as_manager()

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [
            models.Index(
                fields=["company", "created_at"],
                condition=Q(status="pending"),
                name="interaction_pending",
            ),
            models.Index(fields=["issue", "created_at"], name="interaction_by_issue"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.status}"


# Django finds models by this module; the nouns that hang on an issue have files of their own.
from issues.approval_models import Approval, ApprovalComment, ApprovalIssue  # noqa: E402
from issues.document_models import (  # noqa: E402
    Document,
    DocumentRevision,
    IssueLabel,
    IssueMark,
    Label,
    WorkProduct,
)
from issues.inbox_models import InboxMark  # noqa: E402
from issues.view_models import SavedView  # noqa: E402
from issues.workspace_models import Workspace, Worktree  # noqa: E402

__all__ = [
    "Approval", "ApprovalComment", "ApprovalIssue", "Blocker", "Checkout", "Comment", "Document",
    "DocumentRevision", "InboxMark", "Interaction", "Issue", "IssueCounter", "IssueLabel",
    "IssueMark", "IssueQuerySet", "Label", "Priority", "SavedView", "WorkProduct",
    "Workspace", "Worktree",
]  # fmt: skip
