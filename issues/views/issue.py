"""One issue: its page, and what people do on it. Each action is one call of a domain verb."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from agents import runs
from agents.models import HeartbeatRun
from companies import wire
from companies.errors import Conflict, Invalid, NotFound, Refusal
from companies.models import Goal, Project
from companies.views.door import PageRequest, back, page, toast
from issues import board, choices, desk, marks, questions, results, thread, transitions, why
from issues import forms as issue_forms
from issues.document_models import Label
from issues.models import Interaction, Issue, Priority
from issues.views import rows

SUGGESTED = 100  # names of labels that the field offers


@page()
def issue(request: PageRequest, identifier: str) -> HttpResponse:
    return _show(request, identifier)


def _show(request: PageRequest, identifier: str, **more: Any) -> HttpResponse:
    """The page, or the part of it that the request wants to swap."""
    found = thread.find(company_id=request.company.id, identifier=identifier)
    context = _context(request, found) | more
    if request.htmx and request.htmx.target == "thread":
        return render(request, "issues/_thread.html", context)
    given = choices.load(request.company.id)
    context |= {
        "related": thread.related(found),
        "results": results.of(found),
        "targets": [found.status, *transitions.targets(found.status, person=True)],
        "priorities": Priority.labels,
        "assignees": issue_forms.assignees(given),
        "assignee": _assignee_value(found),
        "projects": given.projects,
        "goals": given.goals,
        "label_names": [name for _, name in given.labels[:SUGGESTED]],
    }
    if request.htmx and request.htmx.target == "properties":
        return render(request, "issues/_properties.html", context)
    return render(request, "issues/issue.html", context, status=422 if "error" in more else 200)


def _context(request: PageRequest, found: Issue) -> dict[str, Any]:
    told = thread.load(found)
    return {
        "section": "issues",
        "issue": found,
        "thread": told,
        "failure": told.failure,
        "closed": found.status in Issue.CLOSED,
    }


@page()
def reasons(request: PageRequest, identifier: str) -> HttpResponse:
    """Why nobody works on it, with what can be done; a part that loads by itself."""
    found = thread.find(company_id=request.company.id, identifier=identifier)
    chips = [
        (chip, rows.chip(chip, request.now)) for chip in why.not_running(found, now=request.now)
    ]
    return render(request, "issues/_why.html", {"issue": found, "chips": chips})


@page()
def handed_in(request: PageRequest, identifier: str) -> HttpResponse:
    """What a review is about; a part of the inbox that loads by itself."""
    found = thread.find(company_id=request.company.id, identifier=identifier)
    context = {"issue": found, "handed": desk.handed_in(found)}
    return render(request, "issues/_handed_in.html", context)


@page()
def peek(request: PageRequest, identifier: str) -> HttpResponse:
    """What it is about, in a few lines, for a look without leaving the list."""
    found = thread.find(company_id=request.company.id, identifier=identifier)
    told = thread.load(found)
    comments = [entry.item for entry in told.entries if entry.kind == "comment"]
    chips = [rows.chip(one, request.now) for one in why.not_running(found, now=request.now)]
    context = {
        "issue": found,
        "thread": told,
        "last": comments[-1] if comments else None,
        "chips": chips if not told.live else [],
    }
    return render(request, "issues/_peek.html", context)


def _assignee_value(found: Issue) -> str:
    if found.assignee_agent_id:
        return f"agent:{found.assignee_agent_id}"
    return f"user:{found.assignee_user_id}" if found.assignee_user_id else ""


def _to(request: PageRequest, identifier: str) -> HttpResponse:
    return redirect(f"{request.base}/issues/{identifier}")


@require_POST
@page("operate")
def edit(request: PageRequest, identifier: str) -> HttpResponse:
    """Change one or several properties: only the fields that were sent."""
    found = thread.find(company_id=request.company.id, identifier=identifier)
    version = request.POST.get("version", "")
    try:
        board.update(
            issue=found,
            changes=_changes(request),
            actor=request.principal.actor,
            now=request.now,
            if_version=int(version) if version.isascii() and version.isdigit() else None,
            comment=request.POST.get("comment") or None,
        )
    except Refusal as refusal:
        if not request.htmx:
            raise
        # The select has moved already: show what is true, and say why it did not change.
        return toast(_show(request, identifier), refusal.message, "bad")
    if request.htmx:
        shown = _show(request, identifier)
        shown["HX-Trigger"] = "live:changed"
        return shown
    return back(request, f"{request.base}/issues/{identifier}")


@require_POST
@page("operate")
def label(request: PageRequest, identifier: str) -> HttpResponse:
    """Add a label by its name, or take one off."""
    found = thread.find(company_id=request.company.id, identifier=identifier)
    actor, now = request.principal.actor, request.now
    try:
        if "remove" in request.POST:
            key = wire.parse_id(request.POST["remove"], "label")
            held = Label.objects.for_company(found.company_id).filter(id=key).first()
            if held is not None:  # else somebody has deleted it, and the issue has lost it
                marks.detach(issue=found, label=held, actor=actor, now=now)
        else:
            marks.attach(issue=found, name=request.POST.get("add", ""), actor=actor, now=now)
    except Refusal as refusal:
        if not request.htmx:
            raise
        return toast(_show(request, identifier), refusal.message, "bad")
    return _show(request, identifier) if request.htmx else _to(request, identifier)


def _changes(request: PageRequest) -> dict[str, Any]:
    """The form's fields as `board.update` takes them. The verb checks whose they are."""
    sent = request.POST
    changes: dict[str, Any] = {
        name: sent[name]
        for name in ("title", "description", "status", "priority", "blocked_reason")
        if name in sent
    }
    try:
        if "assignee" in sent:
            changes |= issue_forms.assignee(sent["assignee"])
        if "project" in sent:
            changes["project"] = _one(Project, sent["project"])
        if "goal" in sent:
            changes["goal"] = _one(Goal, sent["goal"])
    except ValueError:
        raise Invalid("invalid_id", "Choose one of the list.") from None
    if "blocked_by" in sent:
        names = {name.upper() for name in sent["blocked_by"].replace(",", " ").split()}
        blockers = list(Issue.objects.for_company(request.company.id).filter(identifier__in=names))
        unknown = names - {blocker.identifier for blocker in blockers}
        if unknown:
            raise Invalid("unknown_issue", f"There is no {', '.join(sorted(unknown))}.")
        changes["blocked_by"] = blockers
    return changes


