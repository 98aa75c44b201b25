"""What a person did with an item of the inbox. Imported by `models.py`; verbs are in `desk.py`."""

from __future__ import annotations

from django.db import models

from companies.models import Company, TenantQuerySet, User


class InboxMark(models.Model):
    """One person put one item aside: for good (`until` empty) or until a moment.

    `ref` is the id of what the item is about (an interaction, an approval, an issue, a run, a hold,
    a connection). An item to which something newer than `marked_at` happened is shown again.
    """

    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    ref = models.UUIDField()
    marked_at = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)

    objects = TenantQuerySet["InboxMark"].as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["company", "user", "ref"], name="one_inbox_mark_a_person_and_item"
            )
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.ref}"
