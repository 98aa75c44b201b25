"""The issue list and the board; one view, the whole page or the part that is swapped."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from companies import tables
from companies.errors import Conflict, Refusal
from companies.format import label
from companies.views.door import PageRequest, back, page, toast
from issues import board as boards
from issues import choices, listing, retrace, saved_views, thread
from issues.forms import assignees
from issues.models import Issue, Priority
from issues.views import rows, undoing


@page()
def issues(request: PageRequest) -> HttpResponse:
    query = listing.Query.parse(request.GET)
    found = listing.page(
        company=request.company, user_id=request.user.pk, query=query, now=request.now
    )
    pick = request.may("operate")
    groups = [
        (group, rows.lines(group.rows, base=request.base, now=request.now, pick=pick))
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
    return render(request, "issues/list.html", context | _filters(request, query, "list"))


@page()
def board(request: PageRequest) -> HttpResponse:
    query = listing.Query.parse(request.GET)
    context = _board(request, query)
    if request.htmx and request.htmx.target == "issue-board":
        return render(request, "issues/_board.html", context)
    return render(request, "issues/board.html", context | _filters(request, query, "board"))


@page()
def table(request: PageRequest) -> StreamingHttpResponse:
    """What the list's filters choose, as CSV; at most `tables.MOST` rows."""
    query = listing.Query.parse(request.GET)
    found = listing.matching(company_id=request.company.id, user_id=request.user.pk, query=query)
    picked = found.order_by("priority", "-id").values_list(
        *("identifier", "title", "status", "priority", "assignee_agent__name"),
        *("assignee_user__email", "project__name", "created_at", "updated_at", "completed_at"),
    )[: tables.MOST]
    head = (
        *("issue", "title", "status", "priority", "agent", "person", "project"),
        *("created", "updated", "completed"),
    )
    lines = (
        (*row[:3], str(Priority(row[3]).label), *row[4:]) for row in picked.iterator(chunk_size=500)
    )
    return tables.respond("issues.csv", head, lines)


def _board(request: PageRequest, query: listing.Query) -> dict[str, Any]:
    move = request.may("operate")
    columns = [
        (
            group,
            total,
            [rows.card(row, base=request.base, now=request.now, move=move) for row in group.rows],
        )
        for group, total in listing.board(
            company=request.company, user_id=request.user.pk, query=query, now=request.now
        )
    ]
    return {"section": "issues", "query": query, "columns": columns, "view": "board"}


@require_POST
@page("operate")
def move(request: PageRequest) -> HttpResponse:
    """Put a card into another column: by drag, by its menu, by keyboard, all by this one.

    `from` is the column in which the person saw it: when somebody else has moved it since, nothing
    changes and the board says so.
    """
    found = thread.find(
        company_id=request.company.id, identifier=request.POST.get("issue", "")[:24]
    )
    before = retrace.snapshot(found, ("status",))
    try:
        changed = _moved(request, found)
    except Refusal as refusal:
        if not request.htmx:
            raise
        return toast(_swapped(request), f"{found.identifier}: {refusal.message}", "bad")
    words = f"{found.identifier} is {label(changed.status).lower()}."
    kept = [(str(found.id), changed.version, before)]
    here = f"{request.base}/issues/board{listing.Query.parse(request.GET).here}"
    if request.htmx:
        return toast(_swapped(request), words, undo=undoing.way_back(request, kept, here))
    undoing.offer(request, words, kept, here)
    return back(request, here)


def _moved(request: PageRequest, found: Issue) -> Issue:
    to, note = request.POST.get("to", ""), request.POST.get("note", "").strip()
    if request.POST.get("from") != found.status:
        raise Conflict(
            "moved_meanwhile",
            f"somebody else has moved it to {label(found.status)} in the meantime.",
        )
    changes = {"status": to}
    if to == Issue.Status.BLOCKED and note:
        changes["blocked_reason"] = note
    reopened = found.status in Issue.CLOSED
    return boards.update(
        issue=found,
        changes=changes,
        comment=(note or "Reopened on the board.") if reopened else None,
        if_version=found.version,
        actor=request.principal.actor,
        now=request.now,
    )


def _swapped(request: PageRequest) -> HttpResponse:
    query = listing.Query.parse(request.GET)
    return render(request, "issues/_board.html", _board(request, query))


def _filters(request: PageRequest, query: listing.Query, layout: str) -> dict[str, object]:
    given = choices.load(request.company.id)
    return {
        "filters": {
            "status": ["open", "all", *listing.ORDER],
            "assignee": [("", "Anyone"), ("me", "Me"), ("nobody", "Nobody"), *given.agents],
            "priority": [("", "Any priority"), *Priority.labels],
            "project": [("", "Any project"), *given.projects],
        },
        "sorts": [(name, f"{label(name)} first") for name in listing.SORTS],
        "groupings": [
            (name, "No groups" if name == "none" else f"By {name}") for name in listing.GROUPS
        ],
        "assignees": assignees(given),
        "priorities": Priority.labels,
        "statuses": listing.ORDER,
        "labels": given.labels,
        "views": saved_views.visible(company_id=request.company.id, user=request.user),
        "layout": layout,
    }
