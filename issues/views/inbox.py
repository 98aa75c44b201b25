"""The inbox: everything that needs a person, its whole context beside it, and the buttons."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from agents import outcomes
from agents.models import Agent
from companies import moments, undo
from companies.errors import NotFound
from companies.views.door import PageRequest, back, page
from issues import approvals, board, desk, questions, retrace
from issues.inbox import Item
from issues.models import Approval, Issue
from issues.views import undoing

SHOWS = ("waiting", "aside", "decided")
SNOOZES = [("1h", "For an hour"), ("4h", "For four hours"), ("1d", "Until tomorrow")]
OUTCOMES = {
    Approval.Status.APPROVED: "Approved",
    Approval.Status.REJECTED: "Rejected",
    Approval.Status.REVISION: "Sent back for a revision",
}


@page()
def inbox(request: PageRequest) -> HttpResponse:
    """The queue of decisions; `?item=` opens one, `?show=` what was put aside or decided."""
    show = request.GET.get("show", "")
    show = show if show in SHOWS else "waiting"
    context: dict[str, Any] = {"section": "inbox", "show": show}
    if show == "decided":
        before = moments.parse(request.GET.get("before", ""))
        context["decided"], context["next"] = desk.decided(
            company_id=request.company.id, before=before
        )
        return render(request, "issues/inbox.html", context)
    found = desk.of(company_id=request.company.id, user=request.user, now=request.now)
    rows = [(item, None) for item in found.waiting] if show == "waiting" else found.aside
    wanted = _uuid(request.GET.get("item", ""))
    chosen = next((item for item, _ in rows if item.ref == wanted), None)
    context |= {
        "rows": rows,
        "counts": {"waiting": len(found.waiting), "aside": len(found.aside)},
        "chosen": chosen is not None,
        "item": chosen or (rows[0][0] if rows else None),
        "gone": wanted is not None and chosen is None,
    }
    context |= _context(context["item"], request.now) if context["item"] else {}
    if request.htmx and request.htmx.target == "desk":
        return render(request, "issues/_desk.html", context)
    return render(request, "issues/inbox.html", context)


def _context(item: Item, now: datetime) -> dict[str, Any]:
    """What a person needs to know to decide, beside the item itself."""
    return {
        "price": desk.price(item),
        "waits": now - item.at,
        "options": questions.options(item.interaction) if item.interaction else [],
        "outcome": outcomes.of(item.code) if item.kind == "failed" else None,
        "facts": _facts(item),
        "snoozes": SNOOZES,
    }


def _facts(item: Item) -> list[tuple[str, str]]:
    """What would change, or why it stands still, as names and values."""
    given: dict[str, Any] = {}
    if item.approval is not None:
        given = dict(item.approval.payload)
        if item.approval.single_use:
            given = {"use": "once, by one run", **given}
        if item.approval.agent is not None:
            given = _hired(item.approval.agent) | given
    elif item.hold is not None:
        given = dict(item.hold.details)
    shown = [(key, value) for key, value in given.items() if value not in (None, "", [], {})]
    return [(_words(key), _plain(value)) for key, value in shown[:24]]


def _hired(agent: Agent) -> dict[str, Any]:
    return {
        "name": agent.name,
        "title": agent.title,
        "reports_to": agent.reports_to.name if agent.reports_to else "",
        "works_with": agent.adapter_type,
        "model": agent.adapter_config.get("model", ""),
        "wakes": f"every {agent.interval_seconds} s" if agent.heartbeat_enabled else "on demand",
    }


def _words(key: str) -> str:
    spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in str(key))
    return spaced.replace("_", " ").strip().capitalize()


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        # Settings may hold secrets in plain text: their names say what they are for.
        return ", ".join(map(str, value))
    if isinstance(value, list):
        return ", ".join(map(str, value))[:2_000]
    return str(value)[:4_000]


@require_POST
@page()
def aside(request: PageRequest, ref: uuid.UUID) -> HttpResponse:
    """Put an item away or to sleep, for the one who does it."""
    snooze = request.POST.get("snooze", "")
    desk.put_aside(
        company=request.company, user=request.user, ref=ref, snooze=snooze, now=request.now
    )
    words = dict(SNOOZES).get(snooze, "")
    undo.offer(
        request,
        f"It sleeps: {words[0].lower()}{words[1:]}." if words else "Put aside.",
        f"{request.base}/inbox/{ref}/back",
        {},
    )
    return redirect(f"{request.base}/inbox/")


@require_POST
@page()
def take_back(request: PageRequest, ref: uuid.UUID) -> HttpResponse:
    desk.take_back(company=request.company, user=request.user, ref=ref)
    return redirect(f"{request.base}/inbox/?item={ref}")


@require_POST
@page("operate")
def decide(request: PageRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Approve, reject or send back what an agent may not decide itself."""
    found = Approval.objects.for_company(request.company.id).filter(id=approval_id).first()
    if found is None:
        raise NotFound()
    outcome = request.POST.get("outcome", "")
    if outcome not in OUTCOMES:
        raise NotFound()
    approvals.decide(
        approval=found,
        outcome=outcome,
        note=request.POST.get("note", ""),
        actor=request.principal.actor,
        now=request.now,
    )
    messages.success(request, f"{OUTCOMES[Approval.Status(outcome)]}. The agent hears of it.")
    return back(request, f"{request.base}/inbox/")


@require_POST
@page("operate")
def review(request: PageRequest, identifier: str) -> HttpResponse:
    """Accept what was handed in, or send it back with a note that wakes its agent."""
    found = Issue.objects.for_company(request.company.id).filter(identifier=identifier).first()
    if found is None:
        raise NotFound()
    accepted = request.POST.get("outcome") != "back"
    note = request.POST.get("note", "").strip()
    changed = board.update(
        issue=found,
        changes={"status": Issue.Status.DONE if accepted else Issue.Status.TODO},
        comment=note or None,
        actor=request.principal.actor,
        now=request.now,
    )
    if accepted:
        before = retrace.snapshot(found, ("status",))
        undoing.offer(
            request,
            f"{identifier} is done.",
            [(str(found.id), changed.version, before)],
            f"{request.base}/inbox/?item={found.id}",
        )
    else:
        messages.success(request, f"{identifier} goes back; its agent is woken.")
    return back(request, f"{request.base}/inbox/")


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
