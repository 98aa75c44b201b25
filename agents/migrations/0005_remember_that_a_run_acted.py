from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("agents", "0004_hot_tables")]

    operations = [
        migrations.AddField(
            model_name="heartbeatrun",
            name="acted_at",
            field=models.DateTimeField(
                blank=True,
                editable=False,
                help_text="When it first changed something; from then on it is never repeated blindly.",
                null=True,
            ),
        ),
    ]
