"""A list's state under a name. Imported by `models.py`; verbs are in `saved_views.py`."""

from __future__ import annotations

from django.db import models

from companies.ids import new_id
from companies.models import Company, TenantQuerySet, User


class SavedView(models.Model):
    """What one person looks at again and again; shared, everybody in the company finds it."""

    class Layout(models.TextChoices):
        LIST = "list"
        BOARD = "board"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=60)
    layout = models.CharField(max_length=5, choices=Layout, default=Layout.LIST)
    query = models.CharField(
        max_length=600, blank=True, help_text="The address of the list behind the question mark."
    )
    is_shared = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    objects = TenantQuerySet["SavedView"].as_manager()

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["company", "user", "name"], name="one_view_a_person_and_name"
            )
        ]

    def __str__(self) -> str:
        return self.name
