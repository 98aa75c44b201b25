"""The history of how agents are set up, and the way back.

`roster.update` writes it; rolling back is an update with `changes_to`.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from agents.models import Agent
from agents.revision_models import AgentRevision
from companies.activity import Actor

FIELDS = (
    "name", "role", "title", "icon", "capabilities", "adapter_type", "adapter_config",
    "instructions", "on_finish", "can_hire", "heartbeat_enabled", "interval_seconds", "cron",
    "timezone", "wake_on_demand", "max_concurrent_runs", "max_daily_runs", "max_daily_cost_micros",
    "loop_limits",
)  # fmt: skip


def snapshot(agent: Agent) -> dict[str, Any]:
    """An agent's set-up as plain JSON."""
    manager = str(agent.reports_to_id) if agent.reports_to_id else None
    return {**{name: getattr(agent, name) for name in FIELDS}, "reports_to": manager}


def remember(
    *,
    agent: Agent,
    before: dict[str, Any],
    actor: Actor,
    now: datetime,
    rolled_back_from: uuid.UUID | None = None,
) -> AgentRevision | None:
    """Write down what changed, in the transaction of the change; None when nothing did."""
    after = snapshot(agent)
    changed = [name for name in after if after[name] != before.get(name)]
    if not changed:
        return None
    return AgentRevision.objects.create(
        company_id=agent.company_id,
        agent=agent,
        before=before,
        after=after,
        changed=changed,
        rolled_back_from_id=rolled_back_from,
        created_by_user_id=actor.id if actor.type == "user" else None,
        created_by_agent_id=actor.id if actor.type == "agent" else None,
        created_at=now,
    )


def changes_to(revision: AgentRevision) -> dict[str, Any]:
    """What `roster.update` needs to make an agent as it was after this revision."""
    return _changes(revision, revision.after)


def changes_to_before(revision: AgentRevision) -> dict[str, Any]:
    """What `roster.update` needs to make an agent as it was before this revision."""
    return _changes(revision, revision.before)


def _changes(revision: AgentRevision, state: dict[str, Any]) -> dict[str, Any]:
    changes = {name: value for name, value in state.items() if name in FIELDS}
    manager = state.get("reports_to")
    changes["reports_to"] = (
        Agent.objects.for_company(revision.company_id).filter(id=manager).first()
        if manager
        else None
    )
    return changes
