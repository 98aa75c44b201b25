
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('agents', '0001_initial'),
        ('companies', '0001_initial'),
        ('issues', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='agent',
            name='company',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='agents', to='companies.company'),
        ),
        migrations.AddField(
            model_name='agent',
            name='reports_to',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='reports', to='agents.agent'),
        ),
        migrations.AddField(
            model_name='agentkey',
            name='agent',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='keys', to='agents.agent'),
        ),
        migrations.AddField(
            model_name='agentkey',
            name='company',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='companies.company'),
        ),
        migrations.AddField(
            model_name='heartbeatrun',
            name='agent',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='agents.agent'),
        ),
        migrations.AddField(
            model_name='heartbeatrun',
            name='company',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='companies.company'),
        ),
        migrations.AddField(
            model_name='heartbeatrun',
            name='issue',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='runs', to='issues.issue'),
        ),
        migrations.AddField(
            model_name='heartbeatrun',
            name='retry_of',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='retries', to='agents.heartbeatrun'),
        ),
        migrations.AddField(
            model_name='hold',
            name='agent',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='holds', to='agents.agent'),
        ),
        migrations.AddField(
            model_name='hold',
            name='company',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='companies.company'),
        ),
        migrations.AddField(
            model_name='hold',
            name='created_by',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='heartbeatrun',
            name='worker',
            field=models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='runs', to='agents.worker'),
        ),
        migrations.AddIndex(
            model_name='agent',
            index=models.Index(fields=['company', 'created_at', 'id'], name='agent_by_company'),
        ),
        migrations.AddIndex(
            model_name='agent',
            index=models.Index(condition=models.Q(('heartbeat_enabled', True), ('status', 'active')), fields=['next_beat_at'], name='agent_due'),
        ),
        migrations.AddConstraint(
            model_name='agent',
            constraint=models.UniqueConstraint(fields=('company', 'slug'), name='one_agent_a_short_name'),
        ),
        migrations.AddConstraint(
            model_name='agent',
            constraint=models.CheckConstraint(condition=models.Q(('reports_to__isnull', True), models.Q(('reports_to', models.F('id')), _negated=True), _connector='OR'), name='agent_not_own_manager'),
        ),
        migrations.AddConstraint(
            model_name='agent',
            constraint=models.CheckConstraint(condition=models.Q(('max_concurrent_runs__gte', 1)), name='agent_cap_positive'),
        ),
        migrations.AddConstraint(
            model_name='hold',
            constraint=models.UniqueConstraint(fields=('agent', 'reason'), name='one_hold_a_reason'),
        ),
        migrations.AddIndex(
            model_name='heartbeatrun',
            index=models.Index(condition=models.Q(('status', 'queued')), fields=['company', 'agent', 'priority', 'id'], name='run_queue'),
        ),
        migrations.AddIndex(
            model_name='heartbeatrun',
            index=models.Index(condition=models.Q(('status', 'queued')), fields=['not_before'], name='run_queue_due'),
        ),
        migrations.AddIndex(
            model_name='heartbeatrun',
            index=models.Index(condition=models.Q(('status', 'running')), fields=['worker'], name='run_by_live_worker'),
        ),
        migrations.AddIndex(
            model_name='heartbeatrun',
            index=models.Index(condition=models.Q(('status', 'running')), fields=['company', 'agent'], name='run_running'),
        ),
        migrations.AddIndex(
            model_name='heartbeatrun',
            index=models.Index(fields=['company', 'created_at', 'id'], name='run_by_company'),
        ),
        migrations.AddIndex(
            model_name='heartbeatrun',
            index=models.Index(fields=['agent', 'created_at', 'id'], name='run_by_agent'),
        ),
        migrations.AddIndex(
            model_name='heartbeatrun',
            index=models.Index(fields=['issue', 'created_at', 'id'], name='run_by_issue'),
        ),
        migrations.AddConstraint(
            model_name='heartbeatrun',
            constraint=models.UniqueConstraint(condition=models.Q(('status', 'queued')), fields=('agent', 'issue'), name='one_queued_run_an_agent_and_issue', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='heartbeatrun',
            constraint=models.UniqueConstraint(condition=models.Q(('status', 'running')), fields=('issue',), name='one_active_run_an_issue'),
        ),
        migrations.AddConstraint(
            model_name='heartbeatrun',
            constraint=models.UniqueConstraint(condition=models.Q(('scheduled_for__isnull', False)), fields=('agent', 'scheduled_for'), name='one_beat_a_slot'),
        ),
        migrations.AddConstraint(
            model_name='heartbeatrun',
            constraint=models.UniqueConstraint(condition=models.Q(('idempotency_key__isnull', False)), fields=('agent', 'idempotency_key'), name='one_run_an_idempotency_key'),
        ),
        migrations.AddConstraint(
            model_name='heartbeatrun',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'running'), _negated=True), ('started_at__isnull', False), _connector='OR'), name='running_has_started'),
        ),
        migrations.AddConstraint(
            model_name='heartbeatrun',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['queued', 'running']), ('finished_at__isnull', False), _connector='OR'), name='ended_has_finished'),
        ),
    ]
