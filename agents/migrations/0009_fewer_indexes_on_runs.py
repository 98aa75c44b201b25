"""Seven indexes less to write at each claim and each end of a run.

Those on foreign keys alone double the composite ones; those on the token and the repeated run held
mostly nulls. What replaces them is built first and without a lock, so that code of before and after
runs meanwhile.
"""

import django.db.models.deletion
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models

_FOREIGN_KEYS = {
    "company": models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="runs", to="companies.company"),
    "agent": models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="runs", to="agents.agent"),
    "retry_of": models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="retries", to="agents.heartbeatrun"),
    "worker": models.ForeignKey(db_index=False, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="runs", to="agents.worker"),
}
_ISSUE = models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="runs", to="issues.issue")
# Django would take every index on this column alone for its own, and with it the rule that an issue
# has one running run.
_DROP_THE_INDEX_OF_ISSUES = """
DO $$
DECLARE name text;
BEGIN
  FOR name IN
    SELECT i.indexrelid::regclass::text
    FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = 'agents_heartbeatrun'::regclass AND a.attname = 'issue_id'
      AND i.indnkeyatts = 1 AND NOT i.indisunique AND i.indpred IS NULL
  LOOP
    EXECUTE 'DROP INDEX ' || name;
  END LOOP;
END $$
"""


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ("agents", "0008_remember_later_wake_keys"),
        ("issues", "0001_initial"),
    ]

    operations = [
        AddIndexConcurrently(
            "heartbeatrun",
            models.Index(condition=models.Q(("retry_of__isnull", False)), fields=["retry_of"], name="run_by_retried"),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS one_run_a_token"
                    " ON agents_heartbeatrun (token_digest) WHERE token_digest IS NOT NULL",
                    "DROP INDEX CONCURRENTLY IF EXISTS one_run_a_token",
                )
            ],
            state_operations=[
                migrations.AddConstraint(
                    model_name="heartbeatrun",
                    constraint=models.UniqueConstraint(condition=models.Q(("token_digest__isnull", False)), fields=("token_digest",), name="one_run_a_token"),
                ),
            ],
        ),
        migrations.AlterField(
            model_name="heartbeatrun",
            name="token_digest",
            field=models.CharField(editable=False, max_length=64, null=True),
        ),
        *(migrations.AlterField("heartbeatrun", name, field) for name, field in _FOREIGN_KEYS.items()),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(_DROP_THE_INDEX_OF_ISSUES, migrations.RunSQL.noop)
            ],
            state_operations=[migrations.AlterField("heartbeatrun", "issue", _ISSUE)],
        ),
        RemoveIndexConcurrently("heartbeatrun", "run_queue_due"),
    ]
