"""What an agent may not decide: one typed object that people approve or not.

Imported by `models.py`; the verbs are in `approvals.py`.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agents.models import Agent
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
