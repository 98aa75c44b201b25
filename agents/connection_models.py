"""The rows of model providers: how a company reaches one, how much it may ask, how it is doing.

Read next: `connections.py` (what people and runs do with them), `breaker.py`, `buckets.py`.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from companies.ids import new_id
from companies.models import Company, TenantQuerySet


class ProviderConnection(models.Model):
    """A provider's address with the key and the limits that all its users share."""

    class Kind(models.TextChoices):
        OPENAI = "openai", "OpenAI-compatible"
        ANTHROPIC = "anthropic", "Anthropic"

    class Breaker(models.TextChoices):
        CLOSED = "closed"  # calls go through
        OPEN = "open"  # nothing is asked until `open_until` (None: until a person says so)
        HALF_OPEN = "half_open"  # one probe is on its way; `probe_until` bounds it

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="connections")
    name = models.CharField(max_length=80)
    kind = models.CharField(max_length=10, choices=Kind)
    base_url = models.CharField(max_length=2000, blank=True, help_text="Empty: the provider's own.")
    key_secret = models.CharField(
        max_length=100, blank=True, help_text="Name of a secret of the company; empty: no key."
    )
    requests_per_minute = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(1_000_000)]
    )
    tokens_per_minute = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(2_000_000_000)]
    )
    max_concurrent_runs = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(10_000)]
    )
    disabled_at = models.DateTimeField(null=True, blank=True)

    breaker = models.CharField(
        max_length=10, choices=Breaker, default=Breaker.CLOSED, editable=False
    )
    open_code = models.CharField(max_length=30, blank=True, editable=False)
    opened_at = models.DateTimeField(null=True, editable=False)
    open_until = models.DateTimeField(null=True, editable=False)
    open_count = models.PositiveIntegerField(
        default=0, editable=False, help_text="Openings in a row, without an answer in between."
    )
    probe_until = models.DateTimeField(null=True, editable=False)
    failed_at = ArrayField(
        models.DateTimeField(),
        default=list,
        editable=False,
        help_text="The latest failures that count; an answer takes one away.",
    )
    last_errors = models.JSONField(
        default=list, editable=False, help_text="The newest first: at, code, message."
    )
    last_answer_at = models.DateTimeField(null=True, editable=False)

    version = models.PositiveIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet["ProviderConnection"].as_manager()

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(fields=["company", "name"], name="one_connection_a_name"),
            models.CheckConstraint(
                condition=~Q(breaker="half_open") | Q(probe_until__isnull=False),
                name="half_open_has_a_probe",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ProviderBucket(models.Model):
    """What is left of a connection's minute, for all instances together. A row of its own, since
    every call changes it and every claim reads the connection."""

    connection = models.OneToOneField(
        ProviderConnection, primary_key=True, on_delete=models.CASCADE, related_name="bucket"
    )
    requests_left = models.FloatField()
    tokens_left = models.FloatField(help_text="Below zero after a call larger than the limit.")
    refilled_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.requests_left:g} requests, {self.tokens_left:g} tokens"


class AgentFallback(models.Model):
    """The connections an agent may turn to, in order. A mirror of its configuration, so that the
    database keeps them in the company and the claim can look at them."""

    id = models.BigAutoField(primary_key=True)
    agent = models.ForeignKey("agents.Agent", on_delete=models.CASCADE, related_name="fallbacks")
    position = models.PositiveSmallIntegerField()
    connection = models.ForeignKey(
        ProviderConnection, on_delete=models.RESTRICT, related_name="fallback_of"
    )

    class Meta:
        ordering = ["agent_id", "position"]
        constraints = [
            models.UniqueConstraint(fields=["agent", "position"], name="one_fallback_a_position")
        ]

    def __str__(self) -> str:
        return f"{self.position}: {self.connection_id}"
