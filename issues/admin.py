"""The data fixers' admin of the board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from companies.activity import Actor
from companies.admin_base import Editable, Readable, actor, confirmed, each
from issues import board, work
from issues import document_admin as document_admin  # registers itself
from issues import workspace_admin as workspace_admin  # so does this
from issues.models import (
    Blocker,
    Checkout,
    Comment,
    InboxMark,
    Interaction,
    Issue,
    IssueCounter,
    SavedView,
)


class BlockedBy(admin.TabularInline):
    model = Blocker
    fk_name = "issue"
    fields = readonly_fields = ("blocking", "created_at")
    verbose_name_plural = "blocked by"
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("blocking")


@admin.register(Issue)
class Issues(Editable):
    list_display = (
        "identifier",
        "title",
        "company",
        "status",
        "priority",
        "assignee_agent",
        "assignee_user",
        "updated_at",
    )
    list_filter = ("status", "priority")
    list_select_related = ("company", "assignee_agent", "assignee_user")
    search_fields = ("identifier", "title", "=assignee_agent__slug", "id")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    fields = (
        "company",
        "identifier",
        "title",
        "description",
        "priority",
        "billing_code",
        "status",
        "blocked_reason",
        "assignee_agent",
        "assignee_user",
        "project",
        "goal",
        "parent",
        "request_depth",
        "version",
        "created_by_user",
        "created_by_agent",
        "created_at",
        "updated_at",
        "started_at",
        "completed_at",
        "cancelled_at",
        "archived_at",
    )
    inlines = (BlockedBy,)
    actions = ("release", "archive")

    def get_readonly_fields(
        self, request: HttpRequest, obj: Model | None = None
    ) -> tuple[str, ...]:
        editable = ("title", "description", "priority", "billing_code")
        return tuple(field for field in self.fields if field not in editable)

    def change(self, obj: Issue, changes: Mapping[str, Any], by: Actor) -> None:
        board.update(issue=obj, changes=changes, actor=by)

    @confirmed(description="Release the checkout by force")
    def release(self, request: HttpRequest, rows: QuerySet[Issue]) -> None:
        by = actor(request)
        each(self, request, rows, lambda row: work.force_release(issue=row, actor=by), "released")

    @confirmed(description="Archive")
    def archive(self, request: HttpRequest, rows: QuerySet[Issue]) -> None:
        by = actor(request)
        each(self, request, rows, lambda row: board.archive(issue=row, actor=by), "archived")


@admin.register(Blocker)
class Blockers(Readable):
    list_display = ("issue", "blocking", "company", "created_at")
    list_select_related = ("issue", "blocking", "company")
    search_fields = ("issue__identifier", "blocking__identifier")
    date_hierarchy = "created_at"


@admin.register(Comment)
class Comments(Readable):
    list_display = ("created_at", "issue", "author_user", "author_agent", "excerpt")
    list_select_related = ("issue", "author_user", "author_agent")
    search_fields = ("=issue__identifier", "body")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")

    @admin.display(description="Text")
    def excerpt(self, comment: Comment) -> str:
        return comment.body[:120]


@admin.register(Checkout)
class Checkouts(Readable):
    list_display = ("issue", "agent", "run", "created_at", "released_at", "release_reason")
    list_filter = (("released_at", admin.EmptyFieldListFilter), "release_reason")
    list_select_related = ("issue", "agent", "run")
    search_fields = ("=issue__identifier", "=agent__slug")
    date_hierarchy = "created_at"
    actions = ("release",)

    @confirmed(description="Release by force")
    def release(self, request: HttpRequest, rows: QuerySet[Checkout]) -> None:
        by = actor(request)
        held = rows.filter(released_at=None).select_related("issue")
        each(
            self,
            request,
            held,
            lambda row: work.force_release(issue=row.issue, actor=by),
            "released",
        )


@admin.register(Interaction)
class Interactions(Readable):
    list_display = ("created_at", "issue", "kind", "status", "asked_by_agent", "answered_by")
    list_filter = ("status", "kind")
    list_select_related = ("issue", "asked_by_agent", "answered_by")
    search_fields = ("=issue__identifier", "=asked_by_agent__slug")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")


@admin.register(IssueCounter)
class IssueCounters(Readable):
    list_display = ("company", "last_number")
    list_select_related = ("company",)
    search_fields = ("company__name", "company__issue_prefix")


@admin.register(InboxMark)
class InboxMarks(Readable):
    """What people put aside in their inbox."""

    list_display = ("user", "company", "ref", "marked_at", "until")
    list_select_related = ("user", "company")
    search_fields = ("=user__email", "=ref")
    date_hierarchy = "marked_at"
    ordering = ("-marked_at", "-id")


@admin.register(SavedView)
class SavedViews(Readable):
    list_display = ("name", "company", "user", "layout", "query", "is_shared", "created_at")
    list_filter = ("is_shared", "layout")
    list_select_related = ("user", "company")
    search_fields = ("name", "=user__email", "company__name")
    date_hierarchy = "created_at"
