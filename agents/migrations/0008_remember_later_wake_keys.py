import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("agents", "0007_remember_how_agents_were_set_up"),
        ("companies", "0003_command_line_logins"),
    ]

    operations = [
        migrations.CreateModel(
            name="WakeKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("company", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="companies.company")),
                ("agent", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="agents.agent")),
                ("key", models.CharField(max_length=210)),
                ("run", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="later_keys", to="agents.heartbeatrun")),
            ],
            options={
                "ordering": ["id"],
                "constraints": [models.UniqueConstraint(fields=("agent", "key"), name="one_wish_a_key")],
            },
        ),
    ]
