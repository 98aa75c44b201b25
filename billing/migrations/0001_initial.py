
import companies.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Budget',
            fields=[
                ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('scope', models.CharField(choices=[('agent', 'Agent'), ('project', 'Project'), ('company', 'Company')], max_length=8)),
                ('scope_id', models.UUIDField()),
                ('window', models.CharField(choices=[('month', 'calendar month (UTC)'), ('lifetime', 'Lifetime')], default='month', max_length=8)),
                ('limit_micros', models.BigIntegerField()),
                ('warn_percent', models.PositiveSmallIntegerField(default=80)),
                ('is_hard', models.BooleanField(default=True, help_text='Reached: the agents are held.')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'ordering': ['scope', 'created_at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='CostKey',
            fields=[
                ('pk', models.CompositePrimaryKey('company_id', 'key', blank=True, editable=False, primary_key=True, serialize=False)),
                ('company_id', models.UUIDField()),
                ('key', models.CharField(max_length=200)),
                ('fingerprint', models.CharField(max_length=64)),
                ('event_id', models.UUIDField()),
                ('created_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='ModelPrice',
            fields=[
                ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('provider', models.CharField(blank=True, help_text='Empty: any provider.', max_length=60)),
                ('model', models.CharField(max_length=120)),
                ('input_pico', models.BigIntegerField()),
                ('output_pico', models.BigIntegerField()),
                ('cache_read_pico', models.BigIntegerField(blank=True, null=True)),
                ('cache_write_pico', models.BigIntegerField(blank=True, null=True)),
                ('effective_at', models.DateTimeField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['model', '-effective_at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='Spend',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(choices=[('agent', 'Agent'), ('project', 'Project'), ('company', 'Company')], max_length=8)),
                ('scope_id', models.UUIDField()),
                ('window', models.CharField(choices=[('month', 'calendar month (UTC)'), ('lifetime', 'Lifetime')], max_length=8)),
                ('period_start', models.DateField()),
                ('spent_micros', models.BigIntegerField(default=0)),
                ('events', models.BigIntegerField(default=0)),
                ('unpriced_events', models.BigIntegerField(default=0)),
                ('updated_at', models.DateTimeField()),
            ],
            options={
                'ordering': ['scope', 'scope_id', 'window', '-period_start'],
            },
        ),
    ]
