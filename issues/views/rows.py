"""The rows of issue lists, written by functions: the page and the live swap use the same one."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from companies import format
from issues.models import Priority

CLOSED = ("done", "cancelled")
# What a chip looks like; the code comes from `why.py`.
CHIPS: dict[str, tuple[str, str]] = {
    "blocked_by": ("ban", ""),
    "blocked": ("ban", ""),
    "budget": ("wallet", "warn"),
    "agent_paused": ("pause", "warn"),
    "waiting_for_you": ("message-circle-question-mark", "warn"),
    "in_review": ("eye", "warn"),
    "cooling_down": ("snowflake", ""),
    "unassigned": ("user", ""),
    "failed": ("octagon-alert", "bad"),
    "agent_gone": ("octagon-alert", "bad"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """What one line of an issue list shows. `cost_micros` None: nothing spent so far."""

    id: uuid.UUID
    identifier: str
    title: str
    status: str
    priority: int
    updated_at: datetime
    assignee: str = ""
    assignee_kind: str = "agent"
    running: bool = False
    cost_micros: int | None = None
    chip: tuple[str, str] | None = None  # code, text: why it is not running
    children: tuple[int, int] | None = None  # done, all


def chip(code: str, text: str) -> SafeString:
    """Why an issue is not running, in a few words."""
    icon, tone = CHIPS.get(code, ("hourglass", ""))
    return format_html(
        '<span class="chip" data-tone="{}">{}<span class="clip">{}</span></span>',
        tone,
        format.icon(icon),
        text,
    )


def _who(row: Row) -> SafeString:
    if not row.assignee:
        return mark_safe('<span class="row-who faint wide-only">Nobody</span>')
    pulse = format.glyph("run", "running") if row.running else ""
    return format_html(
        '<span class="row-who">{}<span class="clip">{}</span>{}</span>',
        format.avatar(row.assignee, row.assignee_kind),
        row.assignee,
        pulse,
    )


def _priority(rank: int) -> SafeString:
    return format.glyph("priority", Priority(rank).label)


def line(row: Row, *, base: str, now: datetime) -> SafeString:
    """One dense row: status, identifier, title, why it waits, who, cost so far, age."""
    return format_html(
        '<div class="row" id="issue-{}"{}>{}{}<span class="row-id">{}</span>'
        '<div class="row-mid"><a class="row-title" href="{}/issues/{}">{}</a>{}{}</div>'
        '<div class="row-end">{}<span class="cost">{}</span>{}</div></div>',
        row.identifier,
        mark_safe(" data-done") if row.status in CLOSED else "",
        format.glyph("issue", row.status),
        _priority(row.priority),
        row.identifier,
        base,
        row.identifier,
        row.title,
        format_html('<span class="badge num">{}/{}</span>', *row.children)
        if row.children and row.children[1]
        else "",
        chip(*row.chip) if row.chip else "",
        _who(row),
        format.money(row.cost_micros) if row.cost_micros else "",
        format.ago(row.updated_at, now),
    )


def lines(rows: list[Row], *, base: str, now: datetime) -> SafeString:
    return format_html_join("", "{}", ((line(row, base=base, now=now),) for row in rows))


def card(row: Row, *, base: str, now: datetime) -> SafeString:
    """One card of the board."""
    return format_html(
        '<article class="card" id="card-{}"><div class="line">{}<span class="row-id">{}</span>'
        '<span class="push tiny faint num">{}</span></div>'
        '<a class="row-title" href="{}/issues/{}">{}</a>{}'
        '<div class="card-foot">{}<span class="push num">{}</span></div></article>',
        row.identifier,
        _priority(row.priority),
        row.identifier,
        format.ago(row.updated_at, now),
        base,
        row.identifier,
        row.title,
        format_html("<div>{}</div>", chip(*row.chip)) if row.chip else "",
        _who(row),
        format.money(row.cost_micros) if row.cost_micros else "",
    )
