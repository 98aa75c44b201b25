"""The data fixers' admin of the ground floor, and the manners that all admins here share.

Nothing goes round the rules: what is edited here goes through the same verbs as everywhere, and
what is history (activity, runs, costs, checkouts) can be read and nothing else. Secrets, hashes
and tokens are never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from companies import access, goals, tenancy
from companies.activity import Actor
from companies.errors import Refusal
from companies.models import (
    Activity,
    CliLogin,
    Company,
    Goal,
    IdempotencyRecord,
    Membership,
    OperatorKey,
    Project,
    Seal,
    Sealer,
    SealingKey,
    Secret,
    SecretRead,
    SignInLink,
    Throttle,
    User,
)


def actor(request: HttpRequest) -> Actor:
    """The person at the admin, as an actor of domain verbs."""
    user = request.user
    assert isinstance(user, User)  # the admin lets nobody else in
    return access.for_user(user).actor


class BoundedPaginator(Paginator):
    """Counts no further than a person would page: the big tables have no cheap total."""

    limit = 5_000

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        assert isinstance(rows, QuerySet)  # an admin pages querysets
        return rows.order_by()[: self.limit].count()


class Readable(admin.ModelAdmin):
    """For what is history or belongs to the machine: nothing is added, changed or deleted.

    Its actions need the permission `repair`: that to change such rows, although no form does.
    """

    show_full_result_count = False
    list_per_page = 50
    paginator = BoundedPaginator

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_repair_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_change_permission(self, request)


class Editable(Readable):
    """For what is edited by a verb: `change` gets the fields that differ."""

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return admin.ModelAdmin.has_change_permission(self, request, obj)

    def change(self, obj: Any, changes: Mapping[str, Any], by: Actor) -> None:
        raise Refusal("read_only", "This cannot be changed here.")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        changes = {field: form.cleaned_data[field] for field in form.changed_data}
        if changes:
            stored = self.model._default_manager.get(pk=obj.pk)
            self.change(stored, changes, actor(request))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except Refusal as refusal:
            self.message_user(request, refusal.message, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())


Verb = Callable[..., None]
CONFIRMED = 200  # rows of one action: more is a script's work


def confirmed(*, description: str, form: type[forms.Form] | None = None) -> Callable[[Verb], Any]:
    """Make an action of a method: it shows what it is about to do to which rows, asks for what
    `form` wants to know, and only then calls the method (with the form's values by name)."""

    def wrap(verb: Verb) -> Any:
        @admin.action(description=description, permissions=["repair"])
        @wraps(verb)
        def action(
            model_admin: admin.ModelAdmin, request: HttpRequest, rows: QuerySet[Any]
        ) -> HttpResponse | None:
            sure = "confirmed" in request.POST
            asked = form(request.POST if sure else None) if form else None
            if sure and (asked is None or asked.is_valid()):
                verb(model_admin, request, rows, **(asked.cleaned_data if asked else {}))
                return None
            chosen = list(rows[: CONFIRMED + 1])
            if len(chosen) > CONFIRMED:
                told = f"At most {CONFIRMED} rows at once."
                model_admin.message_user(request, told, messages.ERROR)
                return None
            context = {
                **model_admin.admin_site.each_context(request),
                "title": description,
                "opts": model_admin.model._meta,
                "rows": chosen,
                "asked": asked,
                "action": request.POST.get("action", ""),
            }
            return TemplateResponse(request, "admin/confirm.html", context)

        return action

    return wrap


def each(
    model_admin: admin.ModelAdmin,
    request: HttpRequest,
    rows: QuerySet[Any],
    verb: Any,
    done: str,
) -> None:
    """Carry a verb out on the chosen rows and say how many it took; each refusal is told."""
    count = 0
    for row in rows:
        try:
            verb(row)
        except Refusal as refusal:
            model_admin.message_user(request, f"{row}: {refusal.message}", messages.WARNING)
        else:
            count += 1
    if count:
        model_admin.message_user(request, f"{count} {done}.", messages.SUCCESS)


class NewUserForm(AdminUserCreationForm):
    class Meta:
        model = User
        fields = ("email", "name")


class UserForm(UserChangeForm):
    class Meta:
        model = User
        fields = "__all__"


@admin.register(User)
class People(UserAdmin):
    """People are deactivated, not deleted: what they did stays theirs."""

    form = UserForm
    add_form = NewUserForm
    ordering = ("email", "id")
    list_display = ("email", "name", "is_active", "is_staff", "last_login", "created_at")
    list_filter = ("is_active", "is_staff", "is_superuser")
    search_fields = ("email", "name")
    readonly_fields = ("last_login", "created_at")
    date_hierarchy = "created_at"
    fieldsets = (
        (None, {"fields": ("email", "name", "password")}),
        (
            "May",
            {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")},
        ),
        ("Moments", {"fields": ("last_login", "created_at")}),
    )
    add_fieldsets = (
        (
            None,
            {
                "classes": ("wide",),
                "fields": ("email", "name", "usable_password", "password1", "password2"),
            },
        ),
    )

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class Members(admin.TabularInline):
    model = Membership
    fields = ("user", "role", "created_at")
    readonly_fields = ("user", "role", "created_at")
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("user")


@admin.register(Company)
class Companies(Editable):
    list_display = (
        "name",
        "issue_prefix",
        "status",
        "max_concurrent_agents",
        "is_demo",
        "created_at",
    )
    list_filter = ("status", "is_demo")
    search_fields = ("name", "issue_prefix", "id")
    date_hierarchy = "created_at"
    fields = (
        "name",
        "description",
        "max_concurrent_agents",
        "issue_prefix",
        "status",
        "pause_reason",
        "is_demo",
        "created_at",
        "updated_at",
    )
    readonly_fields = (
        "issue_prefix",
        "status",
        "pause_reason",
        "is_demo",
        "created_at",
        "updated_at",
    )
    inlines = (Members,)
    actions = ("pause", "resume")

    def change(self, obj: Company, changes: Mapping[str, Any], by: Actor) -> None:
        tenancy.update(company=obj, changes=changes, actor=by)

    @confirmed(description="Pause")
    def pause(self, request: HttpRequest, rows: QuerySet[Company]) -> None:
        by = actor(request)
        each(self, request, rows, lambda row: tenancy.pause(company=row, actor=by), "paused")

    @confirmed(description="Resume")
    def resume(self, request: HttpRequest, rows: QuerySet[Company]) -> None:
        by = actor(request)
        each(self, request, rows, lambda row: tenancy.resume(company=row, actor=by), "resumed")


@admin.register(Membership)
class Memberships(Editable):
    list_display = ("user", "company", "role", "created_at")
    list_filter = ("role",)
    list_select_related = ("user", "company")
    search_fields = ("user__email", "user__name", "company__name", "company__issue_prefix")
    autocomplete_fields = ("user", "company")
    date_hierarchy = "created_at"
    fields = ("company", "user", "role", "created_at")
    actions = ("remove",)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def get_readonly_fields(
        self, request: HttpRequest, obj: Model | None = None
    ) -> tuple[str, ...]:
        return ("created_at",) if obj is None else ("company", "user", "created_at")

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            return
        made = tenancy.add_member(
            company=obj.company, user=obj.user, role=obj.role, actor=actor(request)
        )
        obj.pk = made.pk

    def change(self, obj: Membership, changes: Mapping[str, Any], by: Actor) -> None:
        tenancy.set_role(membership=obj, role=changes["role"], actor=by)

    @confirmed(description="Remove from the company")
    def remove(self, request: HttpRequest, rows: QuerySet[Membership]) -> None:
        by = actor(request)
        each(
            self,
            request,
            rows.select_related("company", "user"),
            lambda row: tenancy.remove_member(membership=row, actor=by),
            "removed",
        )


@admin.register(Goal)
class Goals(Editable):
    list_display = ("title", "company", "level", "status", "created_at")
    list_filter = ("level", "status")
    list_select_related = ("company",)
    search_fields = ("title", "company__name", "id")
    date_hierarchy = "created_at"
    fields = (
        "company",
        "title",
        "description",
        "level",
        "status",
        "parent",
        "owner_agent",
        "created_at",
        "updated_at",
    )
    readonly_fields = ("company", "parent", "owner_agent", "created_at", "updated_at")

    def change(self, obj: Goal, changes: Mapping[str, Any], by: Actor) -> None:
        goals.update_goal(goal=obj, changes=changes, actor=by)


@admin.register(Project)
class Projects(Editable):
    list_display = ("name", "company", "status", "target_date", "archived_at", "created_at")
    list_filter = ("status",)
    list_select_related = ("company",)
    search_fields = ("name", "company__name", "id")
    date_hierarchy = "created_at"
    fields = (
        "company",
        "name",
        "description",
        "status",
        "target_date",
        "workspace",
        "goal",
        "lead_agent",
        "archived_at",
        "created_at",
        "updated_at",
    )
    readonly_fields = ("company", "goal", "lead_agent", "archived_at", "created_at", "updated_at")

    def change(self, obj: Project, changes: Mapping[str, Any], by: Actor) -> None:
        goals.update_project(project=obj, changes=changes, actor=by)


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
