"""What it cost (the ledger) and what that means (budgets and running totals).

All money is integer micro-dollars (1 USD = 1,000,000); prices are integer pico-dollars a token
(1e-12 USD), multiplied exactly and rounded once, half up, when an event is booked.
Read next: `ledger.py`.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agents.models import Agent
from companies.ids import new_id
from companies.models import Company, TenantQuerySet


class CostEvent(models.Model):
    """One booked cost. Append-only; a correction is a new row. Partitioned by `occurred_at`."""

    class CostStatus(models.TextChoices):
        REPORTED = "reported"  # the provider said what it charged
        ESTIMATED = "estimated"  # tokens times a price
        UNPRICED = "unpriced"  # no price is known; cost_micros is null, never 0

    class BillingType(models.TextChoices):
        METERED = "metered_api"
        SUBSCRIPTION = "subscription_included"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.DO_NOTHING, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.DO_NOTHING, related_name="+")
    issue_id = models.UUIDField(null=True)
    project_id = models.UUIDField(null=True)
    goal_id = models.UUIDField(null=True)
    run_id = models.UUIDField(null=True)
    billing_code = models.CharField(max_length=80, blank=True)
    provider = models.CharField(max_length=60)
    biller = models.CharField(max_length=60, blank=True)
    billing_type = models.CharField(max_length=24, choices=BillingType, default=BillingType.METERED)
    model = models.CharField(max_length=120)
    input_tokens = models.BigIntegerField(default=0)
    cache_read_tokens = models.BigIntegerField(default=0)
    cache_write_tokens = models.BigIntegerField(default=0)
    cache_write_1h_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    usage_source = models.CharField(max_length=10, default="reported")
    cost_micros = models.BigIntegerField(null=True)
    cost_status = models.CharField(max_length=10, choices=CostStatus)
    price_source = models.CharField(max_length=20, blank=True)
    price_version = models.CharField(max_length=40, blank=True)
    reverses_id = models.UUIDField(null=True)
    note = models.CharField(max_length=500, blank=True)
    occurred_at = models.DateTimeField()
    recorded_at = models.DateTimeField()

    objects = TenantQuerySet["CostEvent"].as_manager()

    class Meta:
        ordering = ["-occurred_at", "-id"]

    def __str__(self) -> str:
        return f"{self.model} {self.cost_micros}"


class CostKey(models.Model):
    """The idempotency of the ledger: one key, one event. Written with the event, kept apart
    because a unique rule of a partitioned table must contain the partition's column."""

    pk = models.CompositePrimaryKey("company_id", "key")
    company_id = models.UUIDField()
    key = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64)
    event_id = models.UUIDField()
    created_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.key


