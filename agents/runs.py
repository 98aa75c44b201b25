"""A run's life, as a flat list of verbs:

    wake -> QUEUED -> claim -> RUNNING -> finish -> SUCCEEDED | FAILED | TIMED_OUT | CANCELLED
                                       -> lose -> LOST (and a new run) | UNKNOWN

`epoch` is the fence: raised whenever a run changes hands, and every result is written
`WHERE id = … AND epoch = …` and nothing more. Zero rows mean that the writer's time has passed.
Rows are locked in one order everywhere: issue, run, agent; so no two of these verbs deadlock.
Wishes are in `wakes.py`, the start gate in `claims.py`; both are called through this module.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from agents import adapters, meters, outcomes, output
from agents.adapters.base import Code
from agents.claims import START, Batch, Claimed, Place, claim
from agents.models import Agent, HeartbeatRun
from agents.wakes import MANUAL, ORIGINAL_REASON, TIMER, Wake, wake
from companies import activity, live, rows
from companies.activity import Actor
from companies.errors import Conflict
from companies.ids import new_id

__all__ = [
    "MANUAL",
    "START",
    "TIMER",
    "Batch",
    "Claimed",
    "Loss",
    "Lost",
    "Place",
    "Stale",
    "Wake",
    "again",
    "cancel",
    "cancel_queued",
    "check_wanted",
    "claim",
    "expired",
    "extend_lease",
    "finish",
    "go_external",
    "held",
    "held_for_good",
    "hold",
    "lose",
    "loss_of",
    "mark_acted",
    "note_started",
    "read",
    "retry",
    "wake",
]

log = logging.getLogger(__name__)

Status = HeartbeatRun.Status
RESCUE_BATCH = 200
EXTERNAL_LEASE = timedelta(minutes=10)
MESSAGE_CHARS = 8_000
SUMMARY_CHARS = 100_000
SHUT_DOWN = "The instance was shut down while the agent was at work."


class Stale(Exception):
    """The run has changed hands: whatever its former holder wanted to write is discarded."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What becomes of a run without a holder. `attempt`: number of the run that follows."""

    status: str
    code: str
    message: str
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """A run whose holder is gone, and what follows. `retry` is the run that takes over."""

    run_id: uuid.UUID
    company_id: uuid.UUID
    agent_id: uuid.UUID
    issue_id: uuid.UUID | None
    status: str  # lost, unknown or cancelled
    retry: uuid.UUID | None = None


# --- while it runs ---------------------------------------------------------------------------


def hold(*, run_id: uuid.UUID, epoch: int) -> None:
    """Nobody takes the run from its holder until this transaction's end. Raises Stale."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM agents_heartbeatrun WHERE id = %s AND epoch = %s FOR NO KEY UPDATE",
            [run_id, epoch],
        )
        if cursor.fetchone() is None:
            _blocked(run_id, epoch, "hold")
            raise Stale(f"run {run_id} has left epoch {epoch}")


def note_started(
    *,
    run_id: uuid.UUID,
    epoch: int,
    model: str,
    session: Mapping[str, Any],
    result: Mapping[str, Any] | None = None,
) -> None:
    """Keep which model answers, which session it continues, and what of the result is known.
    Raises Stale."""
    _fenced(
        "model = coalesce(nullif(%s, ''), model), session = session || %s::jsonb,"
        " result = result || %s::jsonb",
        [output.clean(model)[:120], output.to_json(session), output.to_json(result or {})],
        run_id,
        epoch,
    )


def mark_acted(*, run_id: uuid.UUID, epoch: int) -> None:
    """In the transaction of a side effect: this run may not be repeated blindly. Raises Stale,
    so that a run that has changed hands cannot act."""
    _fenced("acted_at = coalesce(acted_at, clock_timestamp())", [], run_id, epoch)


# Whose service may answer 202 and go on: its call back can be here before that answer has been
# seen, so a running run of it is heard whoever still holds it. The epoch lets one end win.
CALLED_BACK = ("http",)


def go_external(
    *, run_id: uuid.UUID, epoch: int, lease: timedelta = EXTERNAL_LEASE, session: Mapping[str, Any]
) -> bool:
    """The run goes on elsewhere (a 202): no worker holds it any more, it lives by its own lease.

    Its token and epoch stay valid for the call back. A longer lease that it has asked for meanwhile
    stays. False for a run that somebody has cancelled: it stays with its holder, who has to end it,
    since nobody is asked any more once it goes on elsewhere. Raises Stale.
    """
    values: list[Any] = [lease, output.to_json(session), run_id, epoch]
    with connection.cursor() as cursor:
        cursor.execute(_GO_EXTERNAL, values)
        row = cursor.fetchone()
    if row is None:
        _blocked(run_id, epoch, "lease_expires_at")
        raise Stale(f"run {run_id} has left epoch {epoch}")
    return bool(row[0])


_GO_EXTERNAL = """
UPDATE agents_heartbeatrun SET
    lease_expires_at = CASE WHEN cancel_requested_at IS NULL
        THEN greatest(lease_expires_at, clock_timestamp() + %s) ELSE lease_expires_at END,
    worker_id = CASE WHEN cancel_requested_at IS NULL THEN NULL ELSE worker_id END,
    session = session || %s::jsonb,
    acted_at = coalesce(acted_at, clock_timestamp())
