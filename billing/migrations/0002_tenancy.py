
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('billing', '0001_initial'),
        ('companies', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='budget',
            name='company',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='budgets', to='companies.company'),
        ),
        migrations.AddField(
            model_name='modelprice',
            name='company',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='prices', to='companies.company'),
        ),
        migrations.AddField(
            model_name='spend',
            name='company',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='companies.company'),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.UniqueConstraint(fields=('scope', 'scope_id', 'window'), name='one_budget_a_scope_and_window'),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.CheckConstraint(condition=models.Q(('limit_micros__gte', 0)), name='budget_not_negative'),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.CheckConstraint(condition=models.Q(('warn_percent__gte', 1), ('warn_percent__lte', 100)), name='warn_percent_range'),
        ),
        migrations.AddConstraint(
            model_name='modelprice',
            constraint=models.UniqueConstraint(fields=('company', 'provider', 'model', 'effective_at'), name='one_price_a_model_and_moment'),
        ),
        migrations.AddConstraint(
            model_name='modelprice',
            constraint=models.CheckConstraint(condition=models.Q(('input_pico__gte', 0), ('output_pico__gte', 0)), name='prices_not_negative'),
        ),
        migrations.AddIndex(
            model_name='spend',
            index=models.Index(fields=['company', 'period_start'], name='spend_by_company'),
        ),
        migrations.AddConstraint(
            model_name='spend',
            constraint=models.UniqueConstraint(fields=('scope', 'scope_id', 'window', 'period_start'), name='one_total_a_scope_and_period'),
        ),
    ]
