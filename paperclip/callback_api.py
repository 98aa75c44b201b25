"""Runs that go on elsewhere (an `http` agent that answered 202): their signs of life, their end.

Called with the run's own token, by nobody else.
"""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta
from typing import Annotated, Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Body, Router
from pydantic import Field

from agents import answers, runs, shapes
from agents.adapters import base, failures, results
from agents.models import HeartbeatRun
from billing import ledger
from companies import live, wire
from companies.errors import Conflict, Forbidden, Invalid, NotFound, Refusal
from issues import briefing
from paperclip import callers
from paperclip.engine import closing, opening
from paperclip.engine.journal import Redactor

router = Router(by_alias=True)


class Lease(wire.Body):
    seconds: Annotated[int, Field(ge=10, le=86_400, strict=True)] = 600


@router.post(
    "/heartbeat-runs/{run_id}/lease",
    response=answers.RunLease,
    summary="A run elsewhere is still at work",
)
def extend_lease(
    request: HttpRequest, run_id: uuid.UUID, body: Lease | None = None
) -> HttpResponse:
    """The run counts as lost when its lease ends without another call."""
    run = _own(request, run_id)
    lease = timedelta(seconds=(body or Lease()).seconds)
    expires_at = runs.extend_lease(run_id=run.pk, lease=lease)
    live.publish(run.company_id, "run", run.pk)  # who watches sees until when
    return wire.answer({"runId": run.pk, "leaseExpiresAt": expires_at})


@router.post(
    "/heartbeat-runs/{run_id}/result", response=answers.Run, summary="A run elsewhere has ended"
)
def report_result(
    request: HttpRequest, run_id: uuid.UUID, body: Body[dict[str, Any]]
) -> HttpResponse:
    """Takes the result object of the adapters: summary, status, usage, cost, session, result; with
    `error` the run has failed. The run's token is worthless afterwards, except to hear this answer
    again by its Idempotency-Key. May come before the 202 has been read. One of a run that was
    cancelled is a 409 `run_cancelled`; what it cost is booked all the same."""
    run = _own(request, run_id)
    if run.lease_expires_at is None and run.adapter_type not in runs.CALLED_BACK:
        raise Conflict("run_not_external", "This run does not wait for a call back.")
    if len(request.body) > results.MAX_RESULT_BYTES:
        raise Refusal("body_too_large", "A result is not larger than 1 MB.", status=413)
    try:
        outcome = results.read(body, provider=run.adapter_type)
    except base.AdapterError as error:
        raise Invalid("bad_result", error.message) from None
    if outcome.usage is not None:
        _book(run, outcome.usage)  # by itself: spent is spent, whatever becomes of the result
    runs.check_wanted(run.pk)
    try:
        with transaction.atomic():
            closing.close_run(_claimed(run), _ending(outcome, _redactor(request, run)))
            runs.check_wanted(run.pk)  # again: from here on no cancellation can come between
    except (runs.Stale, briefing.Gone):
        runs.check_wanted(run.pk)
        raise Conflict("run_ended", "This run has ended already.") from None
    run.refresh_from_db()
    return wire.answer(shapes.run(run, timezone.now()))


def _own(request: HttpRequest, run_id: uuid.UUID) -> HeartbeatRun:
    caller = wire.principal(request)
    if caller.kind != "run":
        found = wire.in_companies(caller, HeartbeatRun.objects.filter(id=run_id))
        if not found.exists():
            raise NotFound("There is no such run.")
        raise Forbidden("run_token_needed", "Only the run itself does this, with its token.")
    if caller.run_id != run_id:
        raise NotFound("There is no such run.")
    return HeartbeatRun.objects.select_related("issue").get(id=run_id)


def _book(run: HeartbeatRun, usage: base.Usage) -> None:
    issue = run.issue
    ledger.book(
        company_id=run.company_id,
        agent_id=run.agent_id,
        run_id=run.pk,
        issue_id=run.issue_id,
        project_id=issue.project_id if issue else None,
        goal_id=issue.goal_id if issue else None,
        billing_code=issue.billing_code if issue else "",
        usage=usage,
        key=ledger.run_key(run.pk, usage.call),
        now=timezone.now(),
    )


def _claimed(run: HeartbeatRun) -> runs.Claimed:
    return runs.Claimed(
        run_id=run.pk,
        epoch=run.epoch,
        company_id=run.company_id,
        agent_id=run.agent_id,
        issue_id=run.issue_id,
        created_at=run.created_at,
        adapter_type=run.adapter_type,
        attempt=run.attempt,
    )


def _redactor(request: HttpRequest, run: HeartbeatRun) -> Redactor:
    token = callers.bearer(request.headers.get("Authorization")) or ""
    return Redactor([token, *opening.known_secrets(run)])


def _ending(outcome: results.Outcome, redactor: Redactor) -> closing.Ending:
    done = outcome.done
    session = {"sessionId": done.session_id} if done.session_id else {}
    ending = (
        closing.Ending(HeartbeatRun.Status.SUCCEEDED)
        if outcome.failure is None
        else closing.failure(outcome.failure)
    )
    return dataclasses.replace(
        ending,
        message=redactor.whole(failures.redact(ending.message)),
        summary=redactor.whole(failures.redact(done.summary)),
        wish=done.status if outcome.failure is None else None,
        result=redactor.data({**dict(done.result), **session}),
    )
