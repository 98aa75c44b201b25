"""Sessions that runs leave behind, so that the next run on the same issue can go on with them."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import transaction

from agents.models import Agent, HeartbeatRun
from companies import activity


@transaction.atomic
def forget(
    *, agent: Agent, issue_id: uuid.UUID | None = None, actor: activity.Actor, now: datetime
) -> int:
    """Let the agent's next run (on this issue, or on any) begin afresh; returns how many sessions
    were forgotten. A run that is going keeps its own."""
    rows = HeartbeatRun.objects.for_company(agent.company_id).filter(agent=agent)
    rows = rows.exclude(status=HeartbeatRun.Status.RUNNING)
    if issue_id is not None:
        rows = rows.filter(issue_id=issue_id)
    count = rows.exclude(session={}).update(session={})
    activity.record(
        company_id=agent.company_id,
        actor=actor,
        action="agent.session_reset",
        entity_type="agent",
        entity_id=agent.pk,
        entity_name=agent.name,
        details={"sessions": count, "issueId": str(issue_id) if issue_id else None},
        now=now,
    )
    return count
