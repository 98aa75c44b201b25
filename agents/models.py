"""Who works here (agents, their keys and holds), what they carry out (runs and their output)
and which processes carry it (workers). Knows nothing of issues' rules or money.

Read next: `runs.py` (a run's life, as a flat list of verbs).
"""

from __future__ import annotations

from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q

from agents.connection_models import AgentFallback, ProviderBucket, ProviderConnection
from agents.meter_models import AgentTally, Counter, ProcessReport
from agents.revision_models import AgentRevision
from agents.wake_models import WakeKey
from companies.ids import new_id
from companies.models import Company, TenantQuerySet, User

__all__ = [
    "Agent",
    "AgentFallback",
    "AgentKey",
    "AgentRevision",
    "AgentTally",
    "Beacon",
    "Counter",
    "HeartbeatRun",
    "Hold",
    "ProcessReport",
    "ProviderBucket",
    "ProviderConnection",
    "RunEvent",
    "RunQuerySet",
    "WakeKey",
    "Worker",
]


class Agent(models.Model):
    """A worker in the org chart. What it *is doing* follows from its runs and holds."""

    class Status(models.TextChoices):
        PENDING_APPROVAL = "pending_approval"
        ACTIVE = "active"
        TERMINATED = "terminated"

    class OnFinish(models.TextChoices):
        DONE = "done"
        IN_REVIEW = "in_review"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="agents")
    number = models.BigIntegerField(
        unique=True,
        editable=False,
        help_text="Counts the agents of this instance; gives each its place in the timer's round.",
    )
    name = models.CharField(max_length=80)
    slug = models.CharField(
        max_length=80, validators=[RegexValidator(r"^[a-z0-9][a-z0-9-]*$", "Lower case words.")]
    )
    role = models.CharField(max_length=40, default="general")
    title = models.CharField(max_length=120, blank=True)
    icon = models.CharField(max_length=40, blank=True)
    capabilities = models.TextField(blank=True, max_length=5_000)
    reports_to = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="reports"
    )
    status = models.CharField(max_length=16, choices=Status, default=Status.ACTIVE)
    error_code = models.CharField(
        max_length=30, blank=True, help_text="Why its last run failed; cleared by a success."
    )
    adapter_type = models.CharField(max_length=30)
    adapter_config = models.JSONField(default=dict, blank=True)
    connection = models.ForeignKey(
        ProviderConnection,
        null=True,
        blank=True,
        editable=False,
        on_delete=models.RESTRICT,
        related_name="agents",
        help_text="What `connectionId` of the configuration names; kept in step by `roster`.",
    )
    instructions = models.TextField(blank=True, max_length=100_000)
    on_finish = models.CharField(
        max_length=10,
        choices=OnFinish,
        default=OnFinish.IN_REVIEW,
        help_text="What an issue becomes when the agent answers without saying so itself.",
    )
    can_hire = models.BooleanField(default=False)

    heartbeat_enabled = models.BooleanField(default=False)
    interval_seconds = models.PositiveIntegerField(
        default=300, validators=[MinValueValidator(30), MaxValueValidator(604_800)]
    )
    cron = models.CharField(max_length=120, blank=True)
    timezone = models.CharField(max_length=60, default="UTC")
    wake_on_demand = models.BooleanField(default=True)
    next_beat_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_beat_at = models.DateTimeField(null=True, blank=True, editable=False)

    max_concurrent_runs = models.PositiveSmallIntegerField(
        default=1, validators=[MinValueValidator(1), MaxValueValidator(100)]
    )
    max_daily_runs = models.PositiveIntegerField(null=True, blank=True)
    max_daily_cost_micros = models.BigIntegerField(null=True, blank=True)
    loop_limits = models.JSONField(
        default=dict,
        db_default=models.Value({}, models.JSONField()),  # code of before writes rows, too
        blank=True,
        help_text="Where it differs from the instance's limits of `loop_limits.Limits`.",
    )

    version = models.PositiveIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet["Agent"].as_manager()

    class Meta:
        ordering = ["created_at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["company", "slug"], name="one_agent_a_short_name"),
            models.CheckConstraint(
                condition=Q(reports_to__isnull=True) | ~Q(reports_to=F("id")),
                name="agent_not_own_manager",
            ),
            models.CheckConstraint(
                condition=Q(max_concurrent_runs__gte=1), name="agent_cap_positive"
            ),
        ]
        indexes = [
            models.Index(fields=["company", "created_at", "id"], name="agent_by_company"),
            # The minute tick reads only what is due, however many agents there are.
            models.Index(
                fields=["next_beat_at"],
                condition=Q(heartbeat_enabled=True, status="active"),
                name="agent_due",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Hold(models.Model):
    """One reason why an agent may not start. Each owner lifts only its own."""

    class Reason(models.TextChoices):
        OPERATOR = "operator"
        AGENT_BUDGET = "agent_budget"
        PROJECT_BUDGET = "project_budget"
        COMPANY_BUDGET = "company_budget"
        QUOTA = "quota"
        LOOP = "loop"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="holds")
    reason = models.CharField(max_length=20, choices=Reason)
    note = models.CharField(max_length=500, blank=True)
    details = models.JSONField(
        default=dict,
        db_default=models.Value({}, models.JSONField()),  # code of before writes rows, too
        blank=True,
        help_text="The evidence, for the page.",
    )
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["Hold"].as_manager()

    class Meta:
        ordering = ["created_at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["agent", "reason"], name="one_hold_a_reason")
        ]

    def __str__(self) -> str:
        return self.reason


class AgentKey(models.Model):
    """A long-lived key `pcp_…` of one agent. Shown once; only its hash is kept."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="keys")
    name = models.CharField(max_length=120)
    lookup = models.CharField(max_length=16, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    scopes = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["AgentKey"].as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.name} (pcp_{self.lookup}…)"


class Worker(models.Model):
    """One process that carries runs, alive as long as its lease. New at every process start."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    instance = models.CharField(max_length=120)
    slot = models.PositiveSmallIntegerField(default=0)
    pid = models.PositiveIntegerField(help_text="For people only; nothing is decided by it.")
    capacity = models.PositiveIntegerField(default=250)
    running = models.PositiveIntegerField(default=0)
    draining = models.BooleanField(default=False)
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()
    lease_expires_at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ["-started_at", "-id"]

    def __str__(self) -> str:
        return f"{self.instance}/{self.slot}"


class Beacon(models.Model):
    """A sign of life that a watchdog can see from outside: one row a name."""

    name = models.CharField(primary_key=True, max_length=60)
    beat_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class RunQuerySet(TenantQuerySet["HeartbeatRun"]):
    def live(self) -> Self:
        # Not `IN`: of two equalities each finds its own small index, of a list none is known to.
        return self.filter(
            Q(status=HeartbeatRun.Status.QUEUED) | Q(status=HeartbeatRun.Status.RUNNING)
        )


class HeartbeatRun(models.Model):
    """One heartbeat: a wish (queued), then its carrying out. `epoch` is the fence."""

    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        SUCCEEDED = "succeeded"
        FAILED = "failed"
        TIMED_OUT = "timed_out"
        CANCELLED = "cancelled"
        LOST = "lost"  # its worker died; a new attempt follows where that is safe
        UNKNOWN = "unknown"  # its effects cannot be known; a person decides

    LIVE = (Status.QUEUED, Status.RUNNING)

    class Source(models.TextChoices):
        TIMER = "timer"
        ASSIGNMENT = "assignment"
        AUTOMATION = "automation"
        ON_DEMAND = "on_demand"
        RETRY = "retry"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # No index of their own for these four: the ones below begin with them or hold the few rows that
    # anybody looks for. Each index more is written by every claim and every end.
    company = models.ForeignKey(
        Company, on_delete=models.CASCADE, related_name="runs", db_index=False
    )
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="runs", db_index=False)
    issue = models.ForeignKey(
        "issues.Issue",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="runs",
        db_index=False,
    )
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    priority = models.SmallIntegerField(default=2, help_text="The issue's rank: 0 is first.")

    # The wake
    source = models.CharField(max_length=12, choices=Source)
    reason = models.CharField(max_length=40)
    wake_count = models.PositiveIntegerField(default=1, help_text="Wishes folded into this run.")
    comment_ids = ArrayField(models.UUIDField(), default=list, blank=True)
    payload = models.JSONField(default=dict, blank=True)
    idempotency_key = models.CharField(max_length=200, null=True, blank=True)
    scheduled_for = models.DateTimeField(null=True, blank=True, help_text="The timer's slot.")
    not_before = models.DateTimeField()
    attempt = models.PositiveSmallIntegerField(default=1)
    retry_of = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="retries",
        db_index=False,
    )
    created_at = models.DateTimeField()

    # The carrying out
    epoch = models.PositiveIntegerField(default=0, editable=False)
    worker = models.ForeignKey(
        Worker,
        null=True,
        on_delete=models.SET_NULL,
        related_name="runs",
        editable=False,
        db_index=False,
    )
    token_digest = models.CharField(max_length=64, null=True, editable=False)
    adapter_type = models.CharField(max_length=30, blank=True)
    model = models.CharField(max_length=120, blank=True)
    connection_id = models.UUIDField(
        null=True,
        editable=False,
        help_text="The provider connection it counts against; no foreign key, for it is history.",
    )
    on_fallback = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="It went on with, or began on, another connection than its agent's own.",
    )
    started_at = models.DateTimeField(null=True, blank=True)
    output_at = models.DateTimeField(null=True, blank=True, help_text="The last sign of life.")
    acted_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When it first changed something; from then on it is never repeated blindly.",
    )
    lease_expires_at = models.DateTimeField(
        null=True, blank=True, help_text="Only for runs that go on elsewhere (202)."
    )
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_reason = models.CharField(max_length=200, blank=True)
    session = models.JSONField(default=dict, blank=True)

    # The outcome
    finished_at = models.DateTimeField(null=True, blank=True)
    code = models.CharField(max_length=30, blank=True, help_text="Reason of a failure.")
    message = models.TextField(blank=True)
    summary = models.TextField(blank=True)
    result = models.JSONField(default=dict, blank=True)
    input_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0, help_text="The priced part of its cost.")
    unpriced_calls = models.PositiveIntegerField(default=0)

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["agent", "issue"],
                condition=Q(status="queued"),
                nulls_distinct=False,
                name="one_queued_run_an_agent_and_issue",
            ),
            models.UniqueConstraint(
                fields=["issue"], condition=Q(status="running"), name="one_active_run_an_issue"
            ),
            models.UniqueConstraint(
                fields=["agent", "scheduled_for"],
                condition=Q(scheduled_for__isnull=False),
                name="one_beat_a_slot",
            ),
            models.UniqueConstraint(
                fields=["agent", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="one_run_an_idempotency_key",
            ),
            models.UniqueConstraint(
                fields=["token_digest"],
                condition=Q(token_digest__isnull=False),
                name="one_run_a_token",
            ),
            models.CheckConstraint(
                condition=~Q(status="running") | Q(started_at__isnull=False),
                name="running_has_started",
            ),
            models.CheckConstraint(
                condition=Q(status__in=["queued", "running"]) | Q(finished_at__isnull=False),
                name="ended_has_finished",
            ),
        ]
        indexes = [
            models.Index(
                fields=["company", "agent", "priority", "id"],
                condition=Q(status="queued"),
                name="run_queue",
            ),
            models.Index(
                fields=["worker"], condition=Q(status="running"), name="run_by_live_worker"
            ),
            models.Index(
                fields=["company", "agent"], condition=Q(status="running"), name="run_running"
            ),
            models.Index(
                fields=["connection_id"],
                condition=Q(status="running", connection_id__isnull=False),
                name="run_on_connection",
            ),
            models.Index(fields=["company", "created_at", "id"], name="run_by_company"),
            # How it went in the last two weeks, by day or by agent, without reading the runs; a
            # run is written here once, at its end.
            models.Index(
                fields=["company", "created_at"],
                include=["agent", "status"],
                condition=Q(status__in=["succeeded", "failed", "timed_out", "lost", "unknown"]),
                name="run_record",
            ),
            models.Index(fields=["agent", "created_at", "id"], name="run_by_agent"),
            models.Index(fields=["issue", "created_at", "id"], name="run_by_issue"),
            models.Index(
                fields=["retry_of"], condition=Q(retry_of__isnull=False), name="run_by_retried"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reason} {str(self.id)[-12:]}"


class RunEvent(models.Model):
    """A piece of a run's output. Partitioned by month of `run_created_at`, which is the run's
    own `created_at`, so that all output of a run lies in one partition and (run, seq) is unique.
    """

    class Kind(models.TextChoices):
        STATUS = "status"  # data: {"status": …, "code": …}
        TEXT = "text"  # text, data: {"channel": "answer" | "thinking"}
        OUT = "stdout"
        ERR = "stderr"
        STEP = (
            "step"  # data: {"id", "name", "phase", "input", "isError", "durationMs"}, text: output
        )
        USAGE = "usage"  # data: tokens and cost of one call
        SYSTEM = "system"  # a word of ours

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    company_id = models.UUIDField()
    run_created_at = models.DateTimeField()
    seq = models.PositiveIntegerField()
    epoch = models.PositiveIntegerField()
    kind = models.CharField(max_length=8, choices=Kind)
    text = models.TextField(blank=True)
    data = models.JSONField(null=True)
    at = models.DateTimeField()

    objects = TenantQuerySet["RunEvent"].as_manager()

    class Meta:
        ordering = ["run_id", "seq"]

    def __str__(self) -> str:
        return f"{self.kind} {self.seq}"
