"""What the API answers about money, in types. See `companies/answers.py`.

Cents may carry a fraction; micro-dollars (a millionth of a dollar) are exact. Unknown is null.
"""

from __future__ import annotations

import uuid
from datetime import date, datetime
from typing import Literal

from companies.wire import Answer


class CostEvent(Answer):
    id: uuid.UUID
    company_id: uuid.UUID
    agent_id: uuid.UUID
    issue_id: uuid.UUID | None
    project_id: uuid.UUID | None
    goal_id: uuid.UUID | None
    heartbeat_run_id: uuid.UUID | None
    billing_code: str | None
    provider: str
    biller: str
    billing_type: Literal["metered_api", "subscription_included"]
    model: str
    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_cents: float | None
    cost_micros: int | None
    cost_status: Literal["reported", "estimated", "unpriced"]
    price_source: str | None
    occurred_at: datetime
    created_at: datetime


class MonthCosts(Answer):
    company_id: uuid.UUID
    spend_cents: float | None
    spend_micros: int | None
    budget_cents: float
    budget_micros: int | None
    utilization_percent: int
    events: int
    unpriced_events: int


class CostSums(Answer):
    cost_cents: float | None
    cost_micros: int | None
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    events: int
    unpriced_events: int


class AgentCosts(CostSums):
    agent_id: uuid.UUID
    agent_name: str


class ModelCosts(CostSums):
    provider: str
    model: str


class ProviderCosts(CostSums):
    provider: str
    biller: str
    billing_type: Literal["metered_api", "subscription_included"]
    model: str


class BillerCosts(CostSums):
    biller: str


class ProjectCosts(CostSums):
    project_id: uuid.UUID | None
    project_name: str


class IssueCosts(CostSums):
    issue_id: uuid.UUID
    issue_count: int
    run_count: int


class WindowCosts(Answer):
    window: Literal["day", "month", "lifetime"]
    cost_cents: float | None
    cost_micros: int | None
    events: int
    unpriced_events: int


# --- budgets ---------------------------------------------------------------------------------


class BudgetPolicy(Answer):
    """A limit, and what was spent of it in its current period."""

    policy_id: uuid.UUID
    company_id: uuid.UUID
    scope_type: Literal["company", "project", "agent"]
    scope_id: uuid.UUID
    scope_name: str
    metric: Literal["billed_cents"]
    window_kind: Literal["calendar_month_utc", "day", "run", "lifetime"]
    amount: float
    amount_micros: int
    observed_amount: float
    observed_micros: int
    remaining_amount: float
    utilization_percent: int
    warn_percent: int
    hard_stop_enabled: bool
    is_active: bool
    status: Literal["ok", "warning", "over", "reached"]
    window_end: datetime | None


class BudgetIncident(Answer):
    """A limit was nearly or wholly used up."""

    id: uuid.UUID
    company_id: uuid.UUID
    policy_id: uuid.UUID
    scope_type: Literal["company", "project", "agent"]
    scope_id: uuid.UUID
    percent: int
    threshold_type: Literal["hard_stop", "warn"]
    amount_limit: float
    amount_observed: float
    status: Literal["open", "acknowledged", "resolved"]
    resolution: Literal["raised", "kept_paused", "lapsed"] | None
    resolved_at: datetime | None
    created_at: datetime


class BudgetOverview(Answer):
    company_id: uuid.UUID
    policies: list[BudgetPolicy]
    active_incidents: list[BudgetIncident]
    paused_agent_count: int
    paused_project_count: int
    pending_approval_count: int


# --- prices ----------------------------------------------------------------------------------


class PriceTier(Answer):
    """What a million tokens cost in a call with more input tokens than this."""

    above_input_tokens: int
    usd_per_million: float
    pico_usd_per_token: int


class ModelPrice(Answer):
    """What a model costs now; `source` is who says so. Kinds: input, output, cache_read,
    cache_write, cache_write_1h, reasoning; `requestUsd` comes on top of each call."""

    provider: str
    model: str
    source: Literal["operator", "genai-prices"]
    version: str
    since: date | None
    prices: dict[str, list[PriceTier]]
    request_usd: float | None
