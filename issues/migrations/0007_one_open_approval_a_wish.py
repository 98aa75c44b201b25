from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('issues', '0006_fewer_indexes_on_issues'),
    ]

    operations = [
        migrations.AddField(
            model_name='approval',
            name='fingerprint',
            field=models.CharField(blank=True, db_default='', default='', editable=False, help_text='Of the wish: who asks for what.', max_length=64),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.UniqueConstraint(condition=models.Q(('status__in', ['pending', 'revision_requested']), models.Q(('fingerprint', ''), _negated=True)), fields=('company', 'fingerprint'), name='one_open_approval_a_wish'),
        ),
    ]
