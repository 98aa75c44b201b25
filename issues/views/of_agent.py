"""The issues tab of an agent's page."""

from __future__ import annotations

from dataclasses import replace

from django.http import HttpResponse
from django.shortcuts import render

from agents.views.agent import frame
from companies.views.door import PageRequest, page
from issues import listing
from issues.views import rows


@page()
def issues(request: PageRequest, slug: str) -> HttpResponse:
    context = frame(request, slug, "issues")
    query = replace(listing.Query(), assignee=str(context["agent"].id))
    found = listing.page(
        company=request.company, user_id=request.user.pk, query=query, now=request.now
    )
    context["lines"] = rows.lines(found.rows, base=request.base, now=request.now)
    return render(request, "agents/issues.html", context)
