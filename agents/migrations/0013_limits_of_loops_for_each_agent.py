from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("agents", "0012_remember_runs_on_a_fallback"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="loop_limits",
            field=models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                help_text="Where it differs from the instance's limits of `loop_limits.Limits`.",
            ),
        ),
    ]
