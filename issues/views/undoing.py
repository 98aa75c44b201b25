"""Taking a change of issues back: one address for every place that offers it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.views.decorators.http import require_POST

from companies import undo
from companies.views.door import PageRequest, back, page
from issues import bulk


def offer(request: PageRequest, words: str, before: list[bulk.Before], to: str = "") -> None:
    """Say that it is done, and how it is taken back; afterwards the person is at `to`."""
    made = way_back(request, before, to)
    undo.offer(request, words, made.action, made.fields)


def way_back(request: PageRequest, before: list[bulk.Before], to: str = "") -> undo.Offer:
    """The offer itself, for an answer that is swapped in."""
    fields = {"token": undo.seal(before)} | ({"next": to} if to else {})
    return undo.Offer(f"{request.base}/issues/undo", fields)


@require_POST
@page("operate")
def take_back(request: PageRequest) -> HttpResponse:
    """Bring issues back to what they were, where nobody has touched them since."""
    outcome = bulk.take_back(
        company=request.company,
        before=undo.unseal(request.POST.get("token", "")),
        actor=request.principal.actor,
        now=request.now,
    )
    if outcome.before:
        count = len(outcome.before)
        messages.success(request, f"Taken back: {count} issue{'' if count == 1 else 's'}.")
    complain(request, outcome)
    return back(request)


def complain(request: PageRequest, outcome: bulk.Outcome) -> None:
    """Name what refused, a few with their reason."""
    for identifier, why in outcome.refused[:3]:
        messages.error(request, f"{identifier}: {why}")
    if len(outcome.refused) > 3:
        messages.error(request, f"… and {len(outcome.refused) - 3} more stayed as they were.")
