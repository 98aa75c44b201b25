"""Lists under a name: a person's own, and those that colleagues share."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from companies.errors import Conflict, Invalid, NotFound
from companies.models import Company, User
from issues import fields, listing
from issues.models import SavedView

MOST = 50


def visible(*, company_id: uuid.UUID, user: User) -> QuerySet[SavedView]:
    """A person's own views and the shared ones, by name."""
    return (
        SavedView.objects.for_company(company_id)
        .filter(Q(user=user) | Q(is_shared=True))
        .select_related("user")
        .order_by("name", "id")
    )


def save(
    *,
    company: Company,
    user: User,
    name: str,
    layout: str,
    state: Mapping[str, str],
    is_shared: bool = False,
    now: datetime,
) -> SavedView:
    """Keep a list's state (what its address says) under a name; the same name is overwritten.

    Raises Invalid, Conflict (enough views already).
    """
    if layout not in SavedView.Layout.values:
        raise Invalid("invalid_layout", "A view is a list or a board.", field="layout")
    clean = fields.text(name, "name", limit=60, required=True, line=True)
    own = SavedView.objects.for_company(company.id).filter(user=user)
    query = listing.Query.parse(state).address().removeprefix("?")
    if not own.filter(name=clean).exists() and own.count() >= MOST:
        raise Conflict("too_many_views", f"You have {MOST} views; remove one first.")
    try:
        with transaction.atomic():
            view, _ = SavedView.objects.update_or_create(
                company=company,
                user=user,
                name=clean,
                defaults={"layout": layout, "query": query, "is_shared": is_shared},
                create_defaults={
                    "layout": layout,
                    "query": query,
                    "is_shared": is_shared,
                    "created_at": now,
                },
            )
    except IntegrityError:
        raise Conflict("view_taken", "It was saved by another tab just now.") from None
    return view


def remove(*, company_id: uuid.UUID, user: User, view_id: uuid.UUID) -> SavedView:
    """Forget one of one's own views. Raises NotFound. Returns what it was."""
    view = SavedView.objects.for_company(company_id).filter(user=user, id=view_id).first()
    if view is None:
        raise NotFound("You have no such view.")
    found = SavedView(**{f.attname: getattr(view, f.attname) for f in SavedView._meta.fields})
    view.delete()
    return found
