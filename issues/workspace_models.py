"""Where agents work on a project's issues. Imported by `models.py`; verbs are in `workspaces.py`
(the settings) and `worktrees.py` (the folders)."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from agents.models import HeartbeatRun
from companies.ids import new_id
from companies.models import Company, Project, TenantQuerySet


class Workspace(models.Model):
    """That a project's folder is a Git repository, and how its issues get work trees there. A
    project without one has a plain folder, or none."""

    class CleanUp(models.TextChoices):
        KEEP = "keep", "Keep it until a person removes it"
        MERGED = "merged", "Remove it when all is committed and merged"
        CLOSED = "closed", "Remove it when the issue is closed and all is committed and merged"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="+")
    base_branch = models.CharField(
        max_length=120, blank=True, help_text="Empty: the branch that the repository is on."
    )
    branch_template = models.CharField(max_length=120, default="{identifier}-{slug}")
    setup_command = models.JSONField(
        default=list, blank=True, help_text="A list of arguments; run once in a new work tree."
    )
    clean_up = models.CharField(max_length=6, choices=CleanUp, default=CleanUp.KEEP)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = TenantQuerySet["Workspace"].as_manager()

    class Meta:
        ordering = ["created_at", "id"]

    def __str__(self) -> str:
        return f"{self.project_id} {self.branch_template}"


class Worktree(models.Model):
    """One issue's own checkout of its project's repository. Removed ones stay as history."""

    class Status(models.TextChoices):
        MAKING = "making"
        READY = "ready"
        REMOVING = "removing"
        REMOVED = "removed"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    issue = models.ForeignKey("issues.Issue", on_delete=models.CASCADE, related_name="worktrees")
    repository = models.CharField(max_length=1000)
    path = models.CharField(max_length=1000)
    git_dir = models.CharField(max_length=1000, blank=True)
    branch = models.CharField(max_length=120)
    base_branch = models.CharField(max_length=120, blank=True)
    base_commit = models.CharField(max_length=64, blank=True)
    status = models.CharField(max_length=8, choices=Status, default=Status.MAKING)
    is_set_up = models.BooleanField(default=False)
    holder = models.ForeignKey(
        HeartbeatRun, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField()
    looked_at = models.DateTimeField(help_text="When the clean-up policy last looked at it.")

    objects = TenantQuerySet["Worktree"].as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["issue"],
                condition=~Q(status="removed"),
                name="one_live_worktree_an_issue",
            ),
            models.UniqueConstraint(
                fields=["repository", "branch"],
                condition=~Q(status="removed"),
                name="one_live_worktree_a_branch",
            ),
            models.UniqueConstraint(fields=["path"], name="one_worktree_a_path"),
            models.UniqueConstraint(fields=["holder"], name="one_worktree_a_run"),
            models.CheckConstraint(
                condition=Q(holder__isnull=True) | ~Q(status="removed"),
                name="nobody_holds_a_removed_worktree",
            ),
        ]
        indexes = [
            models.Index(
                F("looked_at"),
                condition=Q(status="ready", holder__isnull=True),
                name="worktree_to_look_at",
            ),
            models.Index(fields=["project", "created_at"], name="worktree_by_project"),
        ]

    def __str__(self) -> str:
        return self.branch
