"""One call for integrations: a prompt for an agent in, a run to watch out.

With `Accept: text/event-stream` the same request is answered by `paperclip/streams`, which asks
here first and then follows the run.
"""

from __future__ import annotations

import uuid
from typing import Annotated

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents import wakes
from agents.api import find
from agents.models import HeartbeatRun
from companies import wire
from companies.errors import Conflict
from issues import board
from paperclip import answers
from paperclip.agent_api import REFUSED

router = Router(by_alias=True)
TITLE_LENGTH = 80


class Task(wire.Body):
    agent_id: uuid.UUID
    prompt: Annotated[wire.Trimmed, Field(min_length=10, max_length=2_000)]
    title: Annotated[wire.Trimmed, Field(min_length=1, max_length=300)] | None = None


@router.post(
    "/agent-tasks", response={202: answers.TaskTaken}, summary="Give an agent a task and watch it"
)
def create_task(request: HttpRequest, body: Task) -> HttpResponse:
    """Creates an issue for the agent and wakes it, or does nothing at all. Answers 202 with the
    addresses of issue, run and stream."""
    caller, now = wire.principal(request), timezone.now()
    agent = find(request, str(body.agent_id), None)
    with transaction.atomic():
        issue = board.create(
            company=agent.company,
            actor=caller.actor,
            title=body.title or headline(body.prompt),
            description=body.prompt,
            status="todo",
            assignee_agent=agent,
            wake=False,
            now=now,
        )
        woken = wakes.wake(
            agent=agent,
            issue=issue,
            reason="issue_assigned",
            source=HeartbeatRun.Source.ASSIGNMENT,
            actor=caller.actor,
            now=now,
        )
        if woken.run_id is None:
            raise Conflict(woken.refused, REFUSED.get(woken.refused, "The agent cannot be woken."))
    return wire.answer(
        {
            "issueId": issue.id,
            "identifier": issue.identifier,
            "title": issue.title,
            "agentId": agent.id,
            "companyId": agent.company_id,
            "runId": woken.run_id,
            "status": "queued",
            "issueUrl": f"/api/issues/{issue.id}",
            "runUrl": f"/api/heartbeat-runs/{woken.run_id}",
            "streamUrl": f"/api/heartbeat-runs/{woken.run_id}/stream",
        },
        202,
    )


def headline(prompt: str) -> str:
    """A title for a prompt: its first line, cut at a word."""
    line = " ".join(prompt.split("\n", 1)[0].split()) or " ".join(prompt.split())
    if len(line) <= TITLE_LENGTH:
        return line or "Task"
    return line[:TITLE_LENGTH].rsplit(" ", 1)[0] + "…"
