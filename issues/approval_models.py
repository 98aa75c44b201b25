"""What an agent may not decide: one typed object that people approve or not.

Imported by `models.py`; the verbs are in `approvals.py`.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agents.models import Agent, HeartbeatRun
from companies.ids import new_id
from companies.models import Company, TenantQuerySet, User


class Approval(models.Model):
    class Type(models.TextChoices):
        HIRE = "hire_agent"
        STRATEGY = "approve_ceo_strategy"
        BUDGET = "budget_override_required"
        REQUEST = "request_board_approval"

    class Status(models.TextChoices):
        PENDING = "pending"
        REVISION = "revision_requested"
        APPROVED = "approved"
        REJECTED = "rejected"

    OPEN = (Status.PENDING, Status.REVISION)

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="approvals")
    type = models.CharField(max_length=30, choices=Type, default=Type.REQUEST)
    status = models.CharField(max_length=20, choices=Status, default=Status.PENDING)
    payload = models.JSONField(default=dict, blank=True)
    requested_by_agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="approvals"
    )
    requested_by_user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    agent = models.ForeignKey(
        Agent,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Whom a hire is about.",
    )
    decision_note = models.TextField(blank=True, max_length=20_000)
    decided_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    # Code of before writes rows, too.
    fingerprint = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="Of the wish: who asks for what.",
    )
    single_use = models.BooleanField(
        default=False,
        db_default=False,
        help_text="What it allows is done once, by the run that consumes it.",
    )
    consumed_by_run = models.ForeignKey(
        HeartbeatRun, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    consumed_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = TenantQuerySet["Approval"].as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["company", "created_at", "id"], name="approval_by_company"),
            models.Index(
                fields=["company", "created_at"],
                condition=Q(status__in=["pending", "revision_requested"]),
                name="approval_open",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["company", "fingerprint"],
                condition=Q(status__in=["pending", "revision_requested"]) & ~Q(fingerprint=""),
                name="one_open_approval_a_wish",
            ),
            models.CheckConstraint(
                condition=Q(consumed_at=None) | Q(single_use=True, status="approved"),
                name="only_single_use_is_consumed",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.status}"


class ApprovalIssue(models.Model):
    """An issue that an approval is about."""

    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="links")
    issue = models.ForeignKey("issues.Issue", on_delete=models.CASCADE, related_name="approvals")

    objects = TenantQuerySet["ApprovalIssue"].as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["approval", "issue"], name="one_link_an_approval")
        ]

    def __str__(self) -> str:
        return f"{self.approval_id} {self.issue_id}"


class ApprovalComment(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="comments")
    author_user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    author_agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    body = models.TextField(max_length=100_000)
    created_at = models.DateTimeField()

    objects = TenantQuerySet["ApprovalComment"].as_manager()

    class Meta:
        ordering = ["created_at", "id"]

    def __str__(self) -> str:
        return self.body[:60]
