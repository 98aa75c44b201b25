"""Runs over the API: lists, output, cancelling. The live stream is `paperclip/streams`."""

from __future__ import annotations

import uuid
from typing import Annotated

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents import answers, output, runs, shapes
from agents.models import HeartbeatRun
from companies import access, wire
from companies.errors import NotFound

router = Router(by_alias=True)
MAX_EVENTS = 500
MAX_LOG_BYTES = 1_000_000


class Reason(wire.Body):
    reason: Annotated[wire.Text, Field(max_length=200)] = ""


def find(request: HttpRequest, run_id: uuid.UUID) -> HeartbeatRun:
    """The run, if it lies in a company of the caller. Raises NotFound."""
    rows = wire.in_companies(wire.principal(request), HeartbeatRun.objects.all())
    found = rows.filter(id=run_id).first()
    if found is None:
        raise NotFound("There is no such run.")
    return found


@router.get(
    "/companies/{company}/heartbeat-runs",
    response=list[answers.Run],
    summary="Runs of a company, newest first",
)
def list_runs(
    request: HttpRequest,
    company: str,
    agentId: uuid.UUID | None = None,
    issueId: uuid.UUID | None = None,
    status: Annotated[wire.Text, Field(max_length=20)] = "",
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = wire.company(request, company)
    rows = HeartbeatRun.objects.for_company(found.id)
    if agentId is not None:
        rows = rows.filter(agent_id=agentId)
    if issueId is not None:
        rows = rows.filter(issue_id=issueId)
    if status:
        names = [name for name, word in shapes.WIRE_STATUS.items() if word == status] or [status]
        rows = rows.filter(status__in=["queued"] if status == "scheduled_retry" else names)
    now = timezone.now()
    return wire.page(
        request,
        rows,
        keys=("-created_at", "-id"),
        shape=lambda page: [shapes.run(run, now) for run in page],
        limit=limit,
        cursor=cursor,
    )


@router.get(
    "/companies/{company}/live-runs",
    response=list[answers.LiveRun],
    summary="Runs that are queued or running",
)
def live_runs(
    request: HttpRequest,
    company: str,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = wire.company(request, company)
    now = timezone.now()
    return wire.page(
        request,
        HeartbeatRun.objects.for_company(found.id).live().select_related("agent"),
        keys=("-created_at", "-id"),
        shape=lambda page: [shapes.brief_run(run, now) for run in page],
        limit=limit,
        cursor=cursor,
    )


@router.get("/heartbeat-runs/{run_id}", response=answers.Run, summary="One run")
def get_run(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    return wire.answer(shapes.run(find(request, run_id), timezone.now()))


@router.get(
    "/heartbeat-runs/{run_id}/events",
    response=list[answers.OutputEvent],
    summary="A run's output, event by event",
)
def get_events(
    request: HttpRequest,
    run_id: uuid.UUID,
    afterSeq: Annotated[int, Field(ge=0, le=wire.INT4)] = 0,
    limit: Annotated[int, Field(ge=1, le=MAX_EVENTS)] = 200,
) -> HttpResponse:
    run = find(request, run_id)
    return wire.answer(
        shapes.events(output.read(run, after_seq=afterSeq, limit=limit), run.agent_id)
    )


@router.get(
    "/heartbeat-runs/{run_id}/log", response=answers.RunLog, summary="A run's output as text"
)
def get_log(
    request: HttpRequest,
    run_id: uuid.UUID,
    offset: Annotated[int, Field(ge=0, le=wire.INT4)] = 0,
    limitBytes: Annotated[int, Field(ge=1, le=MAX_LOG_BYTES)] = 256_000,
) -> HttpResponse:
    """`content` holds one JSON object a line; go on with `nextOffset`, absent at the end."""
    run = find(request, run_id)
    rows = output.read(run, after_seq=offset, limit=MAX_EVENTS)
    content, reached = shapes.log(rows, limitBytes)
    answer = {"runId": run.id, "store": "database", "logRef": str(run.id), "content": content}
    if rows and (reached < rows[-1].seq or len(rows) == MAX_EVENTS):
        answer["nextOffset"] = reached
    return wire.answer(answer)


@router.post("/heartbeat-runs/{run_id}/cancel", response=answers.Run, summary="Stop a run")
def cancel_run(request: HttpRequest, run_id: uuid.UUID, body: Reason | None = None) -> HttpResponse:
    """A queued run is cancelled at once, a running one as soon as its worker hears of it. A run
    that has ended is answered as it is."""
    caller = wire.principal(request)
    run = find(request, run_id)
    access.authorize(caller, "operate", run.company_id)
    now = timezone.now()
    if run.status in HeartbeatRun.LIVE:
        runs.cancel(run=run, actor=caller.actor, reason=body.reason if body else "", now=now)
        run.refresh_from_db()
    return wire.answer(shapes.run(run, now))
