"""A command-line client that asks to be let in. Imported by `models.py`."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from companies.ids import new_id


class CliLogin(models.Model):
    """One request of a client for a person's key. Worth something only after a person said yes.

    The client gets the key's token at once; it becomes a key when it is approved. Of both tokens
    only hashes are kept.
    """

    class Status(models.TextChoices):
        PENDING = "pending"
        APPROVED = "approved"
        CANCELLED = "cancelled"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    key_lookup = models.CharField(max_length=16, unique=True, editable=False)
    key_digest = models.CharField(max_length=64, editable=False)
    command = models.CharField(max_length=200, blank=True)
    client_name = models.CharField(max_length=120, blank=True)
    address = models.CharField(max_length=60, blank=True, help_text="Where it asked from.")
    status = models.CharField(max_length=10, choices=Status, default=Status.PENDING)
    approved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+"
    )
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.client_name} {self.status}"
