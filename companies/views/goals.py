"""Goals and projects: what issues hang on. Simple lists and forms."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from companies import goals as verbs
from companies.errors import Invalid, NotFound, Refusal
from companies.models import Goal, Project
from companies.views.door import PageRequest, page


def _show(request: PageRequest, **more: Any) -> HttpResponse:
    goals = list(Goal.objects.for_company(request.company.id).order_by("created_at", "id"))
    context = {
        "section": "goals",
        "tops": _tree(goals),
        "goals": goals,
        "projects": Project.objects.for_company(request.company.id).select_related("goal"),
        "goal_statuses": Goal.Status.values,
        "levels": Goal.Level.values,
        "project_statuses": Project.Status.values,
        **more,
    }
    status = 422 if "problem" in more else 200
    return render(request, "companies/goals.html", context, status=status)


def _tree(goals: list[Goal]) -> list[tuple[Goal, int]]:
    """Goals in the order of their tree, with how deep each lies."""
    below: dict[uuid.UUID | None, list[Goal]] = {}
    known = {goal.id for goal in goals}
    for goal in goals:
        parent = goal.parent_id if goal.parent_id in known else None
        below.setdefault(parent, []).append(goal)
    order: list[tuple[Goal, int]] = []
    waiting = [(goal, 0) for goal in reversed(below.get(None, []))]
    while waiting:
        goal, depth = waiting.pop()
        order.append((goal, depth))
        waiting += [(child, depth + 1) for child in reversed(below.get(goal.id, []))]
    return order


@page()
def goals(request: PageRequest) -> HttpResponse:
    return _show(request)


@require_POST
@page("operate")
def save_goal(request: PageRequest) -> HttpResponse:
    """Create a goal, or change the one whose id was sent."""
    sent = request.POST
    fields: dict[str, Any] = {
        name: sent[name] for name in ("title", "description", "level", "status") if name in sent
    }
    try:
        if "parent" in sent:
            fields["parent"] = _goal(request, sent["parent"]) if sent["parent"] else None
        if sent.get("id"):
            verbs.update_goal(
                goal=_goal(request, sent["id"]),
                changes=fields,
                actor=request.principal.actor,
                now=request.now,
            )
        else:
            verbs.create_goal(
                company=request.company,
                actor=request.principal.actor,
                now=request.now,
                **{"title": "", **fields},
            )
    except NotFound:
        raise
    except Refusal as refusal:
        return _show(request, problem="goal", said=refusal.message, typed=sent)
    messages.success(request, "Saved.")
    return redirect(f"{request.base}/goals/")


@require_POST
@page("operate")
def save_project(request: PageRequest) -> HttpResponse:
    """Create a project, or change the one whose id was sent."""
    sent = request.POST
    names = ("name", "description", "status", "workspace", "target_date")
    fields: dict[str, Any] = {name: sent[name] for name in names if name in sent}
    if fields.get("workspace") and not request.may("manage"):
        # A folder on the server is what agents may write to.
        raise Invalid("owners_only", "Only an owner sets a project's folder.", field="workspace")
    try:
        if "goal" in sent:
            fields["goal"] = _goal(request, sent["goal"]) if sent["goal"] else None
        if sent.get("id"):
            project = Project.objects.for_company(request.company.id).filter(id=_id(sent["id"]))
            verbs.update_project(
                project=_one(project.first()),
                changes=fields,
                actor=request.principal.actor,
                now=request.now,
            )
        else:
            verbs.create_project(
                company=request.company,
                actor=request.principal.actor,
                now=request.now,
                **{"name": "", **fields},
            )
    except NotFound:
        raise
    except Refusal as refusal:
        return _show(request, problem="project", said=refusal.message, typed=sent)
    messages.success(request, "Saved.")
    return redirect(f"{request.base}/goals/#projects")


def _goal(request: PageRequest, key: str) -> Goal:
    return _one(Goal.objects.for_company(request.company.id).filter(id=_id(key)).first())


def _one(found: Any) -> Any:
    if found is None:
        raise NotFound()
    return found


def _id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise NotFound() from None
