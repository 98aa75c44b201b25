"""Two orders of the list are read from an index: an agent's issues by creation, and all by priority.

As many indexes are written at each change as before: the one on an agent's key alone goes for one
that has the order as well, and nobody asks for identifiers by pattern, so that one goes, too. What
replaces them is built first and without a lock; code of before and after runs with either.
"""

import django.db.models.deletion
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

# Django makes it by itself beside the unique one of a word.
_BY_PATTERN = "issues_issue_identifier_383f70e8_like"


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ("issues", "0009_workspaces_and_worktrees"),
    ]

    operations = [
        AddIndexConcurrently(
            "issue",
            models.Index(condition=models.Q(("assignee_agent__isnull", False)), fields=["assignee_agent", "created_at"], name="issue_by_assignee_agent"),
        ),
        AddIndexConcurrently(
            "issue",
            models.Index(condition=models.Q(("archived_at__isnull", True)), fields=["company", "priority", "id"], name="issue_by_priority"),
        ),
        migrations.AlterField(
            "issue",
            "assignee_agent",
            models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="issues", to="agents.agent"),
        ),
        migrations.RunSQL(
            f"DROP INDEX CONCURRENTLY IF EXISTS {_BY_PATTERN}",
            f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {_BY_PATTERN} ON issues_issue (identifier varchar_pattern_ops)",
        ),
    ]
