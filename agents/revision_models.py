"""How an agent was set up, and when that changed. Imported by `models.py`."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from companies.ids import new_id
from companies.models import Company, TenantQuerySet, User


class AgentRevision(models.Model):
    """One change of an agent's set-up: before and after. Never changed itself."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    agent = models.ForeignKey("agents.Agent", on_delete=models.CASCADE, related_name="revisions")
    before = models.JSONField()
    after = models.JSONField()
    changed = ArrayField(models.CharField(max_length=40), default=list)
    rolled_back_from = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_by_user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_by_agent = models.ForeignKey(
        "agents.Agent", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField()

    objects = TenantQuerySet["AgentRevision"].as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["agent", "created_at", "id"], name="agent_revision_by_agent")
        ]

    def __str__(self) -> str:
        return ", ".join(self.changed)