def _one(model: type[Any], key: str) -> Any:
    if not key:
        return None
    found = model.objects.filter(id=uuid.UUID(key)).first()
    if found is None:
        raise NotFound()
    return found


@require_POST
@page("operate")
def comment(request: PageRequest, identifier: str) -> HttpResponse:
    """Add to the thread; the button decides whether the assignee is woken."""
    found = thread.find(company_id=request.company.id, identifier=identifier)
    body = request.POST.get("body", "")
    try:
        board.comment(
            issue=found,
            body=body,
            actor=request.principal.actor,
            now=request.now,
            wake=request.POST.get("wake") == "1",
            reopen=request.POST.get("reopen") == "1",
        )
    except Refusal as refusal:
        return _show(request, identifier, draft=body, error=refusal.message)
    return _to(request, identifier)


@require_POST
@page("operate")
def answer(request: PageRequest, identifier: str, interaction_id: uuid.UUID) -> HttpResponse:
    """Answer what an agent asked: a suggested option, or one's own words."""
    asked = (
        Interaction.objects.for_company(request.company.id)
        .filter(id=interaction_id, issue__identifier=identifier)
        .select_related("issue")
        .first()
    )
    if asked is None:
        raise NotFound()
    words = request.POST.get("answer", "").strip() or request.POST.get("option", "")
    outcome = request.POST.get("outcome") or None
    questions.answer(
        interaction=asked,
        response={"answer": words} if words else {},
        outcome=outcome,
        actor=request.principal.actor,
        now=request.now,
    )
    return back(request, f"{request.base}/issues/{identifier}")


@require_POST
@page("operate")
def wake(request: PageRequest, identifier: str) -> HttpResponse:
    """Run the assignee on this issue now."""
    found = thread.find(company_id=request.company.id, identifier=identifier)
    if found.assignee_agent is None:
        raise Conflict("no_agent", "Assign an agent first.")
    queued = runs.wake(
        agent=found.assignee_agent,
        issue=found,
        reason=runs.MANUAL,
        source=HeartbeatRun.Source.ON_DEMAND,
        actor=request.principal.actor,
        now=request.now,
        priority=found.priority,
    )
    if queued.refused:
        raise Conflict(queued.refused, f"{found.assignee_agent.name} cannot be woken now.")
    messages.success(request, f"{found.assignee_agent.name} will start shortly.")
    return _to(request, identifier)


@require_POST
@page("operate")
def archive(request: PageRequest, identifier: str) -> HttpResponse:
    """Take a closed issue off the lists, or put it back."""
    found = thread.find(company_id=request.company.id, identifier=identifier)
    verb = board.unarchive if request.POST.get("undo") else board.archive
    verb(issue=found, actor=request.principal.actor, now=request.now)
    return _to(request, identifier)
