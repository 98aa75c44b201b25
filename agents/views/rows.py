"""A run in one line, written by a function: the page and the live swap use the same one."""

from __future__ import annotations

from datetime import datetime

from django.utils.safestring import SafeString, mark_safe

from agents import outcomes
from agents.directory import RunRow
from companies import format
from companies.format import html

SIMULATED = mark_safe(
    '<span class="badge" title="A demo agent: nothing real is called">simulated</span>'
)


FALLBACK = mark_safe(
    '<span class="badge" data-tone="warn" title="Its own provider was in trouble, so another'
    ' connection answered">ran on fallback</span>'
)


def _when(row: RunRow, now: datetime) -> SafeString:
    if row.status == "running":
        return format.elapsed(row.started_at, now)
    if row.started_at and row.finished_at:
        return html(
            "<span>{}</span>", format.duration((row.finished_at - row.started_at).total_seconds())
        )
    return format.ago(row.created_at, now)


def _cost(row: RunRow, base: str, kept: int) -> SafeString | str:
    words = format.so_far(row.cost_micros, row.unpriced, kept)
    if not kept:
        return words
    return html(
        '<a class="link" href="{}/costs/kept" title="Its cost is not known yet">{}</a>', base, words
    )


def line(row: RunRow, *, base: str, now: datetime, kept: int = 0) -> SafeString:
    """Status, agent, what about, its last step; elapsed time, tokens and money at the end. `kept`
    micro-dollars of it wait for a receipt."""
    return html(
        '<div class="run-line" id="run-{}">{}<div class="what">{}<b class="strong nowrap">{}</b>'
        '<span class="row-id">{}</span><a class="row-title" href="{}/runs/{}">{}</a>{}{}{}</div>'
        '<div class="step">{}</div>'
        '<div class="figures"><b>{}</b><span>{}</span></div></div>',
        row.id,
        format.glyph("run", row.status),
        format.avatar(row.agent),
        row.agent,
        row.identifier,
        base,
        row.id,
        row.title or format.label(row.reason),
        html('<span class="badge">attempt {}</span>', row.attempt) if row.attempt > 1 else "",
        mark_safe(
            '<span class="badge" title="A demo agent: nothing real is called">simulated</span>'
        )
        if row.simulated
        else "",
        FALLBACK if row.on_fallback else "",
        row.step or outcomes.title(row.code, row.status),
        _when(row, now),
        html(
            "{}{}",
            f"{format.tokens(row.tokens)} tok · " if row.tokens else "",
            _cost(row, base, kept),
        ),
    )
