"""One run: its log, its figures, cancel and retry. And the parts that other pages load."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.db.models import Count, F, Func, IntegerField, Max, Sum, Value
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.html import format_html
from django.views.decorators.http import require_POST

from agents import directory, outcomes, output, runs, transcript
from agents.models import HeartbeatRun, RunEvent
from companies.errors import Conflict
from companies.views.door import PageRequest, back, page

# Events of one page; what lies before is one click away.
WINDOW = 4_000
WHOLE = 200_000
FAILED = frozenset({"failed", "timed_out", "lost", "unknown"})


@page()
def run(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    found = directory.run(company_id=request.company.id, run_id=run_id)
    context: dict[str, Any] = {
        "section": "agents",
        "run": found,
        "live": found.status == HeartbeatRun.Status.RUNNING,
        "outcome": outcomes.of(found.code) if found.status in FAILED else None,
        "raw": request.GET.get("view") == "raw",
        "unpriced": found.unpriced_calls and not found.cost_micros,
    }
    if context["raw"]:
        context["events"] = _events(found, 0, WINDOW)
    else:
        context |= _log(found, WHOLE if request.GET.get("all") else WINDOW)
    if request.htmx and request.htmx.target == "run-page":
        return render(request, "agents/_run.html", context)
    return render(request, "agents/run.html", context)


@page()
def part(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """The transcript alone, for a run that unfolds in an issue."""
    found = directory.run(company_id=request.company.id, run_id=run_id)
    context: dict[str, Any] = {
        "run": found,
        "live": found.status == HeartbeatRun.Status.RUNNING,
        "folded": True,
    }
    return render(request, "agents/_transcript.html", context | _log(found, 1_000))


@page()
def step(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """What it is at, in a few words."""
    found = directory.run(company_id=request.company.id, run_id=run_id)
    if found.status != HeartbeatRun.Status.RUNNING:
        return HttpResponse(format_html("{}", found.get_status_display()))
    words = transcript.last_step(directory.latest([found]).get(found.id))
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


def _log(found: HeartbeatRun, window: int) -> dict[str, Any]:
    """The last `window` events as a transcript; line numbers count what was left out."""
    every = RunEvent.objects.filter(run_id=found.id, run_created_at=found.created_at)
    last = every.aggregate(last=Max("seq"))["last"] or 0
    skipped, first_line = 0, 1
    if last > window:
        before = every.filter(seq__lte=last - window)
        breaks = Func(F("text"), Value("\n"), function="regexp_count", output_field=IntegerField())
        counted = before.aggregate(n=Count("id"), lines=Sum(breaks))
        skipped, first_line = counted["n"], (counted["lines"] or 0) + 1
    events = _events(found, last - window if skipped else 0, window)
    return {"log": transcript.render(events, first_line=first_line), "skipped": skipped}
