"""Work on an issue over the API: an agent takes it and gives it back; the runs about it."""

from __future__ import annotations

import uuid
from typing import Annotated

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents import shapes as run_shapes
from agents.answers import LiveRun, RunOfIssue
from agents.models import Agent, HeartbeatRun
from companies import access, wire
from companies.errors import Forbidden, NotFound
from issues import answers, ownership, shapes, work
from issues.api import Nothing, Status, find, reference

router = Router(by_alias=True)


class Checkout(wire.Body):
    agent_id: uuid.UUID
    expected_statuses: Annotated[list[Status], Field(min_length=1, max_length=7)] | None = None


# --- an agent takes and gives back -----------------------------------------------------------


@router.post(
    "/issues/{issue}/checkout",
    response=answers.WrittenIssue,
    summary="Take an issue and start on it",
)
def checkout(request: HttpRequest, issue: str, body: Checkout) -> HttpResponse:
    """409 tells who has it and in which status it is; do not repeat a 409."""
    caller = wire.principal(request)
    seen = ownership.look(*reference(issue), access.company_ids(caller))
    if seen is None:
        raise NotFound("There is no such issue.")
    found, _ = seen
    access.authorize(caller, wire.contribution(caller), found.company_id)
    agent = _worker(caller, found.company_id, body.agent_id)
    work.refuse_taken(seen, agent.id, caller.run_id)
    run = HeartbeatRun.objects.filter(id=caller.run_id).first() if caller.run_id else None
    expected = {"expected_statuses": body.expected_statuses} if body.expected_statuses else {}
    taken = work.checkout(
        issue=found, agent=agent, run=run, actor=caller.actor, now=timezone.now(), **expected
    )
    return wire.answer(shapes.written(taken), version=taken.version)


def _worker(caller: access.Principal, company_id: uuid.UUID, agent_id: uuid.UUID) -> Agent:
    """The agent that a checkout is for. One that calls for itself has proved already who it is."""
    if caller.agent_id == agent_id:
        names = ["id", "company_id", "name"]
        return Agent.from_db(None, names, [agent_id, company_id, caller.name])
    agent = wire.one_of_company(Agent, company_id, agent_id, "agentId")
    assert agent is not None  # the body always names one
    if caller.agent_id is not None:
        raise Forbidden("other_agent", "An agent checks out for itself.")
    return agent


@router.post("/issues/{issue}/release", response=answers.WrittenIssue, summary="Give an issue back")
def release(request: HttpRequest, issue: str, body: Nothing | None = None) -> HttpResponse:
    caller = wire.principal(request)
    found = find(request, issue, None)
    agent = run = None
    if caller.agent_id is not None:
        agent = Agent.objects.get(id=caller.agent_id)
        run = HeartbeatRun.objects.filter(id=caller.run_id).first() if caller.run_id else None
    freed = work.release(issue=found, agent=agent, run=run, actor=caller.actor, now=timezone.now())
    return wire.answer(shapes.written(freed), version=freed.version)


@router.post(
    "/issues/{issue}/admin/force-release",
    response=answers.WrittenIssue,
    summary="Take an issue out of an agent's hands",
)
def force_release(request: HttpRequest, issue: str, body: Nothing | None = None) -> HttpResponse:
    caller = wire.principal(request)
    found = find(request, issue, "operate")
    freed = work.force_release(issue=found, actor=caller.actor, now=timezone.now())
    return wire.answer(shapes.written(freed), version=freed.version)


# --- its runs --------------------------------------------------------------------------------


@router.get("/issues/{issue}/runs", response=list[RunOfIssue], summary="All runs about this issue")
def list_runs(
    request: HttpRequest,
    issue: str,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = find(request, issue)
    now = timezone.now()
    return wire.page(
        request,
        HeartbeatRun.objects.for_company(found.company_id).filter(issue=found),
        keys=("-created_at", "-id"),
        shape=lambda page: [{"runId": run.id, **run_shapes.run(run, now)} for run in page],
        limit=limit,
        cursor=cursor,
    )


@router.get(
    "/issues/{issue}/live-runs", response=list[LiveRun], summary="Its queued and running runs"
)
def list_live_runs(request: HttpRequest, issue: str) -> HttpResponse:
    found = find(request, issue)
    runs = HeartbeatRun.objects.live().filter(issue=found).select_related("agent")
    now = timezone.now()
    return wire.answer(
        [run_shapes.brief_run(run, now) for run in runs.order_by("-created_at", "-id")[:100]]
    )


@router.get(
    "/issues/{issue}/active-run",
    response=LiveRun | None,
    summary="Its running run, or the queued one, or null",
)
def active_run(request: HttpRequest, issue: str) -> HttpResponse:
    found = find(request, issue)
    return wire.answer(shapes.live_runs([found.id], timezone.now()).get(found.id))
