"""Seven indexes less to write at each change of an issue, and five that hold only what they are for.

Those on foreign keys alone double composite ones or held mostly nulls; who created an issue is never
asked by user. What replaces them is built first and without a lock; code of before and after runs
with either.
"""

import django.db.models.deletion
from django.conf import settings
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

_PARTIAL = ("assignee_user", "project", "goal", "parent", "created_by_agent")


def _key(to: str, related_name: str) -> models.ForeignKey:
    return models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name=related_name, to=to)


_FOREIGN_KEYS = {
    "company": models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="issues", to="companies.company"),
    "assignee_user": _key(settings.AUTH_USER_MODEL, "issues"),
    "project": _key("companies.project", "issues"),
    "goal": _key("companies.goal", "issues"),
    "parent": _key("issues.issue", "children"),
    "created_by_user": _key(settings.AUTH_USER_MODEL, "+"),
    "created_by_agent": _key("agents.agent", "+"),
}


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ("issues", "0005_read_the_board_from_an_index"),
    ]

    operations = [
        *(
            AddIndexConcurrently(
                "issue",
                models.Index(condition=models.Q((f"{name}__isnull", False)), fields=[name, "created_at"], name=f"issue_by_{name}"),
            )
            for name in _PARTIAL
        ),
        *(migrations.AlterField("issue", name, field) for name, field in _FOREIGN_KEYS.items()),
    ]
