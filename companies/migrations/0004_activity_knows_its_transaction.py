"""Each row of activity carries the number of the transaction that wrote it.

Nullable, so that months from the archive that are older come back. What is there already gets 0
without being rewritten. The index costs writers nothing: it is a summary of ranges of pages.
"""

from django.db import migrations

ADD = """
ALTER TABLE companies_activity ADD COLUMN xid bigint DEFAULT 0;
ALTER TABLE companies_activity ALTER COLUMN xid
    SET DEFAULT pg_current_xact_id()::text::bigint;
CREATE INDEX activity_by_xid ON companies_activity
    USING brin (xid) WITH (pages_per_range = 16, autosummarize = on);
"""

REMOVE = "ALTER TABLE companies_activity DROP COLUMN xid;"


class Migration(migrations.Migration):

    dependencies = [
        ('companies', '0003_command_line_logins'),
    ]

    operations = [migrations.RunSQL(ADD, REMOVE)]
