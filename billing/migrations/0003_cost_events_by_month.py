"""The ledger, partitioned by month and append-only."""

import companies.ids
import django.db.models.deletion
from django.db import migrations, models
from django.utils import timezone

from companies import partitions

CREATE = """
CREATE TABLE billing_costevent (
    id uuid NOT NULL,
    company_id uuid NOT NULL REFERENCES companies_company (id),
    agent_id uuid NOT NULL REFERENCES agents_agent (id),
    issue_id uuid,
    project_id uuid,
    goal_id uuid,
    run_id uuid,
    billing_code varchar(80) NOT NULL,
    provider varchar(60) NOT NULL,
    biller varchar(60) NOT NULL,
    billing_type varchar(24) NOT NULL,
    model varchar(120) NOT NULL,
    input_tokens bigint NOT NULL CHECK (input_tokens >= 0),
    cache_read_tokens bigint NOT NULL CHECK (cache_read_tokens >= 0),
    cache_write_tokens bigint NOT NULL CHECK (cache_write_tokens >= 0),
    cache_write_1h_tokens bigint NOT NULL CHECK (cache_write_1h_tokens >= 0),
    output_tokens bigint NOT NULL CHECK (output_tokens >= 0),
    reasoning_tokens bigint NOT NULL CHECK (reasoning_tokens >= 0),
    usage_source varchar(10) NOT NULL,
    cost_micros bigint,
    cost_status varchar(10) NOT NULL,
    price_source varchar(20) NOT NULL,
    price_version varchar(40) NOT NULL,
    reverses_id uuid,
    note varchar(500) NOT NULL,
    occurred_at timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (id, occurred_at),
    CONSTRAINT unpriced_has_no_cost CHECK ((cost_status = 'unpriced') = (cost_micros IS NULL)),
    CONSTRAINT only_corrections_are_negative CHECK (cost_micros >= 0 OR reverses_id IS NOT NULL)
) PARTITION BY RANGE (occurred_at);
CREATE TABLE billing_costevent_default PARTITION OF billing_costevent DEFAULT;
CREATE INDEX cost_by_company ON billing_costevent (company_id, occurred_at DESC, id DESC);
CREATE INDEX cost_by_agent ON billing_costevent (agent_id, occurred_at DESC);
CREATE INDEX cost_by_run ON billing_costevent (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX cost_by_issue ON billing_costevent (issue_id) WHERE issue_id IS NOT NULL;
CREATE TRIGGER ledger_is_append_only BEFORE UPDATE OR DELETE ON billing_costevent
    FOR EACH ROW EXECUTE FUNCTION paperclip_refuse_change();
"""

DROP = """
DROP TABLE billing_costevent;
"""


def make_partitions(apps, schema_editor):
    partitions.ensure("billing_costevent", now=timezone.now(), using=schema_editor.connection.alias)


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0003_run_events_by_month'),
        ('billing', '0002_tenancy'),
        ('companies', '0002_activity_by_month'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(CREATE, DROP)],
            state_operations=[
                migrations.CreateModel(
                    name='CostEvent',
                    fields=[
                        ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                        ('issue_id', models.UUIDField(null=True)),
                        ('project_id', models.UUIDField(null=True)),
                        ('goal_id', models.UUIDField(null=True)),
                        ('run_id', models.UUIDField(null=True)),
                        ('billing_code', models.CharField(blank=True, max_length=80)),
                        ('provider', models.CharField(max_length=60)),
                        ('biller', models.CharField(blank=True, max_length=60)),
                        ('billing_type', models.CharField(choices=[('metered_api', 'Metered'), ('subscription_included', 'Subscription')], default='metered_api', max_length=24)),
                        ('model', models.CharField(max_length=120)),
                        ('input_tokens', models.BigIntegerField(default=0)),
                        ('cache_read_tokens', models.BigIntegerField(default=0)),
                        ('cache_write_tokens', models.BigIntegerField(default=0)),
                        ('cache_write_1h_tokens', models.BigIntegerField(default=0)),
                        ('output_tokens', models.BigIntegerField(default=0)),
                        ('reasoning_tokens', models.BigIntegerField(default=0)),
                        ('usage_source', models.CharField(default='reported', max_length=10)),
                        ('cost_micros', models.BigIntegerField(null=True)),
                        ('cost_status', models.CharField(choices=[('reported', 'Reported'), ('estimated', 'Estimated'), ('unpriced', 'Unpriced')], max_length=10)),
                        ('price_source', models.CharField(blank=True, max_length=20)),
                        ('price_version', models.CharField(blank=True, max_length=40)),
                        ('reverses_id', models.UUIDField(null=True)),
                        ('note', models.CharField(blank=True, max_length=500)),
                        ('occurred_at', models.DateTimeField()),
                        ('recorded_at', models.DateTimeField()),
                        ('agent', models.ForeignKey(on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='agents.agent')),
                        ('company', models.ForeignKey(on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='companies.company')),
                    ],
                    options={
                        'ordering': ['-occurred_at', '-id'],
                    },
                ),
            ],
        ),
        migrations.RunPython(make_partitions, migrations.RunPython.noop),
    ]
