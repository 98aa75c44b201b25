"""How an agent was set up, change by change: what differs, who did it, and the way back."""

from __future__ import annotations

import difflib
import json
import uuid
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from agents import revisions as history
from agents import roster
from agents.adapters import failures
from agents.masking import masked
from agents.models import Agent, AgentRevision
from agents.views.agent import frame
from companies import format
from companies.errors import NotFound
from companies.views.door import PageRequest, page

PAGE = 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a difference; `kind` is add, remove or same."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    lines: list[Line]


@page()
def revisions(request: PageRequest, slug: str) -> HttpResponse:
    """The newest first, each with its difference; `?before=` goes on."""
    context = frame(request, slug, "revisions")
    before = _uuid(request.GET.get("before", ""))
    found = AgentRevision.objects.filter(agent=context["agent"]).select_related(
        "created_by_user", "created_by_agent", "rolled_back_from"
    )
    if before:
        found = found.filter(id__lt=before)
    rows = list(found.order_by("-id")[: PAGE + 1])
    names = _names(context["agent"], rows)
    shown = [(row, [_field(row, name, names) for name in row.changed]) for row in rows[:PAGE]]
    context |= {
        "revisions": shown,
        "next": rows[PAGE - 1].id if len(rows) > PAGE else None,
        "first": before is None,
    }
    return render(request, "agents/revisions.html", context)


@require_POST
@page("operate")
def restore(request: PageRequest, slug: str, revision_id: uuid.UUID) -> HttpResponse:
    """Set the agent up as it was before this change (`to=before`) or after it."""
    agent: Agent = frame(request, slug, "revisions")["agent"]
    row = AgentRevision.objects.filter(agent=agent, id=revision_id).first()
    if row is None:
        raise NotFound()
    if request.POST.get("to") == "before":
        changes = history.changes_to_before(row)
    else:
        changes = history.changes_to(row)
    roster.update(
        agent=agent,
        changes=changes,
        actor=request.principal.actor,
        now=request.now,
        rolled_back_from=row.id,
    )
    messages.success(request, f"{agent.name} is set up as it was. The next run uses it.")
    return redirect(f"{request.base}/agents/{agent.slug}/revisions")


def _names(agent: Agent, rows: list[AgentRevision]) -> dict[str, str]:
    """Managers by id, as far as these revisions name any."""
    ids = {state.get("reports_to") for row in rows for state in (row.before, row.after)} - {None}
    if not ids:
        return {}
    found = Agent.objects.for_company(agent.company_id).filter(id__in=ids)
    return {str(key): name for key, name in found.values_list("id", "name")}


def _field(row: AgentRevision, name: str, names: dict[str, str]) -> Field:
    old = _text(name, row.before.get(name), names).splitlines()
    new = _text(name, row.after.get(name), names).splitlines()
    lines = []
    for text in difflib.ndiff(old, new):
        if text.startswith("?"):
            continue
        kind = {"+": "add", "-": "remove"}.get(text[:1], "same")
        lines.append(Line(kind, text[2:]))
    return Field(format.label(name), _around(lines))


def _around(lines: list[Line], near: int = 2) -> list[Line]:
    """What changed and two lines around it; a long unchanged part says how long it is."""
    wanted = {
        index + step
        for index, line in enumerate(lines)
        if line.kind != "same"
        for step in range(-near, near + 1)
    }
    shown: list[Line] = []
    skipped = 0
    for index, line in enumerate(lines):
        if index in wanted:
            if skipped:
                shown.append(Line("skip", f"{skipped} unchanged"))
            skipped = 0
            shown.append(line)
        else:
            skipped += 1
    if skipped and shown:
        shown.append(Line("skip", f"{skipped} unchanged"))
    return shown


def _text(name: str, value: Any, names: dict[str, str]) -> str:
    """A value as lines of text, without anything that may be a secret."""
    if value is None or value == "":
        return ""
    if name == "reports_to":
        return names.get(str(value), "somebody who is gone")
    if isinstance(value, (dict, list)):
        return failures.redact(json.dumps(masked(value), indent=2, sort_keys=True))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return failures.redact(str(value))


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
