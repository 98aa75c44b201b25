"""The index by status becomes one that is exactly what lists and boards show, in their order.

The new one is built first and without a lock; code of before and after runs with either.
"""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ("issues", "0004_save_views_of_lists"),
    ]

    operations = [
        AddIndexConcurrently(
            "issue",
            models.Index(condition=models.Q(("archived_at__isnull", True)), fields=["company", "status", "priority", "-id"], name="issue_on_board"),
        ),
        RemoveIndexConcurrently("issue", "issue_by_status"),
    ]
