"""The data fixers' admin of money: the ledger is read-only, corrections are bookings."""

from __future__ import annotations

import uuid
from decimal import Decimal

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from billing import ledger
from billing.models import (
    ArchivedPartition,
    BooksCheck,
    Budget,
    BudgetIncident,
    CostEvent,
    DayCost,
    ModelPrice,
    Reservation,
    Spend,
)
from companies.admin_base import Readable, actor, confirmed, each


class CorrectionForm(forms.Form):
    """What to add to each of the chosen costs. `key` makes a second press of the button nothing."""

    dollars = forms.DecimalField(
        max_digits=12,
        decimal_places=6,
        help_text="Added to what each event cost; negative takes away. Counts in this month.",
    )
    note = forms.CharField(max_length=500, help_text="Why; it stays in the ledger.")
    key = forms.UUIDField(widget=forms.HiddenInput, initial=uuid.uuid4)


@admin.register(CostEvent)
class CostEvents(Readable):
    list_display = (
        "occurred_at",
        "company",
        "agent",
        "provider",
        "model",
        "input_tokens",
        "output_tokens",
        "cost_micros",
        "cost_status",
    )
    list_filter = ("cost_status", "billing_type")
    list_select_related = ("company", "agent")
    search_fields = ("=run_id", "=issue_id", "=model", "=agent__slug", "=company__issue_prefix")
    date_hierarchy = "occurred_at"
    ordering = ("-occurred_at", "-id")
    actions = ("correct",)

    @confirmed(description="Book a correction", form=CorrectionForm)
    def correct(
        self,
        request: HttpRequest,
        rows: QuerySet[CostEvent],
        *,
        dollars: Decimal,
        note: str,
        key: str,
    ) -> None:
        """A row of its own for each; what was booked stays, and a closed month is not changed."""
        micros, by = int(dollars * 1_000_000), actor(request)

        def book(event: CostEvent) -> None:
            ledger.correct(
                event=event,
                cost_micros=micros,
                note=note,
                key=f"admin:{key}:{event.id}",
                actor=by,
            )

        each(self, request, rows, book, "corrected")


@admin.register(ModelPrice)
class ModelPrices(Readable):
    list_display = (
        "model",
        "provider",
        "company",
        "input_pico",
        "output_pico",
        "cache_read_pico",
        "effective_at",
    )
    list_select_related = ("company",)
    search_fields = ("model", "provider", "company__name")
    date_hierarchy = "effective_at"


@admin.register(Budget)
class Budgets(Readable):
    list_display = (
        "company",
        "scope",
        "scope_id",
        "window",
        "limit_micros",
        "warn_percent",
        "is_hard",
        "updated_at",
    )
    list_filter = ("scope", "window", "is_hard")
    list_select_related = ("company",)
    search_fields = ("company__name", "=scope_id")
    date_hierarchy = "created_at"


@admin.register(BudgetIncident)
class BudgetIncidents(Readable):
    list_display = (
        "created_at",
        "company",
        "budget",
        "percent",
        "spent_micros",
        "limit_micros",
        "state",
        "resolution",
    )
    list_filter = ("state", "resolution")
    list_select_related = ("company", "budget")
    search_fields = ("company__name", "decided_by")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")


@admin.register(Reservation)
class Reservations(Readable):
    list_display = (
        "granted_at",
        "company",
        "agent",
        "kind",
        "state",
        "granted_micros",
        "open_micros",
        "settled_micros",
    )
    list_filter = ("state", "kind")
    list_select_related = ("company", "agent")
    search_fields = ("=run_id", "=agent__slug", "=company__issue_prefix")
    date_hierarchy = "granted_at"
    ordering = ("-granted_at", "-id")


@admin.register(Spend)
class Spends(Readable):
    list_display = (
        "company",
        "scope",
        "scope_id",
        "window",
        "period_start",
        "spent_micros",
        "reserved_micros",
        "limit_micros",
        "unpriced_events",
    )
    list_filter = ("scope", "window")
    list_select_related = ("company",)
    search_fields = ("company__name", "=scope_id")
    date_hierarchy = "period_start"


@admin.register(DayCost)
class DayCosts(Readable):
    list_display = (
        "day",
        "company",
        "provider",
        "model",
        "spent_micros",
        "events",
        "unpriced_events",
        "tokens",
    )
    list_select_related = ("company",)
    search_fields = ("=agent_id", "=model", "=company__issue_prefix")
    date_hierarchy = "day"
    ordering = ("-day", "-id")


@admin.register(ArchivedPartition)
class ArchivedPartitions(Readable):
    list_display = ("table", "month", "state", "rows", "file", "updated_at")
    list_filter = ("state", "table")
    search_fields = ("table", "file")
    date_hierarchy = "month"


@admin.register(BooksCheck)
class BooksChecks(Readable):
    list_display = ("checked_at", "proved_at", "wrong_since")
    search_fields = ("=id",)
    date_hierarchy = "checked_at"
