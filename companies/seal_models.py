"""The chain of seals over the activity log. Imported by `models.py`; written by `seals.py`."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from companies.models import Company, TenantQuerySet


class Seal(models.Model):
    """One link of a company's chain: which rows of its activity, in which order, and what they
    said. Append-only.

    `digest` is the SHA-256 over the link before (`previous`), the numbers of this one and, row by
    row, id, moment and the row's own SHA-256: see `seals.digest`.
    """

    # Without the database's own check, which would lock the company's row for the sealer.
    company = models.ForeignKey(
        Company, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False
    )
    sequence = models.BigIntegerField(help_text="1, 2, 3, … within the company.")
    first_row = models.UUIDField()
    last_row = models.UUIDField()
    count = models.PositiveIntegerField(help_text="Rows under this seal.")
    row_ids = ArrayField(models.UUIDField(), editable=False)
    row_moments = ArrayField(models.DateTimeField(), editable=False)
    row_digests = models.BinaryField(editable=False)  # 32 bytes a row
    previous = models.BinaryField(editable=False)
    digest = models.BinaryField(editable=False)
    sealed_at = models.DateTimeField()
    caught_up_at = models.DateTimeField(
        null=True, help_text="Everything that was committed by then is in the chain before."
    )

    objects = TenantQuerySet["Seal"].as_manager()

    class Meta:
        ordering = ["company", "sequence"]
        constraints = [
            models.UniqueConstraint(
                fields=["company", "sequence"], name="one_seal_a_company_and_number"
            )
        ]

    def __str__(self) -> str:
        return f"{self.sequence}: {self.count}"


class Sealer(models.Model):
    """How far sealing has come: one row, whose lock lets one process seal at a time."""

    THE_ONE = 1

    id = models.PositiveSmallIntegerField(primary_key=True, default=THE_ONE)
    cluster = models.CharField(
        max_length=20, help_text="The database cluster that numbers the transactions."
    )
    offset = models.BigIntegerField(
        default=0, help_text="Added to its numbers, so that they are above an earlier cluster's."
    )
    at_xid = models.BigIntegerField(default=0, help_text="The last sealed row's transaction …")
    at_row = models.UUIDField(help_text="… and its id.")
    caught_up_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_sealer")]

    def __str__(self) -> str:
        return f"{self.at_xid}"
