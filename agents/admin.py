"""The data fixers' admin of agents, runs and workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents import meter_admin as meter_admin  # registers itself
from agents import roster, runs
from agents.adapters import failures
from agents.connection_models import AgentFallback, ProviderBucket, ProviderConnection
from agents.masking import masked
from agents.models import (
    Agent,
    AgentKey,
    AgentRevision,
    Beacon,
    HeartbeatRun,
    Hold,
    RunEvent,
    Worker,
)
from companies.activity import Actor
from companies.admin_base import Editable, Readable, actor, confirmed, each


def pretty(value: Any) -> SafeString:
    """JSON to look at, without anything that may be a secret, however deep it lies."""
    return format_html("<pre>{}</pre>", failures.redact(json.dumps(masked(value), indent=2)))


class Holds(admin.TabularInline):
    model = Hold
    fields = readonly_fields = ("reason", "note", "created_by", "created_at")
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("created_by")


class Fallbacks(admin.TabularInline):
    model = AgentFallback
    fields = readonly_fields = ("position", "connection")
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("connection")


@admin.register(Agent)
class Agents(Editable):
    list_display = (
        "name",
        "company",
        "role",
        "adapter_type",
        "status",
        "error_code",
        "heartbeat_enabled",
        "created_at",
    )
    list_filter = ("status", "adapter_type", "heartbeat_enabled")
    list_select_related = ("company",)
    search_fields = ("name", "slug", "company__name", "=company__issue_prefix", "id")
    date_hierarchy = "created_at"
    fields = (
        "company",
        "number",
        "slug",
        "name",
        "title",
        "role",
        "capabilities",
        "instructions",
        "on_finish",
        "can_hire",
        "reports_to",
        "status",
        "error_code",
        "adapter_type",
        "configuration",
        "heartbeat_enabled",
        "interval_seconds",
        "cron",
        "timezone",
        "wake_on_demand",
        "max_concurrent_runs",
        "max_daily_runs",
        "max_daily_cost_micros",
        "next_beat_at",
        "last_beat_at",
        "version",
        "created_at",
        "updated_at",
    )
    readonly_fields = (
        "company",
        "number",
        "slug",
        "reports_to",
        "status",
        "error_code",
        "adapter_type",
        "configuration",
        "next_beat_at",
        "last_beat_at",
        "version",
        "created_at",
        "updated_at",
    )
    inlines = (Holds, Fallbacks)
    actions = ("pause", "resume", "clear_error")

    @admin.display(description="Adapter configuration")
    def configuration(self, agent: Agent) -> SafeString:
        """The configuration without anything that may be a secret."""
        return pretty(agent.adapter_config)

    def change(self, obj: Agent, changes: Mapping[str, Any], by: Actor) -> None:
        roster.update(agent=obj, changes=changes, actor=by)

    @confirmed(description="Pause")
    def pause(self, request: HttpRequest, rows: QuerySet[Agent]) -> None:
        by = actor(request)
        each(self, request, rows, lambda row: roster.pause(agent=row, actor=by), "paused")

    @confirmed(description="Resume")
    def resume(self, request: HttpRequest, rows: QuerySet[Agent]) -> None:
        by = actor(request)
        each(self, request, rows, lambda row: roster.resume(agent=row, actor=by), "resumed")

    @confirmed(description="Clear the last error")
    def clear_error(self, request: HttpRequest, rows: QuerySet[Agent]) -> None:
        by = actor(request)
        each(self, request, rows, lambda row: roster.clear_error(agent=row, actor=by), "cleared")


@admin.register(Hold)
class HoldList(Readable):
    list_display = ("agent", "company", "reason", "note", "created_by", "created_at")
    list_filter = ("reason",)
    list_select_related = ("agent", "company", "created_by")
    search_fields = ("agent__name", "company__name", "note")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")


@admin.register(AgentKey)
class AgentKeys(Readable):
    list_display = (
        "name",
        "agent",
        "company",
        "lookup",
        "expires_at",
        "revoked_at",
        "last_used_at",
    )
    list_select_related = ("agent", "company")
    search_fields = ("name", "agent__name", "company__name", "=lookup")
    date_hierarchy = "created_at"
    exclude = ("digest",)


@admin.register(Worker)
class Workers(Readable):
    list_display = (
        "instance",
        "slot",
        "pid",
        "running",
        "capacity",
        "draining",
        "started_at",
        "lease_expires_at",
    )
    list_filter = ("draining",)
    search_fields = ("instance", "id")
    date_hierarchy = "started_at"


@admin.register(Beacon)
class Beacons(Readable):
    list_display = ("name", "beat_at")
    search_fields = ("name",)


@admin.register(HeartbeatRun)
class Runs(Readable):
    list_display = (
        "created_at",
        "company",
        "agent",
        "issue",
        "status",
        "code",
        "reason",
        "started_at",
        "finished_at",
    )
    list_filter = ("status", "source", "adapter_type")
    list_select_related = ("company", "agent", "issue")
    search_fields = ("=id", "=issue__identifier", "=agent__slug", "=code")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    exclude = ("token_digest",)
    actions = ("cancel", "retry")

    @confirmed(description="Cancel")
    def cancel(self, request: HttpRequest, rows: QuerySet[HeartbeatRun]) -> None:
        by, now = actor(request), timezone.now()
        each(
            self,
            request,
            rows,
            lambda row: runs.cancel(run=row, actor=by, reason="cancelled in the admin", now=now),
            "cancelled or asked to stop",
        )

    @confirmed(description="Run again")
    def retry(self, request: HttpRequest, rows: QuerySet[HeartbeatRun]) -> None:
        by = actor(request)
        each(self, request, rows, lambda row: runs.retry(run=row, actor=by), "queued again")


@admin.register(RunEvent)
class RunEvents(Readable):
    """Output by run: search for a run's id."""

    list_display = ("run_id", "seq", "kind", "excerpt", "at")
    list_filter = ("kind",)
    search_fields = ("=run_id",)
    date_hierarchy = "run_created_at"
    ordering = ("-run_created_at", "run_id", "seq")

    @admin.display(description="Text")
    def excerpt(self, event: RunEvent) -> str:
        return event.text[:120]


@admin.register(ProviderConnection)
class ProviderConnections(Readable):
    """How a provider is doing. Its key is a secret of the company, here only by name."""

    list_display = (
        "name",
        "company",
        "kind",
        "breaker",
        "open_code",
        "open_until",
        "last_answer_at",
        "disabled_at",
    )
    list_filter = ("kind", "breaker")
    list_select_related = ("company",)
    search_fields = ("name", "company__name", "=company__issue_prefix")
    date_hierarchy = "created_at"


@admin.register(ProviderBucket)
class ProviderBuckets(Readable):
    list_display = ("connection", "requests_left", "tokens_left", "refilled_at")
    list_select_related = ("connection",)
    search_fields = ("connection__name",)


@admin.register(AgentFallback)
class AgentFallbacks(Readable):
    list_display = ("agent", "position", "connection")
    list_select_related = ("agent", "connection")
    search_fields = ("agent__name", "connection__name")


@admin.register(AgentRevision)
class AgentRevisions(Readable):
    """What was set stays out: a configuration may hold secrets in plain text."""

    list_display = ("agent", "changed", "created_by_user", "created_by_agent", "created_at")
    list_select_related = ("agent", "created_by_user", "created_by_agent")
    search_fields = ("agent__name", "=agent__slug")
    fields = ("agent", "changed", "created_by_user", "created_by_agent", "created_at")
