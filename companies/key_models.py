"""The keys that seal, and who opened what. Imported by `models.py`; used by `keyring.py`,
`rotation.py` and `secrets.py`."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from companies.ids import new_id
from companies.models import Company, TenantQuerySet


class SealingKey(models.Model):
    """A key that wraps the data keys of sealed values; itself wrapped by one that is derived from
    SECRET_KEY (`root` says from which). Deleted when it is retired."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    root = models.BinaryField(editable=False)
    wrapped = models.BinaryField(editable=False)
    is_current = models.BooleanField(default=True, help_text="What is sealed now is sealed by it.")
    created_at = models.DateTimeField()
    rotated_at = models.DateTimeField(
        null=True, help_text="When everything had been wrapped by it; empty: not yet."
    )

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["is_current"], condition=Q(is_current=True), name="one_current_sealing_key"
            )
        ]

    def __str__(self) -> str:
        return str(self.id)


class SecretRead(models.Model):
    """That a stored secret was opened: which, when, for what, and by which run or person. Ids only,
    kept for some months; the secret may be gone."""

    class Purpose(models.TextChoices):
        RUN = "run"  # given to a run
        REDACTION = "redaction"  # to keep it out of what a run said later
        TEST = "test"  # somebody tried a configuration or a connection
        OTHER = "other"

    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    secret_id = models.UUIDField()
    purpose = models.CharField(max_length=10, choices=Purpose)
    run_id = models.UUIDField(null=True)
    user_id = models.UUIDField(null=True)
    read_at = models.DateTimeField(db_index=True)

    objects = TenantQuerySet["SecretRead"].as_manager()

    class Meta:
        ordering = ["-read_at", "-id"]
        indexes = [
            models.Index(fields=["company", "secret_id", "read_at"], name="secret_read_by_secret")
        ]

    def __str__(self) -> str:
        return f"{self.secret_id} {self.purpose}"
