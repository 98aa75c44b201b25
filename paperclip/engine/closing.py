"""How a run ends: reported to its issue, finished under the fence, and what follows queued.
Blocking; one transaction. Read next: `heartbeat.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from agents import outcomes, providers, roster, runs
from agents.adapters.base import AdapterError, Code, Throttled
from agents.models import HeartbeatRun, Hold
from companies import activity, clock, faultpoints
from issues import endings, progress, work

Status = HeartbeatRun.Status


@dataclass(frozen=True, slots=True)
class Ending:
    """How the adapter's part ended."""

    status: str
    code: str = ""
    message: str = ""
    summary: str = ""
    wish: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    retry_after: float | None = None
    acted: bool = False
    retry_at: datetime | None = None  # set for an end that is no failure but has to wait
    model: str = ""  # that answered, and the session it went on with, where that is unwritten
    session: Mapping[str, Any] = field(default_factory=dict)


def close_run(claimed: runs.Claimed, ending: Ending) -> None:
    """Report to the issue, finish the run, queue what follows. One transaction, under the fence.

    Repeated after a lost acknowledgement it finds its own work done. Raises Stale when the run
    has changed hands.
    """
    now = clock.now()
    with transaction.atomic():
        seen = endings.read(run_id=claimed.run_id, epoch=claimed.epoch)
        if seen is None:
            if _is_closed(claimed, ending):
                return
            raise runs.Stale(f"run {claimed.run_id} has left epoch {claimed.epoch}")
        if ending.status == Status.LOST:
            _put_down(claimed, now)
            return
        run = seen.run
        retry_at = ending.retry_at or _retry_at(run, ending, now)
        message = _message(run, ending)
        _end(seen, ending, message, retry_at, now)
        if retry_at is not None:
            waited_only = ending.status == Status.CANCELLED
            runs.again(
                run=run,
                reason="transient_failure_retry",
                not_before=retry_at,
                attempt=run.attempt + (0 if waited_only else 1),
                now=now,
            )
        elif ending.code == Code.QUOTA_EXHAUSTED and run.connection_id is None:
            for agent in providers.same_account(run.agent):
                roster.hold(
                    agent=agent,
                    reason=Hold.Reason.QUOTA,
                    note=message,
                    actor=activity.SYSTEM,
                    now=now,
                )
        progress.judge(
            run=run,
            ending=ending.code,
            message=message,
            result=ending.result,
            now=now,
            made=seen.made,
        )
        faultpoints.reach("finished", run.pk)


def _end(
    seen: endings.Seen, ending: Ending, message: str, retry_at: datetime | None, now: datetime
) -> None:
    """Report to the issue and finish the run; `seen.run` is as it has ended then."""
    run = seen.run
    with activity.together():
        run.issue = work.report(
            run=run,
            status=ending.status,
            summary=ending.summary,
            wish=ending.wish,
            code=ending.code,
            message=message,
            retry_at=retry_at,
            seen=seen,
            now=now,
        )
        faultpoints.reach("reported", run.pk)
        if not runs.finish(
            run_id=run.pk,
            epoch=run.epoch,
            status=ending.status,
            code=ending.code,
            message=message,
            summary=ending.summary,
            result=ending.result,
            model=ending.model,
            session=ending.session,
            now=now,
        ):
            raise runs.Stale(f"run {run.pk} has left epoch {run.epoch}")
    run.status = ending.status


def _put_down(claimed: runs.Claimed, now: datetime) -> None:
    """The instance shuts down: the run goes on elsewhere, or a person decides."""
    run = runs.held_for_good(run_id=claimed.run_id, epoch=claimed.epoch)
    if run is None:
        raise runs.Stale(f"run {claimed.run_id} has left epoch {claimed.epoch}")
    loss = runs.loss_of(run, shutdown=True)
    work.report(
        run=run,
        status=loss.status,
        code=loss.code,
        message=loss.message,
        retry_at=now if loss.attempt is not None else None,
        now=now,
    )
    if runs.lose(run=run, loss=loss, now=now) is None:
        raise runs.Stale(f"run {run.pk} has left epoch {run.epoch}")


def _retry_at(run: HeartbeatRun, ending: Ending, now: datetime) -> datetime | None:
    """When a failure is tried again. Never after something may have been changed."""
    if ending.status not in (Status.FAILED, Status.TIMED_OUT) or ending.acted or run.acted_at:
        return None
    if ending.code == Code.QUOTA_EXHAUSTED and run.connection_id is not None:
        # It waits at the gate: the connection is closed to all who use the key.
        return now if run.attempt <= outcomes.MAX_RETRIES else None
    seconds = outcomes.retry_in(ending.code, attempt=run.attempt, retry_after=ending.retry_after)
    return None if seconds is None else now + timedelta(seconds=seconds)


def _message(run: HeartbeatRun, ending: Ending) -> str:
    if ending.status == Status.CANCELLED and run.cancel_reason:
        return run.cancel_reason
    return ending.message


def _is_closed(claimed: runs.Claimed, ending: Ending) -> bool:
    """Did our own commit go through although we did not hear of it?"""
    return HeartbeatRun.objects.filter(
        pk=claimed.run_id, epoch=claimed.epoch + 1, status=ending.status
    ).exists()


def throttled(held: Throttled, *, acted: bool) -> Ending:
    """We held a call back for longer than a run waits: it comes back later, and that is no failed
    attempt. What has acted is not begun again."""
    if acted or held.acted:
        return failure(held, acted=True)
    later = clock.now() + timedelta(seconds=outcomes.spread(held.retry_after or 0.0))
    return Ending(Status.CANCELLED, str(held.code), held.message, retry_at=later)


def failure(error: AdapterError, *, acted: bool = False) -> Ending:
    timed_out = error.code in (Code.TIMED_OUT, Code.IDLE)
    status = Status.TIMED_OUT if timed_out else Status.FAILED
    return Ending(
        Status.UNKNOWN if error.unknown else status,
        str(error.code),
        error.message,
        retry_after=error.retry_after,
        acted=acted or error.acted,
        result={"detail": error.detail} if error.detail else {},
    )
