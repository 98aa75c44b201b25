"""The issue list and the board; one view, the whole page or the part that is swapped."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from companies.views.door import PageRequest, page
from issues import choices, listing
from issues.models import Priority
from issues.views import rows


@page()
def issues(request: PageRequest) -> HttpResponse:
    query = listing.Query.parse(request.GET)
    found = listing.page(
        company=request.company, user_id=request.user.pk, query=query, now=request.now
    )
    groups = [
        (group, rows.lines(group.rows, base=request.base, now=request.now))
        for group in found.groups
    ]
    context = {
        "section": "issues",
        "query": query,
        "groups": groups,
        "next": found.next,
        "view": "list",
    }
    if request.htmx and request.htmx.target == "issue-list":
        return render(request, "issues/_list.html", context)
    return render(request, "issues/list.html", context | _filters(request, query))


@page()
def board(request: PageRequest) -> HttpResponse:
    query = listing.Query.parse(request.GET)
    columns = [
        (group, total, [rows.card(row, base=request.base, now=request.now) for row in group.rows])
        for group, total in listing.board(
            company=request.company, user_id=request.user.pk, query=query, now=request.now
        )
    ]
    context = {"section": "issues", "query": query, "columns": columns, "view": "board"}
    if request.htmx and request.htmx.target == "issue-board":
        return render(request, "issues/_board.html", context)
    return render(request, "issues/board.html", context | _filters(request, query))


def _filters(request: PageRequest, query: listing.Query) -> dict[str, object]:
    given = choices.load(request.company.id)
    return {
        "filters": {
            "status": [("open", "Open"), ("all", "All"), *((s, s) for s in listing.ORDER)],
            "assignee": [("", "Anyone"), ("me", "Me"), ("nobody", "Nobody"), *given.agents],
            "priority": [("", "Any priority"), *((p, p) for p in Priority.labels)],
            "project": [("", "Any project"), *given.projects],
        },
        "sorts": [(name, name) for name in listing.SORTS],
        "groupings": [(name, name) for name in listing.GROUPS],
    }
