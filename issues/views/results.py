"""What came of an issue: its documents, to be read."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from companies.errors import NotFound
from companies.views.door import PageRequest, page
from issues import results, thread

MOST_DIGITS = 9


@page()
def document(request: PageRequest, identifier: str, key: str) -> HttpResponse:
    """`?revision=N` shows it as it was."""
    found = thread.find(company_id=request.company.id, identifier=identifier)
    asked = request.GET.get("revision", "")
    if asked and not (asked.isascii() and asked.isdigit() and len(asked) <= MOST_DIGITS):
        raise NotFound("There is no such revision.")
    shown = results.document(found, key, int(asked) if asked else None)
    context = {"section": "issues", "issue": found, "shown": shown, "document": shown.document}
    return render(request, "issues/document.html", context)
