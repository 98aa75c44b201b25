"""`/scaling`: the checklist, for who runs the instance."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from paperclip.scaling import checklist
from paperclip.scaling.reading import Level


@require_safe
@login_required
def scaling(request: HttpRequest) -> HttpResponse:
    """It tells of all companies, so it is for who operates the whole."""
    if not request.user.is_superuser:
        raise Http404
    found = checklist.groups()
    levels = [reading.level for group in found for reading in group.readings]
    context = {
        "groups": found,
        "worst": checklist.worst(found),
        "counts": [(level, levels.count(level)) for level in reversed(Level)],
    }
    return render(request, "paperclip/scaling.html", context)
