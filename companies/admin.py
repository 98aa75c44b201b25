"""The data fixers' admin of people, companies, goals and projects; see `admin_base.py` for its
manners and `record_admin.py` for what is only read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from companies import goals, tenancy
from companies import record_admin as record_admin  # registers itself
from companies.activity import Actor
from companies.admin_base import Editable, actor, confirmed, each
from companies.models import Company, Goal, Membership, Project, User


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
