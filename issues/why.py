"""Why is nobody working on this issue? The answer in chips, for a whole list at once.

Four queries whatever the number of issues (`facts.py`). Each chip has a code for programs and
tests, a text for people and, where one thing can be done about it, an action (what a page offers).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from agents import outcomes
from agents.adapters.base import Code
from agents.connection_models import ProviderConnection
from agents.models import Agent, HeartbeatRun, Hold
from companies.models import Company
from issues.facts import Assignee, Facts, Waiting
from issues.models import Issue

S = Issue.Status
Run = HeartbeatRun.Status

HOLDS = {
    Hold.Reason.OPERATOR: "is paused",
    Hold.Reason.AGENT_BUDGET: "has used up its budget",
    Hold.Reason.PROJECT_BUDGET: "is held: the project's budget is used up",
    Hold.Reason.COMPANY_BUDGET: "is held: the company's budget is used up",
    Hold.Reason.QUOTA: "is held: the provider's quota is used up",
    Hold.Reason.LOOP: "is held: it went round in circles",
}
BUDGETS = (Hold.Reason.AGENT_BUDGET, Hold.Reason.PROJECT_BUDGET, Hold.Reason.COMPANY_BUDGET)


@dataclass(frozen=True, slots=True)
class Chip:
    """One reason. `action` is empty, or: assign, answer, review, resume, resume_company,
    raise_budget, open_agent, open_issue, open_connections, wake. `at` is a moment that the text
    needs (a page shows it as "3 minutes ago"); `ref` the id of what `action` is about."""

    code: str
    text: str
    action: str = ""
    at: datetime | None = None
    ref: uuid.UUID | None = None


def reasons(
    issues: Sequence[Waiting], *, company: Company, now: datetime | None = None
) -> dict[uuid.UUID, list[Chip]]:
    """Chips by issue id, the weightiest first; empty for what is closed or running. The issues are
    of `company`."""
    now = now or timezone.now()
    open_ones = [issue for issue in issues if issue.status not in Issue.CLOSED]
    chips: dict[uuid.UUID, list[Chip]] = {issue.id: [] for issue in issues}
    if not open_ones:
        return chips
    facts = Facts(company.id, open_ones)
    for issue in open_ones:
        chips[issue.id] = _chips(issue, company, facts, now)
    return chips


def not_running(issue: Issue, *, now: datetime | None = None) -> list[Chip]:
    """The chips of one issue."""
    return reasons([issue], company=issue.company, now=now)[issue.id]


def chips(
    *, company_id: uuid.UUID, issue_ids: Sequence[uuid.UUID], now: datetime | None = None
) -> dict[uuid.UUID, tuple[str, str]]:
    """The weightiest reason of each issue as (code, text), for lists; absent when there is none."""
    company = Company.objects.get(pk=company_id)
    issues = list(Issue.objects.for_company(company_id).filter(id__in=issue_ids))
    found = reasons(issues, company=company, now=now)
    return {key: (given[0].code, given[0].text) for key, given in found.items() if given}


def _chips(issue: Waiting, company: Company, facts: Facts, now: datetime) -> list[Chip]:
    if issue.id in facts.running:
        return []
    chips = [*_waiting_for_people(issue, facts), *_blocked(issue, facts)]
    if issue.status == S.BACKLOG:
        return [*chips, Chip("backlog", "In the backlog: not to be done yet")]
    if issue.assignee_agent_id is None and issue.assignee_user_id is None:
        return [*chips, Chip("no_assignee", "Nobody is assigned", "assign")]
    agent = facts.agents.get(issue.assignee_agent_id) if issue.assignee_agent_id else None
    if agent is None:
        return chips or [Chip("with_person", "A person does it; no agent works on it")]
    chips += _agent(agent, company)
    # A failure keeps nothing from starting: with a run queued, when that starts says more.
    failed = _failed(agent)
    if issue.status in (S.TODO, S.IN_PROGRESS) or issue.id in facts.queued:
        chips += _queue(issue, agent, facts, now, stuck=bool(chips or failed))
    return [*chips, *failed]


def _waiting_for_people(issue: Waiting, facts: Facts) -> list[Chip]:
    if issue.id in facts.questions:
        asked_id, asked_at = facts.questions[issue.id]
        return [Chip("waiting_for_you", "Waits for your answer", "answer", asked_at, asked_id)]
    if issue.status == S.IN_REVIEW:
        return [Chip("in_review", "Waits for your review", "review", issue.updated_at)]
    return []


def _blocked(issue: Waiting, facts: Facts) -> list[Chip]:
    blocking = facts.blockers.get(issue.id, [])
    if blocking:
        names = ", ".join(identifier for _, identifier in blocking[:3])
        more = f" and {len(blocking) - 3} more" if len(blocking) > 3 else ""
        return [Chip("blocked_by", f"Blocked by {names}{more}", "open_issue", ref=blocking[0][0])]
    if issue.status == S.BLOCKED:
        return [Chip("blocked", issue.blocked_reason or "Blocked")]
    return []


def _agent(agent: Assignee, company: Company) -> list[Chip]:
    chips = []
    if company.status != Company.Status.ACTIVE:
        chips.append(
            Chip("company_paused", f"{company.name} is {company.status}",
                 "resume_company", ref=company.id)
        )  # fmt: skip
    if agent.status == Agent.Status.TERMINATED:
        chips.append(
            Chip("agent_terminated", f"{agent.name} does not work here any more", "assign")
        )
    elif agent.status == Agent.Status.PENDING_APPROVAL:
        chips.append(
            Chip("agent_pending", f"{agent.name} waits for approval", "open_agent", ref=agent.id)
        )
    for reason, since in agent.holds:
        budget = reason in BUDGETS
        chips.append(
            Chip(
                "budget_hold" if budget else "agent_paused",
                f"{agent.name} {HOLDS[Hold.Reason(reason)]}",
                "raise_budget" if budget else "resume",
                since,
                agent.id,
            )
        )
    return chips


def _failed(agent: Assignee) -> list[Chip]:
    if not agent.error_code:
        return []
    text = f"{agent.name}'s last run failed: {outcomes.of(agent.error_code).title}"
    return [Chip("adapter_failed", text, "open_agent", ref=agent.id)]


def _queue(
    issue: Waiting, agent: Assignee, facts: Facts, now: datetime, *, stuck: bool
) -> list[Chip]:
    run = facts.queued.get(issue.id)
    if run is None:
        if stuck:
            return []
        return [Chip("no_run", "No run is planned", "wake", ref=agent.id)]
    if run.not_before > now and run.refused == Code.BUDGET:
        text = "The budget has no room for it; looked at again"
        return [Chip("budget_room", text, "raise_budget", run.not_before, agent.id)]
    if run.not_before > now:
        code, text = ("retry_at", "Tries again") if run.attempt > 1 else ("not_before", "Starts")
        return [Chip(code, text, at=run.not_before, ref=run.id)]
    provider = _provider(agent)
    if provider is not None:
        return [provider]
    at_work = facts.at_work.get(agent.id, [])
    if at_work and len(at_work) >= agent.max_concurrent_runs:
        what = at_work[0].identifier or "its regular round"
        return [Chip("cap_full", f"{agent.name} is busy with {what}", at=run.created_at)]
    return [Chip("queued", "Queued", at=run.created_at, ref=run.id)]


def _provider(agent: Assignee) -> Chip | None:
    """Its connection keeps the run waiting: switched off, spent, in trouble."""
    row = agent.provider
    if row is None:
        return None
    if row.disabled_at is not None:
        text, at = f"{row.name} is switched off", row.disabled_at
        return Chip("provider_off", text, "open_connections", at, row.id)
    if row.breaker == ProviderConnection.Breaker.CLOSED:
        return None
    if row.open_code == Code.QUOTA_EXHAUSTED:
        text = f"{row.name}'s quota is used up"
        return Chip("provider_quota", text, "open_connections", row.open_until, row.id)
    text = f"{row.name} has trouble: {outcomes.of(row.open_code).title.lower()}"
    return Chip("provider_open", text, "open_connections", row.open_until, row.id)