class ModelPrice(models.Model):
    """An operator's own price of a model; beats the bundled ones. Pico-dollars a token."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="prices")
    provider = models.CharField(max_length=60, blank=True, help_text="Empty: any provider.")
    model = models.CharField(max_length=120)
    input_pico = models.BigIntegerField()
    output_pico = models.BigIntegerField()
    cache_read_pico = models.BigIntegerField(null=True, blank=True)
    cache_write_pico = models.BigIntegerField(null=True, blank=True)
    effective_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["ModelPrice"].as_manager()

    class Meta:
        ordering = ["model", "-effective_at", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["company", "provider", "model", "effective_at"],
                name="one_price_a_model_and_moment",
            ),
            models.CheckConstraint(
                condition=Q(input_pico__gte=0, output_pico__gte=0), name="prices_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return self.model


class Scope(models.TextChoices):
    AGENT = "agent"
    PROJECT = "project"
    COMPANY = "company"


class Window(models.TextChoices):
    RUN = "run", "one run"  # a limit only; a run keeps its own total
    DAY = "day", "calendar day (UTC)"
    MONTH = "month", "calendar month (UTC)"
    LIFETIME = "lifetime"


class Budget(models.Model):
    """A limit that an operator set."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="budgets")
    scope = models.CharField(max_length=8, choices=Scope)
    scope_id = models.UUIDField()
    window = models.CharField(max_length=8, choices=Window, default=Window.MONTH)
    limit_micros = models.BigIntegerField()
    limit_tokens = models.BigIntegerField(
        null=True,
        blank=True,
        help_text="Tokens that did not come from a cache; the limit that works for subscriptions.",
    )
    warn_percent = models.PositiveSmallIntegerField(default=80)
    is_hard = models.BooleanField(default=True, help_text="Reached: the agents are held.")
    unpriced_calls = models.PositiveIntegerField(
        default=0,
        help_text="Calls of models without a price that a hard limit lets pass in a period.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet["Budget"].as_manager()

    class Meta:
        ordering = ["scope", "created_at", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["scope", "scope_id", "window"], name="one_budget_a_scope_and_window"
            ),
            models.CheckConstraint(condition=Q(limit_micros__gte=0), name="budget_not_negative"),
            models.CheckConstraint(
                condition=Q(limit_tokens__isnull=True) | Q(limit_tokens__gte=0),
                name="token_budget_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(warn_percent__gte=1, warn_percent__lte=100), name="warn_percent_range"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.window}"


class Spend(models.Model):
    """The running total of one scope and period, changed in the transaction of each booking.

    `period_start` is the day, the first day of the month (both UTC), or 1970-01-01 for a
    lifetime. The limits are copies of the hard budget's, kept here so that one conditional UPDATE
    of one row carries its bound; `budgets.set_limit` writes both.
    """

    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    scope = models.CharField(max_length=8, choices=Scope)
    scope_id = models.UUIDField()
    window = models.CharField(max_length=8, choices=Window)
    period_start = models.DateField()
    spent_micros = models.BigIntegerField(default=0)
    reserved_micros = models.BigIntegerField(default=0, help_text="Granted and not yet settled.")
    limit_micros = models.BigIntegerField(null=True, help_text="Null: no hard limit.")
    alert_at_micros = models.BigIntegerField(
        null=True, help_text="Spend at which people are told next; null: nothing left to tell."
    )
    tokens = models.BigIntegerField(default=0, help_text="Uncached input and output.")
    limit_tokens = models.BigIntegerField(null=True)
    events = models.BigIntegerField(default=0)
    unpriced_events = models.BigIntegerField(default=0)
    updated_at = models.DateTimeField()

    objects = TenantQuerySet["Spend"].as_manager()

    class Meta:
        ordering = ["scope", "scope_id", "window", "-period_start"]
        constraints = [
            models.UniqueConstraint(
                fields=["scope", "scope_id", "window", "period_start"],
                name="one_total_a_scope_and_period",
            ),
        ]
        indexes = [
            models.Index(fields=["company", "period_start"], name="spend_by_company"),
            # The minute's round reads the limited ones only, however many totals there are.
            models.Index(
                fields=["window", "period_start"],
                condition=Q(limit_micros__isnull=False) | Q(limit_tokens__isnull=False),
                name="spend_with_limit",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.window} {self.period_start}"


class Reservation(models.Model):
    """Money kept aside for a call (or a whole run) before it is made, on every total it concerns.

    What is kept counts in the periods of `granted_at`, whenever it ends.
    """

    class State(models.TextChoices):
        HELD = "held"  # the call may be under way
        SETTLED = "settled"  # a receipt came
        RELEASED = "released"  # no receipt will come: nothing was spent
        UNKNOWN = "unknown"  # its run was lost: kept until a receipt, a person or its age ends it

    OPEN = (State.HELD, State.UNKNOWN)

    class Kind(models.TextChoices):
        CALL = "call"  # one model call, the worst case
        RUN = "run"  # a run whose calls we do not see, by what such runs cost

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    project_id = models.UUIDField(null=True)
    run_id = models.UUIDField()
    kind = models.CharField(max_length=4, choices=Kind)
    state = models.CharField(max_length=8, choices=State, default=State.HELD)
    provider = models.CharField(max_length=60, blank=True)
    model = models.CharField(max_length=120, blank=True)
    granted_micros = models.BigIntegerField()
    open_micros = models.BigIntegerField(help_text="What is still kept aside.")
    settled_micros = models.BigIntegerField(default=0, help_text="What receipts said.")
    granted_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    is_guess = models.BooleanField(
        default=False, db_default=False, help_text="Nobody knew what such a run costs."
    )

    objects = TenantQuerySet["Reservation"].as_manager()

    class Meta:
        ordering = ["-granted_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["run_id"],
                condition=Q(state="held", kind="run"),
                name="one_reservation_for_a_whole_run",
            ),
            models.CheckConstraint(
                condition=Q(granted_micros__gte=0, open_micros__gte=0),
                name="reservation_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["held", "unknown"])
                | Q(open_micros=0, ended_at__isnull=False),
                name="ended_reservation_keeps_nothing",
            ),
        ]
        indexes = [
            models.Index(
                fields=["company", "granted_at"],
                condition=Q(state__in=["held", "unknown"]),
                name="reservation_open",
            ),
            models.Index(fields=["run_id"], name="reservation_by_run"),
            models.Index(fields=["ended_at"], name="reservation_by_end"),
        ]

    def __str__(self) -> str:
        return f"{self.state} {self.open_micros}"


class BudgetIncident(models.Model):
    """A budget passed a mark (50, its own, 100 %): told once a period, mark and limit."""

    class State(models.TextChoices):
        OPEN = "open"
        ACKNOWLEDGED = "acknowledged"
        RESOLVED = "resolved"

    class Resolution(models.TextChoices):
        RAISED = "raised"  # the limit was raised and the agents went on
        KEPT = "kept_paused"  # a person decided to wait for the next period
        LAPSED = "lapsed"  # the period ended, or the limit was changed or removed

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="budget_incidents")
    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="incidents")
    period_start = models.DateField()
    percent = models.PositiveSmallIntegerField()
    spent_micros = models.BigIntegerField()
    limit_micros = models.BigIntegerField()
    state = models.CharField(max_length=12, choices=State, default=State.OPEN)
    resolution = models.CharField(max_length=12, choices=Resolution, blank=True)
    decided_by = models.CharField(max_length=120, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()

    objects = TenantQuerySet["BudgetIncident"].as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["budget", "period_start", "percent", "limit_micros"],
                name="one_incident_a_mark_and_period",
            )
        ]
        indexes = [
            models.Index(
                fields=["company", "created_at"],
                condition=Q(state="open"),
                name="incident_open",
            )
        ]

    def __str__(self) -> str:
        return f"{self.percent} %"


