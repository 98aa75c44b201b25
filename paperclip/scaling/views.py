"""`/scaling`: the checklist, for who runs the instance."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from companies.models import Membership
from companies.views import door
from paperclip.scaling import checklist
from paperclip.scaling.reading import Level


@require_safe
@login_required
def scaling(request: HttpRequest) -> HttpResponse:
    """It tells of all companies, so it is for who operates the whole."""
    if not request.user.is_superuser:
        raise Http404
    _frame(request)
    found = checklist.groups()
    levels = [reading.level for group in found for reading in group.readings]
    context = {
        "section": "scaling",
        "groups": found,
        "worst": checklist.worst(found),
        "counts": [(level, levels.count(level)) for level in reversed(Level)],
    }
    return render(request, "paperclip/scaling.html", context)


def _frame(request: Any) -> None:
    """Show the page in the frame of `?company=`, or of the first company; without one if there is
    none."""
    mine = Membership.objects.filter(user_id=request.user.pk).order_by(
        "company__name", "company_id"
    )
    prefixes = list(mine.values_list("company__issue_prefix", flat=True))
    wanted = request.GET.get("company", "")
    if prefixes:
        door.enter(request, wanted if wanted in prefixes else prefixes[0])
