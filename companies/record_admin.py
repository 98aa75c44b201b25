"""What the admin shows of secrets, history and keys, and lets nobody change."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from companies.admin_base import Readable
from companies.models import (
    Activity,
    CliLogin,
    IdempotencyRecord,
    OperatorKey,
    RecoveryCode,
    Seal,
    Sealer,
    SealingKey,
    SecondFactor,
    Secret,
    SecretRead,
    SignInLink,
    Throttle,
)


@admin.register(Secret)
class Secrets(Readable):
    """That there is a secret, never what it is."""

    list_display = ("name", "company", "version", "last_used_at", "updated_at")
    list_select_related = ("company",)
    search_fields = ("name", "company__name")
    date_hierarchy = "created_at"
    fields = (
        "company",
        "name",
        "description",
        "version",
        "last_used_at",
        "created_at",
        "updated_at",
    )


@admin.register(Activity)
class Activities(Readable):
    list_display = ("occurred_at", "company", "actor_type", "actor_name", "action", "entity_name")
    list_filter = ("actor_type", "entity_type")
    list_select_related = ("company",)
    search_fields = ("action", "entity_name", "actor_name", "=company__issue_prefix")
    date_hierarchy = "occurred_at"
    ordering = ("-occurred_at", "-id")
    list_select_related = ("company",)


@admin.register(Seal)
class Seals(Readable):
    """The links of the chain, without the rows under them; `manage.py audit verify` reads those."""

    list_display = ("sequence", "company", "count", "sealed_at", "first_row", "last_row")
    list_select_related = ("company",)
    search_fields = ("=company__issue_prefix", "=first_row", "=last_row")
    date_hierarchy = "sealed_at"
    ordering = ("-sealed_at", "-id")
    fields = ("company", "sequence", "count", "first_row", "last_row", "sealed_at", "caught_up_at")


@admin.register(Sealer)
class Sealers(Readable):
    list_display = ("at_xid", "at_row", "caught_up_at")
    search_fields = ("=at_row",)
    date_hierarchy = "caught_up_at"


@admin.register(SealingKey)
class SealingKeys(Readable):
    """That there is a key; `manage.py rotate_keys` makes and retires them."""

    list_display = ("id", "is_current", "created_at", "rotated_at")
    search_fields = ("=id",)
    date_hierarchy = "created_at"


@admin.register(SecretRead)
class SecretReads(Readable):
    """Which secret was opened when, for which run or person."""

    list_display = ("read_at", "company", "secret_id", "purpose", "run_id", "user_id")
    list_filter = ("purpose",)
    list_select_related = ("company",)
    search_fields = ("=secret_id", "=run_id", "=user_id", "=company__issue_prefix")
    date_hierarchy = "read_at"
    ordering = ("-read_at", "-id")


@admin.register(OperatorKey)
class OperatorKeys(Readable):
    list_display = (
        "name",
        "user",
        "lookup",
        "expires_at",
        "revoked_at",
        "last_used_at",
        "created_at",
    )
    list_select_related = ("user",)
    search_fields = ("name", "user__email", "=lookup")
    date_hierarchy = "created_at"
    exclude = ("digest",)


@admin.register(SignInLink)
class SignInLinks(Readable):
    """A list only: a link's own page would have its hash as its address."""

    list_display = ("user", "created_at", "expires_at", "used_at")
    list_display_links = None
    list_select_related = ("user",)
    search_fields = ("user__email",)
    date_hierarchy = "created_at"
    ordering = ("-created_at", "digest")

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return obj is None and super().has_view_permission(request, obj)


@admin.register(SecondFactor)
class SecondFactors(Readable):
    """Who has one; `manage.py reset_second_factor` takes it from who is locked out."""

    list_display = ("user", "created_at", "confirmed_at")
    list_select_related = ("user",)
    search_fields = ("user__email",)
    date_hierarchy = "created_at"
    fields = ("user", "created_at", "confirmed_at")


@admin.register(RecoveryCode)
class RecoveryCodes(Readable):
    """Which were used when, never what they are."""

    list_display = ("factor", "created_at", "used_at")
    list_select_related = ("factor__user",)
    search_fields = ("factor__user__email",)
    date_hierarchy = "created_at"
    fields = ("factor", "created_at", "used_at")


@admin.register(Throttle)
class Throttles(Readable):
    """Deleting one lets somebody try again at once."""

    list_display = ("key", "window_start", "count")
    search_fields = ("key",)
    date_hierarchy = "window_start"
    ordering = ("-window_start", "-id")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return admin.ModelAdmin.has_delete_permission(self, request, obj)


@admin.register(IdempotencyRecord)
class IdempotencyRecords(Readable):
    """Without the answers: one may have shown a new key."""

    list_display = ("principal", "route", "key", "status_code", "created_at")
    search_fields = ("principal", "route", "key")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    exclude = ("body", "fingerprint")


@admin.register(CliLogin)
class CliLogins(Readable):
    list_display = ("client_name", "status", "address", "approved_by", "created_at")
    list_filter = ("status",)
    list_select_related = ("approved_by",)
    search_fields = ("client_name", "=approved_by__email")
    fields = ("client_name", "command", "address", "status", "approved_by", "expires_at")
