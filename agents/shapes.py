"""Runs and their output as the API shows them: rows in, plain dictionaries out."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from agents.models import AgentKey, HeartbeatRun, RunEvent
from companies import wire

# Our states that the wire has no word for.
WIRE_STATUS = {"lost": "interrupted", "unknown": "interrupted"}
EVENT_TYPES = {"status": "lifecycle", "step": "tool", "usage": "usage", "system": "system"}
STREAMS = {"stderr": "stderr", "status": "system", "system": "system"}


def run_status(run: HeartbeatRun, now: datetime) -> str:
    """A run's status in the contract's words."""
    if run.status == HeartbeatRun.Status.QUEUED and run.attempt > 1 and run.not_before > now:
        return "scheduled_retry"
    return WIRE_STATUS.get(run.status, run.status)


def run(row: HeartbeatRun, now: datetime) -> dict[str, Any]:
    """A run, complete but for its output."""
    queued = row.status == HeartbeatRun.Status.QUEUED
    failed = row.status not in (*HeartbeatRun.LIVE, HeartbeatRun.Status.SUCCEEDED)
    retry = queued and row.attempt > 1
    return {
        "id": row.id,
        "companyId": row.company_id,
        "agentId": row.agent_id,
        "issueId": row.issue_id,
        "invocationSource": row.source,
        "triggerDetail": "manual" if row.source == HeartbeatRun.Source.ON_DEMAND else "system",
        "status": run_status(row, now),
        "wakeReason": row.reason,
        "wakeCount": row.wake_count,
        "wakeupRequestId": row.id,
        "attempt": row.attempt,
        "retryOfRunId": row.retry_of_id,
        "scheduledRetryAt": row.not_before if retry else None,
        "scheduledRetryAttempt": row.attempt - 1 if retry else 0,
        "scheduledRetryReason": row.reason if retry else None,
        "startedAt": row.started_at,
        "finishedAt": row.finished_at,
        "lastOutputAt": row.output_at,
        "error": row.message or None if failed else None,
        "errorCode": row.code or None,
        "exitCode": row.result.get("exitCode") if isinstance(row.result, dict) else None,
        "signal": row.result.get("signal") if isinstance(row.result, dict) else None,
        "summary": row.summary or None,
        "adapterType": row.adapter_type,
        "model": row.model or None,
        "onFallback": row.on_fallback,
        "usageJson": usage(row),
        "resultJson": row.result or None,
        "sessionIdBefore": None,
        "sessionIdAfter": row.session.get("id") if isinstance(row.session, dict) else None,
        "logStore": "database",
        "logRef": str(row.id),
        "cancelRequestedAt": row.cancel_requested_at,
        "contextSnapshot": {
            "issueId": row.issue_id,
            "taskId": row.issue_id,
            "wakeReason": row.reason,
            "wakeSource": row.source,
            "wakeCommentId": row.comment_ids[-1] if row.comment_ids else None,
            "wakeCommentIds": row.comment_ids,
        },
        "createdAt": row.created_at,
        "updatedAt": row.finished_at or row.output_at or row.started_at or row.created_at,
    }


def usage(row: HeartbeatRun) -> dict[str, Any] | None:
    """What a run used so far; None when nothing was booked."""
    if not (row.input_tokens or row.output_tokens or row.cost_micros or row.unpriced_calls):
        return None
    cost = wire.known(row.cost_micros, row.unpriced_calls)
    return {
        "inputTokens": row.input_tokens,
        "cachedInputTokens": row.cached_tokens,
        "outputTokens": row.output_tokens,
        "costMicros": cost,
        "costCents": wire.cents(cost),
        "unpricedCalls": row.unpriced_calls,
    }


def brief_run(row: HeartbeatRun, now: datetime) -> dict[str, Any]:
    """A run as lists of live runs show it."""
    return {
        "id": row.id,
        "status": run_status(row, now),
        "agentId": row.agent_id,
        "agentName": row.agent.name,
        "adapterType": row.adapter_type,
        "issueId": row.issue_id,
        "invocationSource": row.source,
        "triggerDetail": "manual" if row.source == HeartbeatRun.Source.ON_DEMAND else "system",
        "wakeReason": row.reason,
        "startedAt": row.started_at,
        "finishedAt": row.finished_at,
        "lastOutputAt": row.output_at,
        "createdAt": row.created_at,
    }


def events(rows: Iterable[RunEvent], agent_id: uuid.UUID) -> list[dict[str, Any]]:
    """A run's output, event by event."""
    return [
        {
            "id": row.id,
            "companyId": row.company_id,
            "runId": row.run_id,
            "agentId": agent_id,
            "seq": row.seq,
            "eventType": EVENT_TYPES.get(row.kind, "output"),
            "kind": row.kind,
            "stream": STREAMS.get(row.kind, "stdout"),
            "level": "error" if row.kind == RunEvent.Kind.ERR else "info",
            "color": None,
            "message": row.text or None,
            "payload": row.data,
            "createdAt": row.at,
        }
        for row in rows
    ]


def log(rows: Iterable[RunEvent], limit_bytes: int) -> tuple[str, int]:
    """Output as lines of JSON {ts, stream, chunk}, and the seq that it reaches."""
    lines: list[str] = []
    size, reached = 0, 0
    for row in rows:
        line = ""
        if row.text:
            stream = STREAMS.get(row.kind, "stdout")
            line = wire.dumps({"ts": row.at, "stream": stream, "chunk": row.text}).decode() + "\n"
        if lines and size + len(line) > limit_bytes:
            break
        lines.append(line)
        size += len(line)
        reached = row.seq
    return "".join(lines), reached


def key(row: AgentKey) -> dict[str, Any]:
    """An agent's key, without what it opens."""
    return {
        "id": row.id,
        "name": row.name,
        "prefix": f"pcp_{row.lookup}",
        "scopes": row.scopes,
        "scope": {"kind": "standard"},
        "expiresAt": row.expires_at,
        "revokedAt": row.revoked_at,
        "lastUsedAt": row.last_used_at,
        "createdAt": row.created_at,
    }
