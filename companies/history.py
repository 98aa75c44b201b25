"""Who did what when, a page at a time. Reads only; pages by key, over monthly partitions."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from companies import moments
from companies.models import Activity

PAGE = 60
# A page reads one season at most, however long ago the last matching row lies.
DAYS = 100


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Activity]
    next: str  # cursor of the next page, empty at the end


def matching(
    *,
    company_id: uuid.UUID,
    now: datetime,
    actor: str = "",
    noun: str = "",
    who: str = "",
    day: str = "",
) -> QuerySet[Activity]:
    """Rows in no order. `actor` is user, agent or system; `noun` the first part of the action;
    `who` part of a name, of whoever acted or of what it was about; `day` an ISO date (UTC)."""
    found = Activity.objects.for_company(company_id)
    on = moments.day(day)
    if on:
        found = found.filter(occurred_at__gte=on[0], occurred_at__lt=on[1])
    else:
        found = found.filter(occurred_at__gte=now - timedelta(days=DAYS))
    if actor in Activity.ActorType.values:
        found = found.filter(actor_type=actor)
    if noun.isalpha():
        found = found.filter(action__startswith=f"{noun}.")
    if who:
        named = who.replace("\x00", "")
        found = found.filter(Q(actor_name__icontains=named) | Q(entity_name__icontains=named))
    return found


def page(*, company_id: uuid.UUID, now: datetime, after: str = "", **wish: str) -> Page:
    """The newest first, a page at a time; `wish` as in `matching`."""
    found = matching(company_id=company_id, now=now, **wish)
    cursor = _cursor(after)
    if cursor:
        at, key = cursor
        found = found.filter(Q(occurred_at__lt=at) | Q(occurred_at=at, id__lt=key))
    rows = list(found.order_by("-occurred_at", "-id")[: PAGE + 1])
    shown = rows[:PAGE]
    last = shown[-1] if len(rows) > PAGE else None
    return Page(shown, f"{last.occurred_at.isoformat()}_{last.id}" if last else "")


def _cursor(text: str) -> tuple[datetime, uuid.UUID] | None:
    at, _, key = text.partition("_")
    moment = moments.parse(at)
    try:
        return (moment, uuid.UUID(key)) if moment else None
    except ValueError:
        return None
