"""Activity, partitioned by month and append-only."""

import companies.ids
import django.db.models.deletion
from django.db import migrations, models
from django.utils import timezone

from companies import partitions

CREATE = """
CREATE TABLE companies_activity (
    id uuid NOT NULL,
    company_id uuid NOT NULL REFERENCES companies_company (id),
    occurred_at timestamptz NOT NULL,
    actor_type varchar(6) NOT NULL,
    actor_id uuid,
    actor_name varchar(120) NOT NULL,
    run_id uuid,
    action varchar(60) NOT NULL,
    entity_type varchar(30) NOT NULL,
    entity_id uuid NOT NULL,
    entity_name varchar(200) NOT NULL,
    details jsonb NOT NULL,
    PRIMARY KEY (id, occurred_at)
) PARTITION BY RANGE (occurred_at);
CREATE TABLE companies_activity_default PARTITION OF companies_activity DEFAULT;
CREATE INDEX activity_by_company ON companies_activity (company_id, occurred_at DESC, id DESC);
CREATE INDEX activity_by_entity ON companies_activity (entity_id, occurred_at DESC, id DESC);

CREATE FUNCTION paperclip_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER activity_is_append_only BEFORE UPDATE OR DELETE ON companies_activity
    FOR EACH ROW EXECUTE FUNCTION paperclip_refuse_change();
"""

DROP = """
DROP TABLE companies_activity;
DROP FUNCTION paperclip_refuse_change();
"""


def make_partitions(apps, schema_editor):
    partitions.ensure("companies_activity", now=timezone.now(), using=schema_editor.connection.alias)


class Migration(migrations.Migration):

    dependencies = [
        ('companies', '0001_initial'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(CREATE, DROP)],
            state_operations=[
                migrations.CreateModel(
                    name='Activity',
                    fields=[
                        ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                        ('occurred_at', models.DateTimeField()),
                        ('actor_type', models.CharField(choices=[('user', 'User'), ('agent', 'Agent'), ('system', 'System')], max_length=6)),
                        ('actor_id', models.UUIDField(null=True)),
                        ('actor_name', models.CharField(blank=True, max_length=120)),
                        ('run_id', models.UUIDField(null=True)),
                        ('action', models.CharField(max_length=60)),
                        ('entity_type', models.CharField(max_length=30)),
                        ('entity_id', models.UUIDField()),
                        ('entity_name', models.CharField(blank=True, max_length=200)),
                        ('details', models.JSONField(default=dict)),
                        ('company', models.ForeignKey(on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='companies.company')),
                    ],
                    options={
                        'verbose_name_plural': 'activity',
                        'ordering': ['-occurred_at', '-id'],
                    },
                ),
            ],
        ),
        migrations.RunPython(make_partitions, migrations.RunPython.noop),
    ]
