"""The data fixers' view of workspaces and work trees: read-only. Both are changed where Git can be
asked, on the pages."""

from __future__ import annotations

from django.contrib import admin

from companies.admin_base import Readable
from issues.workspace_models import Workspace, Worktree


@admin.register(Workspace)
class Workspaces(Readable):
    list_display = ("project", "base_branch", "branch_template", "clean_up", "updated_at")
    list_filter = ("clean_up",)
    list_select_related = ("project",)
    search_fields = ("project__name",)


@admin.register(Worktree)
class Worktrees(Readable):
    list_display = ("branch", "issue", "status", "holder", "path", "last_used_at")
    list_filter = ("status",)
    list_select_related = ("issue", "holder__agent")
    search_fields = ("branch", "path", "=issue__identifier")
    date_hierarchy = "created_at"
