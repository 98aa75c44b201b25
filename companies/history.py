"""Who did what when, a page at a time. Reads only; pages by key, over monthly partitions."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from companies.models import Activity

PAGE = 60
# A page reads one season at most, however long ago the last matching row lies.
DAYS = 100


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Activity]
    next: str  # cursor of the next page, empty at the end


def page(
    *, company_id: uuid.UUID, now: datetime, actor: str = "", noun: str = "", after: str = ""
) -> Page:
    """The newest first. `actor` is user, agent or system; `noun` the first part of the action."""
    found = Activity.objects.for_company(company_id).filter(
        occurred_at__gte=now - timedelta(days=DAYS)
    )
    if actor in Activity.ActorType.values:
        found = found.filter(actor_type=actor)
    if noun.isalpha():
        found = found.filter(action__startswith=f"{noun}.")
    cursor = _cursor(after)
    if cursor:
        at, key = cursor
        found = found.filter(Q(occurred_at__lt=at) | Q(occurred_at=at, id__lt=key))
    rows = list(found.order_by("-occurred_at", "-id")[: PAGE + 1])
    shown = rows[:PAGE]
    last = shown[-1] if len(rows) > PAGE else None
    return Page(shown, f"{last.occurred_at.isoformat()}_{last.id}" if last else "")


def _cursor(text: str) -> tuple[datetime, uuid.UUID] | None:
    at, _, key = text.replace(" ", "+").partition("_")
    try:
        moment = datetime.fromisoformat(at)
        return (moment, uuid.UUID(key)) if moment.tzinfo else None
    except ValueError:
        return None
