"""What the API answers about agents and about a company as a whole, in types. See
`companies/answers.py`."""

from __future__ import annotations

import uuid
from datetime import date, datetime
from typing import Any, Literal

from agents.answers import RunStatus
from companies.wire import Answer
from issues.answers import Approval

# --- the instance ----------------------------------------------------------------------------


class Health(Answer):
    status: Literal["ok"]
    version: str
    server_version: str
    deployment_mode: Literal["authenticated"]
    auth_ready: bool
    bootstrap_status: Literal["ready"]


class ReadinessCheck(Answer):
    """Is one thing there that work needs? With the figure that says so."""

    ok: bool
    waiting: int = 0
    live: int = 0
    age_seconds: int | None = None


class Readiness(Answer):
    status: Literal["ok"]
    database: Literal["ok"]
    shifts: int
    checks: dict[str, ReadinessCheck]


# --- agents ----------------------------------------------------------------------------------


class HeartbeatConfig(Answer):
    enabled: bool
    interval_sec: int | None
    cron: str | None
    timezone: str
    wake_on_demand: bool
    max_concurrent_runs: int
    max_daily_runs: int | None
    max_daily_cost_cents: float | None


class RuntimeConfig(Answer):
    heartbeat: HeartbeatConfig
    loop_limits: dict[str, int]


class HoldOn(Answer):
    """A reason to start nothing new."""

    reason: str
    note: str | None
    created_at: datetime


class Permissions(Answer):
    can_create_agents: bool


class Agent(Answer):
    id: uuid.UUID
    company_id: uuid.UUID
    name: str
    url_key: str
    role: str
    title: str | None
    icon: str | None
    status: str
    reports_to: uuid.UUID | None
    capabilities: str | None
    adapter_type: str
    adapter_config: dict[str, Any]
    """Empty for other agents; values of env and headers are shown as `***`."""
    instructions: str | None
    on_finish: Literal["done", "in_review"]
    runtime_config: RuntimeConfig
    budget_monthly_cents: float
    budget_monthly_micros: int | None
    spent_monthly_cents: float | None
    spent_monthly_micros: int | None
    pause_reason: str | None
    paused_at: datetime | None
    holds: list[HoldOn]
    error_reason: str | None
    permissions: Permissions
    last_heartbeat_at: datetime | None
    next_heartbeat_at: datetime | None
    metadata: None
    version: int
    created_at: datetime
    updated_at: datetime


class Manager(Answer):
    id: uuid.UUID
    name: str
    role: str
    title: str | None


class AgentAccess(Answer):
    can_assign_tasks: bool
    task_assign_source: str


class WholeAgent(Agent):
    """One agent with its line of managers, nearest first."""

    chain_of_command: list[Manager]
    access: AgentAccess


class Hire(Answer):
    """`approval` is what the hire of an agent by an agent waits for."""

    agent: Agent
    approval: Approval | None


class OrgNode(Answer):
    id: uuid.UUID
    name: str
    role: str
    title: str | None
    status: str
    reports: list[OrgNode]


# --- how agents are set up -------------------------------------------------------------------


class AgentSetUp(Answer):
    name: str
    role: str
    title: str | None
    icon: str | None
    reports_to: uuid.UUID | None
    capabilities: str | None
    adapter_type: str
    adapter_config: dict[str, Any]
    instructions: str | None
    on_finish: Literal["done", "in_review"]
    permissions: Permissions
    runtime_config: RuntimeConfig


class AgentConfiguration(AgentSetUp):
    id: uuid.UUID
    company_id: uuid.UUID
    url_key: str
    status: str
    updated_at: datetime


class SetUpChange(Answer):
    """One place of a set-up that differs; `path` has dots."""

    path: str
    before: Any
    after: Any


class ConfigRevision(Answer):
    """A change of an agent's set-up, with what differs."""

    id: uuid.UUID
    company_id: uuid.UUID
    agent_id: uuid.UUID
    created_by_agent_id: uuid.UUID | None
    created_by_user_id: uuid.UUID | None
    source: Literal["patch", "rollback"]
    rolled_back_from_revision_id: uuid.UUID | None
    changed_keys: list[str]
    changes: list[SetUpChange]
    before_config: AgentSetUp
    after_config: AgentSetUp
    created_at: datetime


class RuntimeState(Answer):
    """What an agent's last runs left behind."""

    agent_id: uuid.UUID
    company_id: uuid.UUID
    adapter_type: str
    session_id: str | None
    session_display_id: str | None
    last_run_id: uuid.UUID | None
    last_run_status: RunStatus | None
    last_error: str | None
    updated_at: datetime


class SessionsForgotten(Answer):
    agent_id: uuid.UUID
    forgotten: int


class Adapter(Answer):
    type: str
    label: str
    description: str
    simulated: bool
    uses_tools: bool
    config_schema: dict[str, Any]


class AdapterModel(Answer):
    id: str
    label: str


class EnvironmentCheck(Answer):
    code: str
    level: Literal["info", "error"]
    message: str
    hint: str | None


class EnvironmentTest(Answer):
    adapter_type: str
    status: Literal["pass", "fail"]
    checks: list[EnvironmentCheck]
    tested_at: datetime


# --- a company from above --------------------------------------------------------------------


class AgentFigures(Answer):
    active: int
    running: int
    paused: int
    error: int


class IssueFigures(Answer):
    open: int
    in_progress: int
    in_review: int
    blocked: int
    done: int


class CostFigures(Answer):
    month_spend_cents: float | None
    month_spend_micros: int | None
    month_budget_cents: float
    month_utilization_percent: int
    unpriced_events: int


class BudgetFigures(Answer):
    paused_agents: int


class RunDay(Answer):
    date: date
    succeeded: int
    failed: int
    other: int
    total: int


class Dashboard(Answer):
    company_id: uuid.UUID
    agents: AgentFigures
    tasks: IssueFigures
    costs: CostFigures
    pending_interactions: int
    pending_approvals: int
    budgets: BudgetFigures
    run_activity: list[RunDay]


class Badges(Answer):
    """What waits for people, in numbers."""

    inbox: int
    approvals: int
    failed_runs: int
    join_requests: int


class FoundIssue(Answer):
    id: uuid.UUID
    identifier: str
    title: str
    status: str
    priority: str
    assignee_agent_id: uuid.UUID | None
    assignee_user_id: uuid.UUID | None
    project_id: uuid.UUID | None
    updated_at: datetime


class Found(Answer):
    id: uuid.UUID
    type: Literal["issue", "comment", "agent", "project"]
    score: int
    title: str
    href: str
    matched_fields: list[str]
    snippet: str
    issue: FoundIssue | None = None
    updated_at: datetime | None = None


class SearchAnswer(Answer):
    query: str
    normalized_query: str
    scope: Literal["all"]
    sort: Literal["relevance"]
    limit: int
    offset: int
    results: list[Found]
    counts_by_type: dict[str, int]
    has_more: bool


class TaskTaken(Answer):
    """Where to watch what became of a prompt."""

    issue_id: uuid.UUID
    identifier: str
    title: str
    agent_id: uuid.UUID
    company_id: uuid.UUID
    run_id: uuid.UUID
    status: Literal["queued"]
    issue_url: str
    run_url: str
    stream_url: str
