"""What the second factor at sign-in leaves in the database. Imported by `models.py`; used by
`second_factor.py`."""

from __future__ import annotations

from django.db import models

from companies.ids import new_id
from companies.models import User


class SecondFactor(models.Model):
    """A person's authenticator app: its shared key, sealed, and the last code that was taken."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="second_factor")
    sealed = models.BinaryField(editable=False)
    last_step = models.BigIntegerField(
        default=0, help_text="The 30 seconds of the last code that was taken; none is taken twice."
    )
    created_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(
        null=True, help_text="When a first code proved it; empty: it is not asked for yet."
    )

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"second factor of {self.user}"


class RecoveryCode(models.Model):
    """One of the codes for a lost authenticator. Only the hash is kept; each works once."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    factor = models.ForeignKey(SecondFactor, on_delete=models.CASCADE, related_name="codes")
    digest = models.CharField(max_length=64, editable=False)
    used_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["factor", "digest"], name="one_recovery_code_a_digest")
        ]

    def __str__(self) -> str:
        return f"recovery code of {self.factor_id}"
