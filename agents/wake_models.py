"""What is remembered of wishes beside the run that they became. Imported by `models.py`."""

from __future__ import annotations

from django.db import models

from companies.models import Company, TenantQuerySet


class WakeKey(models.Model):
    """A key (or timer slot) of a wish that folded into a run which had another one already.

    The first key of a run stands in its own row; a wish that comes again is known by either.
    """

    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+", db_index=False)
    agent = models.ForeignKey(
        "agents.Agent", on_delete=models.CASCADE, related_name="+", db_index=False
    )
    key = models.CharField(max_length=210)  # `key:` and the key, or `slot:` and the moment
    run = models.ForeignKey(
        "agents.HeartbeatRun", on_delete=models.CASCADE, related_name="later_keys"
    )

    objects = TenantQuerySet["WakeKey"].as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["agent", "key"], name="one_wish_a_key"),
        ]

    def __str__(self) -> str:
        return self.key
