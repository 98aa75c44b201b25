"""The activity log as a page, and the sentences in which it speaks."""

from __future__ import annotations

import json
from urllib.parse import urlencode

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils.safestring import SafeString, mark_safe

from companies import format, history, tables
from companies.format import html
from companies.models import Activity
from companies.views.door import PageRequest, page

ACTORS = [("", "Everybody"), ("user", "People"), ("agent", "Agents"), ("system", "Paperclip")]
NOUNS = [
    ("", "Everything"),
    *((n, format.label(n)) for n in ("issue", "agent", "run", "budget", "secret", "member")),
]
FILTERS = ("actor", "noun", "who", "day")
VERBS = {
    "issue.created": "created",
    "issue.updated": "changed",
    "issue.commented": "commented on",
    "issue.reopened": "reopened",
    "interaction.asked": "asked something on",
    "interaction.answered": "answered on",
    "agent.hired": "hired",
    "agent.held": "held",
    "agent.hold_lifted": "released",
    "issue.checked_out": "took up",
    "run.succeeded": "finished a",
    "run.failed": "failed in a",
    "run.timed_out": "ran out of time in a",
    "run.cancelled": "was stopped in a",
    "run.lost": "lost a",
    "run.unknown": "ended with unknown effects in a",
    "run.cancel_requested": "asked to stop a",
    "secret.put": "stored the secret",
    "agent.error_cleared": "took note of the failure of",
    "agent.key_created": "made a key for",
    "agent.key_revoked": "revoked a key of",
    "agent.session_reset": "reset the session of",
    "budget.created": "set a budget for",
    "budget.updated": "changed the budget of",
    "budget.removed": "removed the budget of",
    "budget.passed": "saw spending pass a mark in the budget of",
    "budget.incident_acknowledged": "has seen the passed mark in the budget of",
    "budget.incident_raised": "raised the passed budget of",
    "budget.incident_kept_paused": "kept the passed budget of",
    "budget.incident_lapsed": "put the passed mark behind in the budget of",
    "connection.closed": "uses again the provider",
    "connection.opened": "asks no more of the provider",
    "cost.corrected": "corrected the cost of",
    "interaction.cancelled": "withdrew a question on",
    "issue.comment_deleted": "deleted a comment on",
    "issue.document_created": "wrote a document on",
    "issue.document_updated": "changed a document on",
    "issue.document_deleted": "deleted a document on",
    "issue.document_locked": "locked a document on",
    "issue.document_unlocked": "unlocked a document on",
    "issue.work_product_created": "handed in work on",
    "issue.work_product_updated": "changed what was handed in on",
    "issue.work_product_deleted": "took back what was handed in on",
    "issue.worktree_removed": "removed the work tree of",
    "issue.wakes_cut": "lets agents wake each other no more on",
    "agent.wakes_cut": "lets other agents wake no more",
    "member.second_factor_added": "set up a second factor for",
    "member.second_factor_removed": "removed the second factor of",
    "member.recovery_code_used": "signed in with a recovery code as",
    "member.recovery_codes_made": "made new recovery codes for",
    "member.role_changed": "changed the role of",
    "price.set": "set the price of",
    "project.workspace_updated": "changed the workspace of",
    "reservation.booked": "booked what was kept aside for",
    "reservation.expired": "gave back what was kept aside for",
    "reservation.written_off": "gave back what was kept aside for",
}


@page()
def activity(request: PageRequest) -> HttpResponse:
    given = {name: request.GET.get(name, "")[:120] for name in (*FILTERS, "after")}
    found = history.page(company_id=request.company.id, now=request.now, **given)
    chosen = {name: given[name] for name in FILTERS if given[name]}
    context = {
        "section": "activity",
        "lines": [line(row, base=request.base) for row in found.rows],
        "next": found.next,
        "given": given,
        "chosen": chosen,
        "query": urlencode(chosen),
        "actors": ACTORS,
        "nouns": NOUNS,
    }
    if request.htmx and request.htmx.target == "activity":
        return render(request, "companies/_activity.html", context)
    return render(request, "companies/activity.html", context)


@page()
def table(request: PageRequest) -> StreamingHttpResponse:
    """The same rows as CSV, at most `tables.MOST`."""
    given = {name: request.GET.get(name, "")[:120] for name in FILTERS}
    found = history.matching(company_id=request.company.id, now=request.now, **given)
    rows = found.order_by("-occurred_at", "-id")[: tables.MOST]
    head = ("at", "actor_type", "actor", "action", "entity_type", "entity", "details")
    lines = (
        (
            *(row.occurred_at, row.actor_type, row.actor_name, row.action, row.entity_type),
            *(row.entity_name, json.dumps(row.details) if row.details else ""),
        )
        for row in rows.iterator(chunk_size=500)
    )
    return tables.respond("activity.csv", head, lines)


def line(row: Activity, *, base: str) -> SafeString:
    """One row as a sentence: who, did what, to what, with before and after."""
    noun, _, verb = row.action.partition(".")
    words = VERBS.get(row.action) or f"{verb.replace('_', ' ')} {noun.replace('_', ' ')}"
    kind = "user" if row.actor_type == "user" else "agent"
    face = (
        format.icon("paperclip", "icon-s faint")
        if row.actor_type == "system"
        else format.avatar(row.actor_name or "?", kind)
    )
    return html(
        '<div class="row activity-row">{}<div class="row-mid"><span class="clip"><b class="strong">'
        "{}</b> {} {}{}</span></div>"
        '<div class="row-end">{}{}</div></div>',
        face,
        row.actor_name or "Paperclip",
        words,
        _what(row, base),
        _change(row),
        html('<a class="link" href="{}/runs/{}">run</a>', base, row.run_id) if row.run_id else "",
        format.ago(row.occurred_at),
    )


def _what(row: Activity, base: str) -> SafeString:
    name = row.entity_name
    if row.entity_type == "issue" and name:
        identifier = name.partition(" ")[0]
        return html('<a href="{}/issues/{}">{}</a>', base, identifier, name)
    if row.entity_type == "run":
        return html('<a href="{}/runs/{}">run</a>', base, row.entity_id)
    return html("<span>{}</span>", name)


def _change(row: Activity) -> SafeString:
    """Before and after, where they are short; the rest says itself."""
    details = row.details if isinstance(row.details, dict) else {}
    before, after = details.get("before") or {}, details.get("after") or {}
    if row.action.endswith(".created") or not isinstance(after, dict):
        return mark_safe("")
    parts = []
    for name, value in list(after.items())[:3]:
        old = before.get(name) if isinstance(before, dict) else None
        parts.append(html("{}: {} → {}", name.replace("_", " "), _short(old), _short(value)))
    if parts:
        return html(' <span class="faint">{}</span>', mark_safe(", ".join(parts)))  # noqa: S308
    if row.action.startswith("budget.") and isinstance(details.get("percent"), int):
        limit = format.money(details.get("limitMicros"))
        return html(' <span class="faint">{} % of {}</span>', details["percent"], limit)
    said = details.get("excerpt") or details.get("note") or details.get("reason")
    return html(' <span class="faint">“{}”</span>', _short(said)) if said else mark_safe("")


def _short(value: object) -> str:
    if value in (None, "", []):
        return "none"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
