"""All runs of the company: who worked when as a picture, and the list with its filters."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render

from agents import directory, timeline
from agents.models import HeartbeatRun
from companies import diagrams, format, tables
from companies.views.door import PageRequest, page

Run = HeartbeatRun.Status
STATES: dict[str, tuple[str, ...]] = {
    "": (),
    "running": (Run.RUNNING,),
    "queued": (Run.QUEUED,),
    "succeeded": (Run.SUCCEEDED,),
    "failed": directory.BAD,
    "cancelled": (Run.CANCELLED,),
}


@page()
def runs(request: PageRequest) -> HttpResponse:
    """The newest first; `?status=`, `?agent=`, `?hours=` of the picture, `?before=` to go on."""
    state, agent_id = _wish(request)
    before = _uuid(request.GET.get("before", ""))
    found = directory.run_rows(
        company_id=request.company.id,
        agent_id=agent_id,
        states=STATES[state],
        before=before,
        limit=directory.RUNS + 1,
    )
    shown = found[: directory.RUNS]
    context: dict[str, Any] = {
        "section": "runs",
        "runs": shown,
        "next": shown[-1].id if len(found) > directory.RUNS else None,
        "first": before is None,
        "state": state,
        "agent_id": str(agent_id or ""),
    }
    if request.htmx and request.htmx.target == "runs":
        return render(request, "agents/_runs.html", context)
    context |= {
        "states": [(name, format.label(name) if name else "Any status") for name in STATES],
        "agents": directory.managers(request.company.id),
        **_picture(request),
    }
    return render(request, "agents/all_runs.html", context)


@page()
def picture(request: PageRequest) -> HttpResponse:
    """The picture alone, to be swapped."""
    return render(request, "agents/_gantt.html", _picture(request))


def _picture(request: PageRequest) -> dict[str, Any]:
    wanted = request.GET.get("hours", "")
    hours = int(wanted) if wanted in map(str, timeline.HOURS) else timeline.HOURS[1]
    lanes = timeline.lanes(company_id=request.company.id, now=request.now, hours=hours)
    drawn = [
        (lane, diagrams.lane(_spans(lane, request.base, request.now, hours), lane.agent))
        for lane in lanes
    ]
    return {
        "lanes": drawn,
        "hours": hours,
        "choices": timeline.HOURS,
        "ticks": [_ago(hours * 60 * part // 4) for part in (4, 3, 2, 1)],
    }


def _ago(minutes: int) -> str:
    hours, rest = divmod(minutes, 60)
    return " ".join(f"{n}{unit}" for n, unit in ((hours, "h"), (rest, "m")) if n)


def _spans(lane: timeline.Lane, base: str, now: datetime, hours: int) -> Iterator[diagrams.Span]:
    since, width = now - timedelta(hours=hours), hours * 3600
    for run in lane.runs:
        assert run.started_at is not None  # the picture asks for those that have begun
        end = run.finished_at or now
        about = f"{run.issue.identifier} {run.issue.title}" if run.issue else "no issue"
        took = format.duration((end - run.started_at).total_seconds())
        yield diagrams.Span(
            start=(run.started_at - since).total_seconds() / width,
            end=(end - since).total_seconds() / width,
            status=run.status,
            title=f"{lane.agent}: {about}, {format.label(run.status).lower()}, {took}",
            href=f"{base}/runs/{run.id}",
        )


@page()
def table(request: PageRequest) -> StreamingHttpResponse:
    """The same runs as CSV, at most `tables.MOST`."""
    state, agent_id = _wish(request)
    found = HeartbeatRun.objects.for_company(request.company.id)
    if agent_id:
        found = found.filter(agent_id=agent_id)
    if STATES[state]:
        found = found.filter(status__in=STATES[state])
    picked = found.order_by("-id").values_list(
        *("id", "agent__name", "issue__identifier", "status", "code", "attempt", "reason"),
        *("created_at", "started_at", "finished_at", "input_tokens", "output_tokens"),
        *("cost_micros", "unpriced_calls"),
    )[: tables.MOST]
    head = (
        *("run", "agent", "issue", "status", "code", "attempt", "woken_by", "created", "started"),
        *("finished", "input_tokens", "output_tokens", "cost_usd"),
    )
    lines = (
        (str(row[0]), *row[1:12], tables.dollars(None if row[13] and not row[12] else row[12]))
        for row in picked.iterator()
    )
    return tables.respond(f"runs-{request.now.astimezone(UTC):%Y-%m-%d}.csv", head, lines)


def _wish(request: PageRequest) -> tuple[str, uuid.UUID | None]:
    state = request.GET.get("status", "")
    return state if state in STATES else "", _uuid(request.GET.get("agent", ""))


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
