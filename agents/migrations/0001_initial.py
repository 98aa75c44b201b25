
import companies.ids
import django.contrib.postgres.fields
import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Agent',
            fields=[
                ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('number', models.BigIntegerField(editable=False, help_text="Counts the agents of this instance; gives each its place in the timer's round.", unique=True)),
                ('name', models.CharField(max_length=80)),
                ('slug', models.CharField(max_length=80, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9-]*$', 'Lower case words.')])),
                ('role', models.CharField(default='general', max_length=40)),
                ('title', models.CharField(blank=True, max_length=120)),
                ('icon', models.CharField(blank=True, max_length=40)),
                ('capabilities', models.TextField(blank=True, max_length=5000)),
                ('status', models.CharField(choices=[('pending_approval', 'Pending Approval'), ('active', 'Active'), ('terminated', 'Terminated')], default='active', max_length=16)),
                ('error_code', models.CharField(blank=True, help_text='Why its last run failed; cleared by a success.', max_length=30)),
                ('adapter_type', models.CharField(max_length=30)),
                ('adapter_config', models.JSONField(blank=True, default=dict)),
                ('instructions', models.TextField(blank=True, max_length=100000)),
                ('on_finish', models.CharField(choices=[('done', 'Done'), ('in_review', 'In Review')], default='in_review', help_text='What an issue becomes when the agent answers without saying so itself.', max_length=10)),
                ('can_hire', models.BooleanField(default=False)),
                ('heartbeat_enabled', models.BooleanField(default=False)),
                ('interval_seconds', models.PositiveIntegerField(default=300, validators=[django.core.validators.MinValueValidator(30), django.core.validators.MaxValueValidator(604800)])),
                ('cron', models.CharField(blank=True, max_length=120)),
                ('timezone', models.CharField(default='UTC', max_length=60)),
                ('wake_on_demand', models.BooleanField(default=True)),
                ('next_beat_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('last_beat_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('max_concurrent_runs', models.PositiveSmallIntegerField(default=1, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100)])),
                ('max_daily_runs', models.PositiveIntegerField(blank=True, null=True)),
                ('max_daily_cost_micros', models.BigIntegerField(blank=True, null=True)),
                ('version', models.PositiveIntegerField(default=1, editable=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'ordering': ['created_at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='AgentKey',
            fields=[
                ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=120)),
                ('lookup', models.CharField(editable=False, max_length=16, unique=True)),
                ('digest', models.CharField(editable=False, max_length=64)),
                ('scopes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), blank=True, default=list, size=None)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['-created_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='Beacon',
            fields=[
                ('name', models.CharField(max_length=60, primary_key=True, serialize=False)),
                ('beat_at', models.DateTimeField()),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='HeartbeatRun',
            fields=[
                ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('status', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('succeeded', 'Succeeded'), ('failed', 'Failed'), ('timed_out', 'Timed Out'), ('cancelled', 'Cancelled'), ('lost', 'Lost'), ('unknown', 'Unknown')], default='queued', max_length=10)),
                ('priority', models.SmallIntegerField(default=2, help_text="The issue's rank: 0 is first.")),
                ('source', models.CharField(choices=[('timer', 'Timer'), ('assignment', 'Assignment'), ('automation', 'Automation'), ('on_demand', 'On Demand'), ('retry', 'Retry')], max_length=12)),
                ('reason', models.CharField(max_length=40)),
                ('wake_count', models.PositiveIntegerField(default=1, help_text='Wishes folded into this run.')),
                ('comment_ids', django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), blank=True, default=list, size=None)),
                ('payload', models.JSONField(blank=True, default=dict)),
                ('idempotency_key', models.CharField(blank=True, max_length=200, null=True)),
                ('scheduled_for', models.DateTimeField(blank=True, help_text="The timer's slot.", null=True)),
                ('not_before', models.DateTimeField()),
                ('attempt', models.PositiveSmallIntegerField(default=1)),
                ('created_at', models.DateTimeField()),
                ('epoch', models.PositiveIntegerField(default=0, editable=False)),
                ('token_digest', models.CharField(editable=False, max_length=64, null=True, unique=True)),
                ('adapter_type', models.CharField(blank=True, max_length=30)),
                ('model', models.CharField(blank=True, max_length=120)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('output_at', models.DateTimeField(blank=True, help_text='The last sign of life.', null=True)),
                ('lease_expires_at', models.DateTimeField(blank=True, help_text='Only for runs that go on elsewhere (202).', null=True)),
                ('cancel_requested_at', models.DateTimeField(blank=True, null=True)),
                ('cancel_reason', models.CharField(blank=True, max_length=200)),
                ('session', models.JSONField(blank=True, default=dict)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('code', models.CharField(blank=True, help_text='Reason of a failure.', max_length=30)),
                ('message', models.TextField(blank=True)),
                ('summary', models.TextField(blank=True)),
                ('result', models.JSONField(blank=True, default=dict)),
                ('input_tokens', models.BigIntegerField(default=0)),
                ('cached_tokens', models.BigIntegerField(default=0)),
                ('output_tokens', models.BigIntegerField(default=0)),
                ('cost_micros', models.BigIntegerField(default=0, help_text='The priced part of its cost.')),
                ('unpriced_calls', models.PositiveIntegerField(default=0)),
            ],
            options={
                'ordering': ['-created_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='Hold',
            fields=[
                ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('reason', models.CharField(choices=[('operator', 'Operator'), ('agent_budget', 'Agent Budget'), ('project_budget', 'Project Budget'), ('company_budget', 'Company Budget'), ('quota', 'Quota'), ('loop', 'Loop')], max_length=20)),
                ('note', models.CharField(blank=True, max_length=500)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['created_at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='Worker',
            fields=[
                ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('instance', models.CharField(max_length=120)),
                ('slot', models.PositiveSmallIntegerField(default=0)),
                ('pid', models.PositiveIntegerField(help_text='For people only; nothing is decided by it.')),
                ('capacity', models.PositiveIntegerField(default=250)),
                ('running', models.PositiveIntegerField(default=0)),
                ('draining', models.BooleanField(default=False)),
                ('started_at', models.DateTimeField()),
                ('beat_at', models.DateTimeField()),
                ('lease_expires_at', models.DateTimeField(db_index=True)),
            ],
            options={
                'ordering': ['-started_at', '-id'],
            },
        ),
    ]
