import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

import companies.ids


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0005_remember_that_a_run_acted"),
        ("companies", "0002_activity_by_month"),
        ("issues", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="AgentFallback",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.PositiveSmallIntegerField()),
            ],
            options={
                "ordering": ["agent_id", "position"],
            },
        ),
        migrations.CreateModel(
            name="ProviderConnection",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=companies.ids.new_id,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=80)),
                (
                    "kind",
                    models.CharField(
                        choices=[("openai", "OpenAI-compatible"), ("anthropic", "Anthropic")],
                        max_length=10,
                    ),
                ),
                (
                    "base_url",
                    models.CharField(
                        blank=True, help_text="Empty: the provider's own.", max_length=2000
                    ),
                ),
                (
                    "key_secret",
                    models.CharField(
                        blank=True,
                        help_text="Name of a secret of the company; empty: no key.",
                        max_length=100,
                    ),
                ),
                (
                    "requests_per_minute",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000),
                        ],
                    ),
                ),
                (
                    "tokens_per_minute",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(2000000000),
                        ],
                    ),
                ),
                (
                    "max_concurrent_runs",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(10000),
                        ],
                    ),
                ),
                ("disabled_at", models.DateTimeField(blank=True, null=True)),
                (
                    "breaker",
                    models.CharField(
                        choices=[
                            ("closed", "Closed"),
                            ("open", "Open"),
                            ("half_open", "Half Open"),
                        ],
                        default="closed",
                        editable=False,
                        max_length=10,
                    ),
                ),
                ("open_code", models.CharField(blank=True, editable=False, max_length=30)),
                ("opened_at", models.DateTimeField(editable=False, null=True)),
                ("open_until", models.DateTimeField(editable=False, null=True)),
                (
                    "open_count",
                    models.PositiveIntegerField(
                        default=0,
                        editable=False,
                        help_text="Openings in a row, without an answer in between.",
                    ),
                ),
                ("probe_until", models.DateTimeField(editable=False, null=True)),
                (
                    "failed_at",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.DateTimeField(),
                        default=list,
                        editable=False,
                        help_text="The latest failures that count; an answer takes one away.",
                        size=None,
                    ),
                ),
                (
                    "last_errors",
                    models.JSONField(
                        default=list,
                        editable=False,
                        help_text="The newest first: at, code, message.",
                    ),
                ),
                ("last_answer_at", models.DateTimeField(editable=False, null=True)),
                ("version", models.PositiveIntegerField(default=1, editable=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "ordering": ["name", "id"],
            },
        ),
        migrations.AddField(
            model_name="heartbeatrun",
            name="connection_id",
            field=models.UUIDField(
                editable=False,
                help_text="The provider connection it counts against; no foreign key, for it is history.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="hold",
            name="details",
            field=models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                help_text="The evidence, for the page.",
            ),
        ),
        migrations.AddIndex(
            model_name="heartbeatrun",
            index=models.Index(
                condition=models.Q(("connection_id__isnull", False), ("status", "running")),
                fields=["connection_id"],
                name="run_on_connection",
            ),
        ),
        migrations.AddField(
            model_name="agentfallback",
            name="agent",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="fallbacks",
                to="agents.agent",
            ),
        ),
        migrations.CreateModel(
            name="ProviderBucket",
            fields=[
                (
                    "connection",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="bucket",
                        serialize=False,
                        to="agents.providerconnection",
                    ),
                ),
                ("requests_left", models.FloatField()),
                (
                    "tokens_left",
                    models.FloatField(help_text="Below zero after a call larger than the limit."),
                ),
                ("refilled_at", models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name="providerconnection",
            name="company",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="connections",
                to="companies.company",
            ),
        ),
        migrations.AddField(
            model_name="agentfallback",
            name="connection",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.RESTRICT,
                related_name="fallback_of",
                to="agents.providerconnection",
            ),
        ),
        migrations.AddField(
            model_name="agent",
            name="connection",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                help_text="What `connectionId` of the configuration names; kept in step by `roster`.",
                null=True,
                on_delete=django.db.models.deletion.RESTRICT,
                related_name="agents",
                to="agents.providerconnection",
            ),
        ),
        migrations.AddConstraint(
            model_name="providerconnection",
            constraint=models.UniqueConstraint(
                fields=("company", "name"), name="one_connection_a_name"
            ),
        ),
        migrations.AddConstraint(
            model_name="providerconnection",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("breaker", "half_open"), _negated=True),
                    ("probe_until__isnull", False),
                    _connector="OR",
                ),
                name="half_open_has_a_probe",
            ),
        ),
        migrations.AddConstraint(
            model_name="agentfallback",
            constraint=models.UniqueConstraint(
                fields=("agent", "position"), name="one_fallback_a_position"
            ),
        ),
    ]
