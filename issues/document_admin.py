"""The data fixers' view of documents, labels and approvals: history, read-only."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from agents.admin import pretty
from companies.admin_base import Readable
from issues.approval_models import Approval, ApprovalComment, ApprovalIssue
from issues.document_models import (
    Document,
    DocumentRevision,
    IssueLabel,
    IssueMark,
    Label,
    WorkProduct,
)


@admin.register(Document)
class Documents(Readable):
    list_display = ("key", "title", "issue", "revision", "locked_at", "updated_at")
    list_filter = ("format",)
    list_select_related = ("issue",)
    search_fields = ("=key", "title", "=issue__identifier")


@admin.register(DocumentRevision)
class DocumentRevisions(Readable):
    list_display = ("document", "number", "change_summary", "created_at")
    list_select_related = ("document",)
    search_fields = ("=document__key", "=document__issue__identifier")


@admin.register(WorkProduct)
class WorkProducts(Readable):
    list_display = ("title", "type", "provider", "status", "issue", "created_at")
    list_filter = ("status",)
    list_select_related = ("issue",)
    search_fields = ("title", "url", "=issue__identifier")


@admin.register(Label)
class Labels(Readable):
    list_display = ("name", "color", "company", "created_at")
    list_select_related = ("company",)
    search_fields = ("name",)


@admin.register(IssueLabel)
class IssueLabels(Readable):
    list_display = ("issue", "label")
    list_select_related = ("issue", "label")
    search_fields = ("=issue__identifier", "label__name")


@admin.register(IssueMark)
class IssueMarks(Readable):
    list_display = ("issue", "user", "read_at", "archived_at")
    list_select_related = ("issue", "user")
    search_fields = ("=issue__identifier", "=user__email")


@admin.register(Approval)
class Approvals(Readable):
    list_display = ("type", "status", "company", "requested_by_agent", "decided_by", "created_at")
    list_filter = ("type", "status")
    list_select_related = ("company", "requested_by_agent", "decided_by")
    search_fields = ("id", "=requested_by_agent__slug")
    exclude = ("payload",)
    readonly_fields = ("request",)

    @admin.display(description="What is asked")
    def request(self, approval: Approval) -> SafeString:
        """A hire's payload carries a configuration, which may hold secrets in plain text."""
        return pretty(approval.payload)


@admin.register(ApprovalIssue)
class ApprovalIssues(Readable):
    list_display = ("approval", "issue")
    list_select_related = ("approval", "issue")
    search_fields = ("=issue__identifier",)


@admin.register(ApprovalComment)
class ApprovalComments(Readable):
    list_display = ("approval", "author_user", "author_agent", "created_at")
    list_select_related = ("approval", "author_user", "author_agent")
    search_fields = ("=approval__id",)
