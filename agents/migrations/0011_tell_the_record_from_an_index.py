"""How the runs of two weeks ended, by day or by agent, is read from an index alone."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ("agents", "0010_figures_of_an_instance"),
    ]

    operations = [
        AddIndexConcurrently(
            "heartbeatrun",
            models.Index(condition=models.Q(("status__in", ["succeeded", "failed", "timed_out", "lost", "unknown"])), fields=["company", "created_at"], include=("agent", "status"), name="run_record"),
        ),
    ]
