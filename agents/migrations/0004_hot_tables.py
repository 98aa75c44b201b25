"""What PostgreSQL needs to know of the hot tables, and the sequence that numbers agents."""

from django.db import migrations

TUNE = """
CREATE SEQUENCE agents_agent_number AS bigint;
ALTER TABLE agents_heartbeatrun SET (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE agents_worker SET (fillfactor = 50, autovacuum_vacuum_threshold = 500);
"""

UNTUNE = "DROP SEQUENCE agents_agent_number;"


class Migration(migrations.Migration):

    dependencies = [("agents", "0003_run_events_by_month")]

    operations = [migrations.RunSQL(TUNE, UNTUNE)]
