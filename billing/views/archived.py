"""The archive: which months are in it, which could be, and taking them there."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST
from django_q.tasks import async_task

from billing import archive
from billing.models import ArchivedPartition
from companies.errors import Invalid
from companies.views.door import PageRequest, forbidden, page

KEEP_MONTHS = 12


@page()
def months(request: PageRequest) -> HttpResponse:
    context = {
        "section": "costs",
        "entries": ArchivedPartition.objects.order_by("-month", "table"),
        "due": archive.due(keep_months=KEEP_MONTHS, now=request.now),
        "keep_months": KEEP_MONTHS,
        "may_archive": request.user.is_superuser,
    }
    return render(request, "billing/archive.html", context)


@require_POST
@page()
def take(request: PageRequest) -> HttpResponse:
    """Whoever runs the instance confirms; a worker does it, and the page shows how far it is."""
    if not request.user.is_superuser:
        return forbidden(request, "The archive is the whole instance's; its administrator may.")
    if request.POST.get("sure") != "on":
        raise Invalid("not_confirmed", "Confirm that these months leave the database.")
    # Longer than other tasks may take; twice at once is prevented by a lock.
    async_task(
        "billing.archive.take_due", KEEP_MONTHS, q_options={"timeout": 6 * 3600, "label": "archive"}
    )
    messages.success(request, "The archive has begun; the table below shows how far it is.")
    return redirect(f"{request.base}/costs/archive")
