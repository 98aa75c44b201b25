"""What the API answers about runs, keys and connections, in types. See `companies/answers.py`."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal

from companies.wire import Answer

RunStatus = Literal[
    "queued", "scheduled_retry", "running", "succeeded", "failed", "cancelled", "timed_out",
    "interrupted",
]  # fmt: skip
Source = Literal["timer", "assignment", "on_demand", "automation", "retry"]
Trigger = Literal["manual", "system"]


class RunUsage(Answer):
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost_micros: int | None
    cost_cents: float | None
    unpriced_calls: int


class RunContext(Answer):
    """Why the run began."""

    issue_id: uuid.UUID | None
    task_id: uuid.UUID | None
    wake_reason: str
    wake_source: Source
    wake_comment_id: uuid.UUID | None
    wake_comment_ids: list[uuid.UUID]


class Run(Answer):
    """One heartbeat of an agent."""

    id: uuid.UUID
    company_id: uuid.UUID
    agent_id: uuid.UUID
    issue_id: uuid.UUID | None
    invocation_source: Source
    trigger_detail: Trigger
    status: RunStatus
    wake_reason: str
    wake_count: int
    wakeup_request_id: uuid.UUID
    attempt: int
    retry_of_run_id: uuid.UUID | None
    scheduled_retry_at: datetime | None
    scheduled_retry_attempt: int
    scheduled_retry_reason: str | None
    started_at: datetime | None
    finished_at: datetime | None
    last_output_at: datetime | None
    error: str | None
    error_code: str | None
    exit_code: int | None
    signal: str | int | None
    summary: str | None
    adapter_type: str
    model: str | None
    on_fallback: bool
    usage_json: RunUsage | None
    result_json: dict[str, Any] | None
    session_id_before: str | None
    session_id_after: str | None
    log_store: Literal["database"]
    log_ref: str
    cancel_requested_at: datetime | None
    context_snapshot: RunContext
    created_at: datetime
    updated_at: datetime


class RunOfIssue(Run):
    run_id: uuid.UUID


class LiveRun(Answer):
    """A queued or running run, in short."""

    id: uuid.UUID
    status: RunStatus
    agent_id: uuid.UUID
    agent_name: str
    adapter_type: str
    issue_id: uuid.UUID | None
    invocation_source: Source
    trigger_detail: Trigger
    wake_reason: str
    started_at: datetime | None
    finished_at: datetime | None
    last_output_at: datetime | None
    created_at: datetime


class OutputEvent(Answer):
    id: int
    company_id: uuid.UUID
    run_id: uuid.UUID
    agent_id: uuid.UUID
    seq: int
    event_type: Literal["lifecycle", "tool", "usage", "system", "output"]
    kind: str
    stream: Literal["stdout", "stderr", "system"]
    level: Literal["info", "error"]
    color: None
    message: str | None
    payload: dict[str, Any] | None
    created_at: datetime


class RunLog(Answer):
    run_id: uuid.UUID
    store: Literal["database"]
    log_ref: str
    content: str
    next_offset: int = 0
    """Absent at the end."""


class RunLease(Answer):
    run_id: uuid.UUID
    lease_expires_at: datetime


class KeyScope(Answer):
    kind: Literal["standard"]


class AgentKey(Answer):
    """An agent's key, without what it opens."""

    id: uuid.UUID
    name: str
    prefix: str
    scopes: list[str]
    scope: KeyScope
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    created_at: datetime


class ShownAgentKey(AgentKey):
    """With the key itself, this once."""

    token: str


class ConnectionLimits(Answer):
    requests_per_minute: int | None
    tokens_per_minute: int | None
    max_concurrent_runs: int | None


class ConnectionLeft(Answer):
    requests: int | None
    tokens: int | None


class BreakerState(Answer):
    state: Literal["closed", "open", "half_open"]
    code: str | None
    opened_at: datetime | None
    open_until: datetime | None


class Connection(Answer):
    """A connection to a provider. Its key is named, never shown."""

    id: uuid.UUID
    company_id: uuid.UUID
    name: str
    kind: Literal["openai", "anthropic"]
    base_url: str | None
    key_secret: str | None
    disabled: bool
    limits: ConnectionLimits
    left: ConnectionLeft
    running_runs: int
    breaker: BreakerState
    last_errors: list[Any]
    last_answer_at: datetime | None
    version: int
    created_at: datetime
    updated_at: datetime


class ConnectionCheck(Answer):
    name: str
    ok: bool
    message: str
    hint: str | None


class ConnectionTest(Answer):
    ok: bool
    checks: list[ConnectionCheck]
