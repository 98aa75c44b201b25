"""The rows behind the figures of an instance: counts that survive their processes, and what each
process last said of itself.

Read next: `meters.py` (who writes them), `paperclip/metrics.py` (who shows them).
"""

from __future__ import annotations

from django.db import models

from companies.ids import new_id
from companies.models import Company, TenantQuerySet


class Counter(models.Model):
    """What has happened so many times on this database, whoever saw it. Only ever grows."""

    name = models.CharField(max_length=40)
    label = models.CharField(max_length=80, blank=True)
    value = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["name", "label"]
        constraints = [
            models.UniqueConstraint(fields=["name", "label"], name="one_counter_a_name_and_label")
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.label}: {self.value}"


class AgentTally(models.Model):
    """What happened to one agent on one day (UTC), by reason: wakes refused, beats saved."""

    class Name(models.TextChoices):
        REFUSED = "refused"  # a wish to wake it that came to nothing
        SAVED = "saved"  # a regular beat with nothing to do: no model was called

    id = models.BigAutoField(primary_key=True)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    agent = models.ForeignKey("agents.Agent", on_delete=models.CASCADE, related_name="tallies")
    day = models.DateField()
    name = models.CharField(max_length=10, choices=Name)
    reason = models.CharField(max_length=40)
    count = models.BigIntegerField(default=0)

    objects = TenantQuerySet["AgentTally"].as_manager()

    class Meta:
        ordering = ["-day", "name", "reason"]
        constraints = [
            models.UniqueConstraint(
                fields=["agent", "day", "name", "reason"], name="one_tally_a_day_and_reason"
            )
        ]
        indexes = [
            models.Index(fields=["company", "name", "day"], name="tally_by_company"),
            models.Index(fields=["day"], name="tally_by_day"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.reason}: {self.count}"


class ProcessReport(models.Model):
    """What a process last said of itself: memory, threads, streams. For people and dashboards."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    instance = models.CharField(max_length=120)
    kind = models.CharField(max_length=10)  # web or shift
    pid = models.PositiveIntegerField()
    facts = models.JSONField(default=dict)
    at = models.DateTimeField()

    class Meta:
        ordering = ["instance", "kind", "id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.pid} of {self.instance}"
