"""One run: its log, its figures, cancel and retry. And the parts that other pages load."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.db.models import Count, F, Func, IntegerField, QuerySet, Sum, Value
from django.db.models.functions import Coalesce
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.html import format_html
from django.views.decorators.http import require_POST

from agents import attempts, directory, outcomes, output, runs, transcript
from agents.adapters.base import Code
from agents.models import HeartbeatRun, RunEvent
from companies.errors import Conflict
from companies.views.door import PageRequest, back, page

# Events of one page; what lies before is one click away.
WINDOW = 4_000
WHOLE = 200_000
# Events differ in size by a thousand times: this bounds what a browser is given to lay out.
WINDOW_BYTES = 1_000_000
WHOLE_BYTES = 8_000_000
FOLDED_BYTES = 250_000
FAILED = frozenset({"failed", "timed_out", "lost", "unknown"})


@page()
def run(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    found = directory.run(company_id=request.company.id, run_id=run_id)
    context: dict[str, Any] = {
        "section": "runs",
        "run": found,
        "live": found.status == HeartbeatRun.Status.RUNNING,
        "raw": request.GET.get("view") == "raw",
        "fallback": _fallback(found),
    }
    if found.status in FAILED or found.code == Code.BUDGET:
        context |= _failure(found)
    if context["raw"]:
        context["events"] = _within(found, 0, WINDOW, WINDOW_BYTES)
    else:
        context |= (
            _log(found, WHOLE, WHOLE_BYTES)
            if request.GET.get("all")
            else _log(found, WINDOW, WINDOW_BYTES)
        )
    if request.htmx and request.htmx.target == "run-page":
        return render(request, "agents/_run.html", context)
    return render(request, "agents/run.html", context)


def _failure(found: HeartbeatRun) -> dict[str, Any]:
    """Why it did not succeed, and what follows."""
    following = attempts.following(found)
    live = following is not None and following.status in HeartbeatRun.LIVE
    return {
        "outcome": outcomes.of(found.code),
        # What was tried again since needs nobody.
        "advice": "" if following and not live else outcomes.advice(found.code, repeats=live),
        "following": following,
    }


def _fallback(found: HeartbeatRun) -> str:
    """Where a run went instead, and why, for who points at the badge."""
    told = found.result.get("fallback") if isinstance(found.result, dict) else None
    if not isinstance(told, dict):
        return "Its own provider was in trouble, so another connection is asked."
    where = f"{told.get('connection', '')} ({told.get('model', '')})"
    return f"{where}, because: {outcomes.of(str(told.get('because', ''))).title.lower()}."


@page()
def part(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """The transcript alone, for a run that unfolds in an issue."""
    found = directory.run(company_id=request.company.id, run_id=run_id)
    context: dict[str, Any] = {
        "run": found,
        "live": found.status == HeartbeatRun.Status.RUNNING,
        "folded": True,
    }
    return render(request, "agents/_transcript.html", context | _log(found, 1_000, FOLDED_BYTES))


@page()
def step(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """What it is at, in a few words."""
    found = directory.run(company_id=request.company.id, run_id=run_id)
    if found.status != HeartbeatRun.Status.RUNNING:
        return HttpResponse(format_html("{}", found.get_status_display()))
    words = directory.at_work(found, directory.latest([found]).get(found.id))
    return HttpResponse(format_html("{}", words))


@page()
def download(request: PageRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """All of the output as plain text."""
    found = directory.run(company_id=request.company.id, run_id=run_id)

    def pieces() -> Iterator[str]:
        after = 0
        while events := output.read(found, after_seq=after):
            for event in events:
                yield output.as_text(event)
            after = events[-1].seq

    answer = StreamingHttpResponse(pieces(), content_type="text/plain; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="run-{run_id}.txt"'
    return answer


@require_POST
@page("operate")
def cancel(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    found = directory.run(company_id=request.company.id, run_id=run_id)
    actor = request.principal.actor
    status = runs.cancel(run=found, actor=actor, reason=f"Stopped by {actor.name}", now=request.now)
    words = "It is being stopped." if status == HeartbeatRun.Status.RUNNING else "Stopped."
    messages.success(request, words)
    return back(request)


@require_POST
@page("operate")
def retry(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    found = directory.run(company_id=request.company.id, run_id=run_id)
    queued = runs.retry(run=found, actor=request.principal.actor, now=request.now)
    if queued.refused or queued.run_id is None:
        raise Conflict(queued.refused or "refused", f"{found.agent.name} cannot be woken now.")
    return redirect(f"{request.base}/runs/{queued.run_id}")


def _events(found: HeartbeatRun, after: int, limit: int) -> list[RunEvent]:
    events = RunEvent.objects.filter(
        run_id=found.id, run_created_at=found.created_at, seq__gt=after
    )
    return list(events.order_by("seq")[:limit])


def _within(found: HeartbeatRun, after: int, limit: int, size: int) -> list[RunEvent]:
    """The first events after `after`: as many as `limit` and `size` bytes allow."""
    rows = _of(found).filter(seq__gt=after).order_by("seq")
    return _events(found, after, max(1, _how_many(rows, limit, size)))


def _log(found: HeartbeatRun, window: int, size: int) -> dict[str, Any]:
    """The last events, at most `window` and about `size` bytes, as a transcript; line numbers
    count what was left out."""
    every = _of(found)
    newest = every.order_by("-seq")
    shown = _how_many(newest, window, size)
    first = newest.values_list("seq", flat=True)[shown - 1] if shown else 0
    before = every.filter(seq__lt=first)
    breaks = Func(F("text"), Value("\n"), function="regexp_count", output_field=IntegerField())
    counted = before.aggregate(n=Count("id"), lines=Sum(breaks))
    first_line = (counted["lines"] or 0) + 1
    events = _events(found, first - 1, window)
    return {"log": transcript.render(events, first_line=first_line), "skipped": counted["n"]}


def _of(found: HeartbeatRun) -> QuerySet[RunEvent]:
    return RunEvent.objects.filter(run_id=found.id, run_created_at=found.created_at)


def _how_many(rows: QuerySet[RunEvent], limit: int, size: int) -> int:
    """How many of the first rows fit into `size` bytes; one always does."""
    text = Func(F("text"), function="octet_length", output_field=IntegerField())
    data = Func(F("data"), function="pg_column_size", output_field=IntegerField())
    sizes = rows.annotate(bytes=text + Coalesce(data, 0)).values_list("bytes", flat=True)[:limit]
    taken = 0
    for count, one in enumerate(sizes):
        taken += one
        if count and taken > size:
            return count
    return len(sizes)
