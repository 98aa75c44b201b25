"""The rows of issue lists, written by functions: the page and the live swap use the same one."""

from __future__ import annotations

from datetime import datetime

from django.utils.safestring import SafeString, mark_safe

from companies import format
from companies.format import html
from issues.listing import Row
from issues.models import Priority
from issues.why import Chip

CLOSED = ("done", "cancelled")
# What a chip looks like; the codes come from `why.py`.
LOOKS: dict[str, tuple[str, str]] = {
    "blocked_by": ("ban", ""),
    "blocked": ("ban", ""),
    "waiting_for_you": ("message-circle-question-mark", "warn"),
    "in_review": ("eye", "warn"),
    "budget_hold": ("wallet", "warn"),
    "budget_room": ("wallet", "warn"),
    "agent_paused": ("pause", "warn"),
    "agent_pending": ("hand", "warn"),
    "company_paused": ("pause", "warn"),
    "adapter_failed": ("octagon-alert", "bad"),
    "agent_terminated": ("octagon-alert", "bad"),
    "no_assignee": ("user", ""),
    "with_person": ("user", ""),
    "backlog": ("circle-dot", ""),
    "retry_at": ("rotate-cw", ""),
    "not_before": ("calendar-clock", ""),
}
TIMED = frozenset({"retry_at", "not_before", "budget_room"})

_PICK = '<input type="checkbox" class="pick" form="bulk" name="issue" value="{}" aria-label="Select {}">'  # noqa: E501
# One dialog moves every card: the button says which.
_MOVE = (
    '<button type="button" class="btn btn-quiet btn-icon card-move" data-move="{}"'
    ' aria-label="Move {}" data-from="{}">⋯</button>'
)


def chip(reason: Chip, now: datetime) -> SafeString:
    """Why an issue is not running, in a few words."""
    icon, tone = LOOKS.get(reason.code, ("hourglass", ""))
    when = format.ago(reason.at, now) if reason.code in TIMED else ""
    return html(
        '<span class="chip" data-tone="{}" title="{}">{}<span class="clip">{}</span>{}</span>',
        tone,
        reason.text,
        format.icon(icon),
        reason.text,
        when,
    )


def _who(row: Row) -> SafeString:
    if not row.assignee:
        return mark_safe('<span class="row-who faint wide-only">Nobody</span>')
    pulse = format.glyph("run", "running") if row.running else ""
    return html(
        '<span class="row-who">{}<span class="clip">{}</span>{}</span>',
        format.avatar(row.assignee, row.assignee_kind),
        row.assignee,
        pulse,
    )


def _priority(rank: int) -> SafeString:
    return format.glyph("priority", Priority(rank).label)


def line(row: Row, *, base: str, now: datetime, pick: bool = False) -> SafeString:
    """One dense row: status, identifier, title, why it waits, who, cost so far, age.

    With `pick` it has a check box of the form `bulk`.
    """
    return html(
        '<div class="row" id="issue-{}"{}>{}{}{}<span class="row-id">{}</span>'
        '<div class="row-mid"><a class="row-title" id="go-{}" href="{}/issues/{}">{}</a>{}{}</div>'
        '<div class="row-end">{}<span class="cost">{}</span>{}</div></div>',
        row.identifier,
        mark_safe(" data-done") if row.status in CLOSED else "",
        html(_PICK, row.identifier, row.identifier) if pick else "",
        format.glyph("issue", row.status),
        _priority(row.priority),
        row.identifier,
        row.identifier,
        base,
        row.identifier,
        row.title,
        html('<span class="badge num">{}/{}</span>', *row.children)
        if row.children and row.children[1]
        else "",
        chip(row.chip, now) if row.chip else "",
        _who(row),
        _spent(row),
        format.ago(row.updated_at, now),
    )


def _spent(row: Row) -> str:
    return format.cost(row.cost_micros, row.unpriced) if row.cost_micros or row.unpriced else ""


def lines(rows: list[Row], *, base: str, now: datetime, pick: bool = False) -> SafeString:
    written = [line(row, base=base, now=now, pick=pick) for row in rows]
    return mark_safe("".join(written))  # noqa: S308 - of safe pieces


def card(row: Row, *, base: str, now: datetime, move: bool = False) -> SafeString:
    """One card of the board; with `move` it can be dragged, and has a menu that does the same."""
    return html(
        '<article class="card" id="card-{}" data-card="{}"{}><div class="line">{}'
        '<span class="row-id">{}</span>'
        '<span class="push tiny faint num">{}</span></div>'
        '<a class="row-title" id="go-{}" href="{}/issues/{}">{}</a>{}'
        '<div class="card-foot">{}<span class="push num">{}</span>{}</div></article>',
        row.identifier,
        row.identifier,
        mark_safe(' draggable="true"') if move else "",
        _priority(row.priority),
        row.identifier,
        format.ago(row.updated_at, now),
        row.identifier,
        base,
        row.identifier,
        row.title,
        html("<div>{}</div>", chip(row.chip, now)) if row.chip else "",
        _who(row),
        _spent(row),
        html(_MOVE, row.identifier, row.identifier, row.status) if move else "",
    )