class DayCost(models.Model):
    """What one agent spent on one model for one project in one day (UTC): the roll-up that pages
    and exports read. Written with each booking, so that it is never behind, and kept when the
    ledger of its month goes to the archive.
    """

    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    day = models.DateField()
    agent_id = models.UUIDField()
    project_id = models.UUIDField(null=True)
    provider = models.CharField(max_length=60)
    model = models.CharField(max_length=120)
    spent_micros = models.BigIntegerField(default=0)
    events = models.BigIntegerField(default=0)
    unpriced_events = models.BigIntegerField(default=0)
    tokens = models.BigIntegerField(default=0, help_text="Uncached input and output.")
    input_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    last_at = models.DateTimeField()

    objects = TenantQuerySet["DayCost"].as_manager()

    class Meta:
        ordering = ["company", "day", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["company", "day", "agent_id", "project_id", "provider", "model"],
                nulls_distinct=False,
                name="one_day_cost_a_kind",
            )
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.model}"


class ArchivedPartition(models.Model):
    """A month of a big table that went to the archive, and the proof of what went."""

    class State(models.TextChoices):
        DETACHED = "detached"  # out of the table, still in the database
        EXPORTED = "exported"  # in a file that was read back and found equal
        DROPPED = "dropped"  # only in the file
        RESTORED = "restored"  # attached again

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    table = models.CharField(max_length=60)
    month = models.DateField()
    state = models.CharField(max_length=8, choices=State)
    file = models.CharField(max_length=300, blank=True)
    rows = models.BigIntegerField(default=0)
    sums = models.JSONField(default=dict)
    sha256 = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ["table", "month"]
        constraints = [
            models.UniqueConstraint(fields=["table", "month"], name="one_archive_a_table_and_month")
        ]

    def __str__(self) -> str:
        return f"{self.table} {self.month:%Y-%m}"


class BooksCheck(models.Model):
    """What the last look at the books has found: one row, written by the minute's round."""

    THE_ONE = 1

    id = models.PositiveSmallIntegerField(primary_key=True, default=THE_ONE)
    checked_at = models.DateTimeField()
    proved_at = models.DateTimeField(null=True, help_text="The last full proof.")
    wrong_since = models.DateTimeField(null=True)
    drifts = models.JSONField(default=list, help_text="What disagrees, by check and place.")
    alarms = models.JSONField(default=list)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_books_check")]

    def __str__(self) -> str:
        return f"{len(self.drifts)} drifts"
