import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0013_limits_of_loops_for_each_agent'),
        ('issues', '0007_one_open_approval_a_wish'),
    ]

    operations = [
        migrations.AddField(
            model_name='approval',
            name='single_use',
            field=models.BooleanField(db_default=False, default=False, help_text='What it allows is done once, by the run that consumes it.'),
        ),
        migrations.AddField(
            model_name='approval',
            name='consumed_by_run',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='agents.heartbeatrun'),
        ),
        migrations.AddField(
            model_name='approval',
            name='consumed_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.CheckConstraint(condition=models.Q(('consumed_at', None), models.Q(('single_use', True), ('status', 'approved')), _connector='OR'), name='only_single_use_is_consumed'),
        ),
    ]