WHERE id = %s AND epoch = %s
RETURNING cancel_requested_at IS NULL
"""


def extend_lease(*, run_id: uuid.UUID, lease: timedelta = EXTERNAL_LEASE) -> datetime:
    """A sign of life of a run that goes on elsewhere; returns the new end of its lease.

    One whose 202 is still on its way lives by this lease from now on, also if the process that
    waits for the answer dies. Raises Conflict when it does not run elsewhere (any more), or when it
    has to stop.
    """
    seconds = min(max(lease.total_seconds(), 10.0), 86_400.0)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agents_heartbeatrun SET"
            " lease_expires_at = clock_timestamp() + make_interval(secs => %s),"
            " output_at = clock_timestamp(), acted_at = coalesce(acted_at, clock_timestamp())"
            " WHERE id = %s AND status = 'running' AND cancel_requested_at IS NULL"
            " AND (lease_expires_at > clock_timestamp()"
            "     OR lease_expires_at IS NULL AND adapter_type = ANY(%s))"
            " RETURNING lease_expires_at",
            [seconds, run_id, list(CALLED_BACK)],
        )
        row = cursor.fetchone()
    if row is None:
        check_wanted(run_id)
        raise Conflict("run_not_external", "This run does not wait for a call back.")
    return row[0]


def check_wanted(run_id: uuid.UUID) -> None:
    """Raise Conflict when somebody has cancelled the run: what it says comes too late."""
    if HeartbeatRun.objects.filter(id=run_id, cancel_requested_at__isnull=False).exists():
        raise Conflict("run_cancelled", "This run was cancelled and has to stop.")


def _fenced(assignment: str, values: list[Any], run_id: uuid.UUID, epoch: int) -> None:
    with connection.cursor() as cursor:
        # `assignment` is a constant of this module, never input.
        cursor.execute(
            f"UPDATE agents_heartbeatrun SET {assignment} WHERE id = %s AND epoch = %s",  # noqa: S608
            [*values, run_id, epoch],
        )
        if cursor.rowcount == 0:
            _blocked(run_id, epoch, assignment.split(" ", 1)[0])
            raise Stale(f"run {run_id} has left epoch {epoch}")


def _blocked(run_id: uuid.UUID, epoch: int, what: str) -> None:
    log.warning("stale_write_blocked run=%s epoch=%s what=%s", run_id, epoch, what)
    meters.count(meters.STALE_WRITES, what.partition(":")[0])


# --- how it ends -----------------------------------------------------------------------------

# With it goes what was recorded on the way here, then the end itself.
_FINISH = f"""
WITH finished AS (
    UPDATE agents_heartbeatrun
    SET status = %(status)s, epoch = epoch + 1, token_digest = NULL, lease_expires_at = NULL,
        finished_at = clock_timestamp(), code = %(code)s, message = %(message)s,
        summary = %(summary)s, result = result || %(result)s::jsonb,
        model = coalesce(nullif(%(model)s, ''), model), session = session || %(session)s::jsonb
    WHERE id = %(run_id)s AND epoch = %(epoch)s
    RETURNING id, epoch, company_id, agent_id, issue_id, created_at, started_at
), noted AS (
    INSERT INTO agents_runevent
        (run_id, company_id, run_created_at, seq, epoch, kind, text, data, at)
    SELECT f.id, f.company_id, f.created_at, 1 + coalesce((
               SELECT max(e.seq) FROM agents_runevent e
               WHERE e.run_id = f.id AND e.run_created_at = f.created_at), 0),
           f.epoch, 'status', %(message)s,
           jsonb_build_object('status', %(status)s::text, 'code', %(code)s::text),
           clock_timestamp()
    FROM finished f ON CONFLICT DO NOTHING
), recorded AS (
    {activity.NOTE} WHERE EXISTS (SELECT 1 FROM finished)
), told AS (
    INSERT INTO companies_activity (id, company_id, occurred_at, actor_type, actor_id, actor_name,
        run_id, action, entity_type, entity_id, entity_name, details)
    SELECT %(activity_id)s::uuid, f.company_id, %(now)s::timestamptz, 'agent', f.agent_id,
           left(a.name, 120), f.id, 'run.' || %(status)s, 'run', f.id, left(a.name, 200),
           jsonb_build_object('code', %(code)s::text, 'issueId', f.issue_id, 'seconds', round(
               coalesce(extract(epoch FROM clock_timestamp() - f.started_at), 0), 3))
    FROM finished f JOIN agents_agent a ON a.id = f.agent_id
)
SELECT f.company_id, f.agent_id, f.issue_id, a.error_code
FROM finished f JOIN agents_agent a ON a.id = f.agent_id
"""  # noqa: S608


@transaction.atomic(savepoint=False)
def finish(
    *,
    run_id: uuid.UUID,
    epoch: int,
    status: str,
    code: str = "",
    message: str = "",
    summary: str = "",
    result: Mapping[str, Any] | None = None,
    model: str = "",
    session: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> bool:
    """End a run, unless it has changed hands: then nothing is written and False returned.

    The run's token dies here. A failure stays visible at the agent until its next success. `model`,
    `session` and `result` come on top of what `note_started` has kept.
    """
    recorded = activity.kept()
    values: dict[str, Any] = {
        "run_id": run_id,
        "epoch": epoch,
        "status": str(status),
        "code": str(code),
        "message": output.clean(message)[:MESSAGE_CHARS],
        "summary": output.clean(summary)[:SUMMARY_CHARS],
        "result": output.to_json(result or {}),
        "model": output.clean(model)[:120],
        "session": output.to_json(session or {}),
        "activity": activity.as_json(recorded),
        "activity_id": new_id(),
        "now": now or timezone.now(),
    }
    with connection.cursor() as cursor:
        cursor.execute(_FINISH, values)
        ended = cursor.fetchone()
    if ended is None:
        _blocked(run_id, epoch, f"finish:{status}")
        return False
    activity.written(recorded)
    company_id, agent_id, issue_id, error_code = ended
    error = {Status.SUCCEEDED: "", Status.CANCELLED: error_code}.get(Status(status), code)
    if error != error_code:
        Agent.objects.filter(id=agent_id).update(error_code=error)
    live.publish(company_id, "activity")
    meters.count_at_commit(meters.RUNS_ENDED, f"{status}:{code}")
    _announce(company_id, run_id, agent_id, issue_id)
    return True


def _announce(
    company_id: uuid.UUID, run_id: uuid.UUID, agent_id: uuid.UUID, issue_id: uuid.UUID | None
) -> None:
    live.publish(company_id, "runs")
    live.publish(company_id, "run", run_id)
    live.publish(company_id, "agent", agent_id)
    if issue_id is not None:
        live.publish(company_id, "issue", issue_id)
    live.wake()  # its place is free: the next one may start


def again(
    *,
    run: HeartbeatRun,
    reason: str,
    not_before: datetime,
    attempt: int,
    now: datetime,
) -> Wake:
    """Queue another attempt of an ended run, with everything that had woken the first."""
    payload = {**run.payload, ORIGINAL_REASON: run.payload.get(ORIGINAL_REASON, run.reason)}
    return wake(
        agent=run.agent,
        issue=run.issue,
        reason=reason,
        source=HeartbeatRun.Source.RETRY,
        actor=activity.SYSTEM,
        now=now,
        priority=run.priority,
        comment_ids=run.comment_ids,
        payload=payload,
        not_before=not_before,
        attempt=attempt,
        retry_of=run.pk,
    )


def expired(*, limit: int = RESCUE_BATCH) -> list[tuple[uuid.UUID, int]]:
    """Runs (with their epochs) whose holder's lease has run out. A lease that has run out is
    never renewed, so what is found here stays true until somebody ends the run."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT r.id, r.epoch FROM agents_heartbeatrun r
            LEFT JOIN agents_worker w ON w.id = r.worker_id
            WHERE r.status = 'running'
              AND coalesce(r.lease_expires_at, w.lease_expires_at, '-infinity')
                  < clock_timestamp()
            ORDER BY r.id LIMIT %s
            """,
            [limit],
        )
        return cursor.fetchall()


def held(*, run_id: uuid.UUID, epoch: int) -> HeartbeatRun | None:
    """The run with its agent and issue, None when it has left this epoch."""
    return _read("r.id = %(run_id)s AND r.epoch = %(epoch)s", {"run_id": run_id, "epoch": epoch})


def held_for_good(*, run_id: uuid.UUID, epoch: int) -> HeartbeatRun | None:
    """Like `held`, and nobody changes it before this transaction's end: what is decided about it
    then knows of every cancellation. Locks the issue, then the run."""
    run = held(run_id=run_id, epoch=epoch)
    if run is None:
        return None
    if run.issue is not None:
        type(run.issue)._default_manager.select_for_update(no_key=True).get(pk=run.issue.pk)
    queue = HeartbeatRun.objects.select_for_update(no_key=True, of=("self",))
    return queue.select_related("agent", "issue").filter(id=run_id, epoch=epoch).first()


def read(run_id: uuid.UUID) -> HeartbeatRun | None:
    """The run as it is now, with its agent and issue."""
    return _read("r.id = %(run_id)s", {"run_id": run_id})


def _read(condition: str, values: Mapping[str, Any]) -> HeartbeatRun | None:
    issue_model = HeartbeatRun._meta.get_field("issue").related_model
    statement = (
        f"SELECT {rows.columns(HeartbeatRun, 'r')}, {rows.columns(Agent, 'a')},"  # noqa: S608
        f" {rows.columns(issue_model, 'i')} FROM agents_heartbeatrun r"
        " JOIN agents_agent a ON a.id = r.agent_id LEFT JOIN issues_issue i ON i.id = r.issue_id"
        f" WHERE {condition}"
    )
    found = rows.fetch(statement, values, HeartbeatRun, Agent, issue_model)
    if not found:
        return None
    run: HeartbeatRun
    run, run.agent, run.issue = found[0]
    return run


def loss_of(run: HeartbeatRun, *, shutdown: bool = False, begun: bool = True) -> Loss:
    """What the loss of its holder means for a run.

    Safe to repeat (the adapter says so, and nothing was acted): lost, and a new run follows; a
    new one, because money is booked by run and call. A shutdown is nobody's failure and counts
    no attempt; nor does a run that was never `begun`, as only its living holder can know: its claim
    was committed and the answer lost. Otherwise effects cannot be known, and a person decides.
    """
    if run.cancel_requested_at is not None:
        return Loss(Status.CANCELLED, Code.CANCELLED, run.cancel_reason or "Cancelled.")
    if shutdown:
        message = SHUT_DOWN
    elif run.lease_expires_at is not None:
        message = "The server that took the run over has not reported in time."
    elif not begun:
        message = "The answer to its claim was lost, so it was never begun."
    else:
        message = "The process that carried the run is gone."
    attempt = run.attempt if shutdown or not begun else run.attempt + 1
    if (_safe(run) or not begun) and attempt <= outcomes.MAX_LOST_ATTEMPTS:
        return Loss(Status.LOST, Code.LOST, message, attempt)
    return Loss(Status.UNKNOWN, Code.LOST, message)


@transaction.atomic
def lose(*, run: HeartbeatRun, loss: Loss, now: datetime) -> Lost | None:
    """End a run whose holder is gone, and queue it again where `loss` says so. From this instant
    the former holder is fenced off. None when somebody was faster."""
    if not finish(
        run_id=run.pk,
        epoch=run.epoch,
        status=loss.status,
        code=loss.code,
        message=loss.message,
        now=now,
    ):
        return None
    retry_id = None
    if loss.attempt is not None:
        retry_id = again(
            run=run,
            reason="process_lost_retry",
            not_before=now,
            attempt=loss.attempt,
            now=now,
        ).run_id
    return Lost(run.pk, run.company_id, run.agent_id, run.issue_id, loss.status, retry_id)


def _safe(run: HeartbeatRun) -> bool:
    """May this run be started again although nobody knows how far it came?"""
    try:
        adapter = adapters.get(run.adapter_type)
    except adapters.UnknownAdapter:
        return False
    return run.acted_at is None and adapter.retry_safe


# --- what people ask -------------------------------------------------------------------------


@transaction.atomic
def cancel(
    *,
    run: HeartbeatRun,
    actor: Actor,
    reason: str = "",
    now: datetime | None = None,
) -> str:
    """Stop a run: a queued one at once, a running one as soon as its worker hears of it.

    Returns the run's status now; `running` means that the worker has been asked. A run that has
    ended stays as it is.
    """
    now = now or timezone.now()
    run = HeartbeatRun.objects.select_for_update(no_key=True).get(pk=run.pk)
    if run.status not in HeartbeatRun.LIVE:
        return run.status
    elsewhere = run.lease_expires_at is not None
    said = output.clean(reason)[:200]
    HeartbeatRun.objects.filter(pk=run.pk).update(
        cancel_requested_at=run.cancel_requested_at or now, cancel_reason=said
    )
    if run.cancel_requested_at is None:
        activity.record(
            company_id=run.company_id,
            actor=actor,
            action="run.cancel_requested",
            entity_type="run",
            entity_id=run.pk,
            details={"reason": said},
            now=now,
        )
    if run.status == Status.RUNNING and not elsewhere:
        live.cancel(run.pk)
        live.publish(run.company_id, "run", run.pk)
        return run.status
    finish(
        run_id=run.pk,
        epoch=run.epoch,
        status=Status.CANCELLED,
        code=Code.CANCELLED,
        message=said or "Cancelled.",
        now=now,
    )
    return str(Status.CANCELLED)


def cancel_queued(
    *,
    now: datetime,
    code: str = Code.CANCELLED,
    agent_id: uuid.UUID | None = None,
    issue_id: uuid.UUID | None = None,
    limit: int = 1_000,
) -> int:
    """Cancel what waits for an agent or about an issue. Returns how many runs that were."""
    waiting = HeartbeatRun.objects.filter(status=Status.QUEUED)
    if agent_id is not None:
        waiting = waiting.filter(agent_id=agent_id)
    if issue_id is not None:
        waiting = waiting.filter(issue_id=issue_id)
    if agent_id is None and issue_id is None:
        return 0
    count = 0
    with transaction.atomic():
        for run in waiting.select_for_update(no_key=True).order_by("id")[:limit]:
            count += finish(
                run_id=run.pk, epoch=run.epoch, status=Status.CANCELLED, code=code, now=now
            )
    return count


def retry(*, run: HeartbeatRun, actor: Actor, now: datetime | None = None) -> Wake:
    """A person runs an ended run again, now. Raises Conflict while it is queued or running."""
    now = now or timezone.now()
    if run.status in HeartbeatRun.LIVE:
        raise Conflict("run_not_ended", "This run has not ended yet.")
    payload = {**run.payload, ORIGINAL_REASON: MANUAL}
    return wake(
        agent=run.agent,
        issue=run.issue,
        reason=MANUAL,
        source=HeartbeatRun.Source.RETRY,
        actor=actor,
        now=now,
        priority=run.priority,
        comment_ids=run.comment_ids,
        payload=payload,
        retry_of=run.pk,
    )
