"""What the instances of one database have to agree on."""

from __future__ import annotations

from django.db import models


class KeyFingerprint(models.Model):
    """Which key the instances of this database use: a slow keyed hash of it, never the key."""

    name = models.CharField(primary_key=True, max_length=30)
    salt = models.CharField(max_length=32)
    digest = models.CharField(max_length=64)
    noted_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
