"""The manners that all admins here share.

Nothing goes round the rules: what is edited goes through the same verbs as everywhere, and what is
history can be read and nothing else. Secrets, hashes and tokens are never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from companies import access
from companies.activity import Actor
from companies.errors import Refusal
from companies.models import User


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
