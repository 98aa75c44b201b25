
import companies.ids
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('agents', '0001_initial'),
        ('companies', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='IssueCounter',
            fields=[
                ('company', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='issue_counter', serialize=False, to='companies.company')),
                ('last_number', models.PositiveIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='Blocker',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('company', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='companies.company')),
            ],
            options={
                'ordering': ['created_at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='Issue',
            fields=[
                ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField(editable=False)),
                ('identifier', models.CharField(editable=False, max_length=24, unique=True)),
                ('title', models.CharField(max_length=300)),
                ('description', models.TextField(blank=True, max_length=100000)),
                ('status', models.CharField(choices=[('backlog', 'Backlog'), ('todo', 'Todo'), ('in_progress', 'In Progress'), ('in_review', 'In Review'), ('blocked', 'Blocked'), ('done', 'Done'), ('cancelled', 'Cancelled')], default='backlog', max_length=12)),
                ('priority', models.SmallIntegerField(choices=[(0, 'critical'), (1, 'high'), (2, 'medium'), (3, 'low')], default=2)),
                ('request_depth', models.PositiveSmallIntegerField(default=0)),
                ('billing_code', models.CharField(blank=True, max_length=80)),
                ('blocked_reason', models.CharField(blank=True, help_text='Who must do what, when no issue blocks it.', max_length=500)),
                ('version', models.PositiveIntegerField(default=1, editable=False)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('completed_at', models.DateTimeField(blank=True, null=True)),
                ('cancelled_at', models.DateTimeField(blank=True, null=True)),
                ('archived_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
                ('assignee_agent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='issues', to='agents.agent')),
                ('assignee_user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='issues', to=settings.AUTH_USER_MODEL)),
                ('blocked_by', models.ManyToManyField(related_name='blocks', through='issues.Blocker', through_fields=('issue', 'blocking'), to='issues.issue')),
                ('company', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='issues', to='companies.company')),
                ('created_by_agent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='agents.agent')),
                ('created_by_user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('goal', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='issues', to='companies.goal')),
                ('parent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='children', to='issues.issue')),
                ('project', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='issues', to='companies.project')),
            ],
            options={
                'ordering': ['-created_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='Interaction',
            fields=[
                ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('ask_user_questions', 'Question'), ('request_confirmation', 'Confirmation'), ('suggest_tasks', 'Tasks')], default='ask_user_questions', max_length=24)),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('answered', 'Answered'), ('accepted', 'Accepted'), ('rejected', 'Rejected'), ('cancelled', 'Cancelled')], default='pending', max_length=10)),
                ('payload', models.JSONField(default=dict)),
                ('response', models.JSONField(blank=True, null=True)),
                ('created_at', models.DateTimeField()),
                ('answered_at', models.DateTimeField(blank=True, null=True)),
                ('answered_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('asked_by_agent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='agents.agent')),
                ('company', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='companies.company')),
                ('run', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='agents.heartbeatrun')),
                ('issue', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='interactions', to='issues.issue')),
            ],
            options={
                'ordering': ['created_at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='Comment',
            fields=[
                ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('body', models.TextField(max_length=100000)),
                ('created_at', models.DateTimeField()),
                ('deleted_at', models.DateTimeField(blank=True, null=True)),
                ('author_agent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='agents.agent')),
                ('author_user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('company', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='companies.company')),
                ('run', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='comments', to='agents.heartbeatrun')),
                ('issue', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='comments', to='issues.issue')),
            ],
            options={
                'ordering': ['created_at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='Checkout',
            fields=[
                ('id', models.UUIDField(default=companies.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField()),
                ('released_at', models.DateTimeField(blank=True, null=True)),
                ('release_reason', models.CharField(blank=True, max_length=40)),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='checkouts', to='agents.agent')),
                ('company', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='companies.company')),
                ('run', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='checkouts', to='agents.heartbeatrun')),
                ('issue', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='checkouts', to='issues.issue')),
            ],
            options={
                'ordering': ['-created_at', '-id'],
            },
        ),
        migrations.AddField(
            model_name='blocker',
            name='blocking',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='dependants', to='issues.issue'),
        ),
        migrations.AddField(
            model_name='blocker',
            name='issue',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='blockers', to='issues.issue'),
        ),
        migrations.AddIndex(
            model_name='issue',
            index=models.Index(fields=['company', 'status', 'priority', 'id'], name='issue_by_status'),
        ),
        migrations.AddIndex(
            model_name='issue',
            index=models.Index(fields=['company', 'updated_at', 'id'], name='issue_by_update'),
        ),
        migrations.AddIndex(
            model_name='issue',
            index=models.Index(fields=['company', 'created_at', 'id'], name='issue_by_creation'),
        ),
        migrations.AddIndex(
            model_name='issue',
            index=models.Index(condition=models.Q(('status__in', ['todo', 'in_progress', 'in_review', 'blocked'])), fields=['assignee_agent', 'priority', 'id'], name='issue_inbox'),
        ),
        migrations.AddConstraint(
            model_name='issue',
            constraint=models.UniqueConstraint(fields=('company', 'number'), name='one_issue_a_number'),
        ),
        migrations.AddConstraint(
            model_name='issue',
            constraint=models.CheckConstraint(condition=models.Q(('parent__isnull', True), models.Q(('parent', models.F('id')), _negated=True), _connector='OR'), name='issue_not_own_parent'),
        ),
        migrations.AddConstraint(
            model_name='issue',
            constraint=models.CheckConstraint(condition=models.Q(('assignee_agent__isnull', True), ('assignee_user__isnull', True), _connector='OR'), name='one_assignee_an_issue'),
        ),
        migrations.AddConstraint(
            model_name='issue',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'in_progress'), _negated=True), ('assignee_agent__isnull', False), ('assignee_user__isnull', False), _connector='OR'), name='in_progress_has_an_assignee'),
        ),
        migrations.AddIndex(
            model_name='interaction',
            index=models.Index(condition=models.Q(('status', 'pending')), fields=['company', 'created_at'], name='interaction_pending'),
        ),
        migrations.AddIndex(
            model_name='interaction',
            index=models.Index(fields=['issue', 'created_at'], name='interaction_by_issue'),
        ),
        migrations.AddIndex(
            model_name='comment',
            index=models.Index(fields=['issue', 'created_at', 'id'], name='comment_by_issue'),
        ),
        migrations.AddConstraint(
            model_name='checkout',
            constraint=models.UniqueConstraint(condition=models.Q(('released_at__isnull', True)), fields=('issue',), name='one_live_checkout_an_issue'),
        ),
        migrations.AddConstraint(
            model_name='blocker',
            constraint=models.UniqueConstraint(fields=('issue', 'blocking'), name='one_blocker_a_pair'),
        ),
        migrations.AddConstraint(
            model_name='blocker',
            constraint=models.CheckConstraint(condition=models.Q(('issue', models.F('blocking')), _negated=True), name='issue_does_not_block_itself'),
        ),
    ]
