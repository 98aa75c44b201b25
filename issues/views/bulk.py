"""Many issues at once: one form below the list, one call, one message with the way back."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_POST

from companies.errors import Invalid
from companies.views.door import PageRequest, back, page
from issues import bulk, forms, marks
from issues.models import Issue
from issues.views import undoing

UNCHANGED = ""  # a field of the form that is left as it was
NOBODY = "nobody"


@require_POST
@page("operate")
def change(request: PageRequest) -> HttpResponse:
    """Change the chosen issues; each that refuses is named with its reason."""
    outcome = bulk.change(
        company=request.company,
        issue_ids=_chosen(request),
        changes=_changes(request),
        actor=request.principal.actor,
        now=request.now,
    )
    count = len(outcome.before)
    if count:
        words = f"Changed {count} issue{'' if count == 1 else 's'}."
        undoing.offer(request, words, outcome.before)
    undoing.complain(request, outcome)
    return back(request, f"{request.base}/issues/")


def _chosen(request: PageRequest) -> list[uuid.UUID]:
    names = [name[:24] for name in request.POST.getlist("issue")][: bulk.MOST + 1]
    return list(
        Issue.objects.for_company(request.company.id)
        .filter(identifier__in=names)
        .values_list("id", flat=True)
    )


def _changes(request: PageRequest) -> dict[str, Any]:
    sent = {name: str(value) for name, value in request.POST.items() if value != UNCHANGED}
    changes: dict[str, Any] = {name: sent[name] for name in ("status", "priority") if name in sent}
    if sent.get("archive"):
        return {"archived": True}
    try:
        if "assignee" in sent:
            changes |= forms.assignee("" if sent["assignee"] == NOBODY else sent["assignee"])
        if "label" in sent:
            changes["label"] = marks.label_named(
                company=request.company,
                name=sent["label"],
                actor=request.principal.actor,
                now=request.now,
            )
    except ValueError:
        raise Invalid("invalid_id", "Choose one of the list.") from None
    return changes
