"""Who worked when: the runs of some hours as lanes, one an agent. Reads only."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from agents.models import HeartbeatRun

HOURS = (1, 6, 24)
MOST = 600  # runs in one picture; the newest count
LANES = 24


@dataclass(frozen=True, slots=True)
class Lane:
    agent: str
    slug: str
    runs: list[HeartbeatRun]


def lanes(*, company_id: uuid.UUID, now: datetime, hours: int) -> list[Lane]:
    """The agents that worked in the last hours, the busiest first, with their runs. One query."""
    since = now - timedelta(hours=hours)
    ended = Q(finished_at__gte=since) | Q(status=HeartbeatRun.Status.RUNNING)
    found = (
        HeartbeatRun.objects.for_company(company_id)
        # Whoever ran longer than a day has been lost long before.
        .filter(ended, started_at__isnull=False, created_at__gte=since - timedelta(days=1))
        .select_related("agent", "issue")
        .only(
            *("status", "started_at", "finished_at", "code", "agent__name", "agent__slug"),
            *("issue__identifier", "issue__title"),
        )
        .order_by("-created_at", "-id")[:MOST]
    )
    by_agent: dict[uuid.UUID, list[HeartbeatRun]] = defaultdict(list)
    for run in found:
        by_agent[run.agent_id].append(run)
    rows = [Lane(runs[0].agent.name, runs[0].agent.slug, runs[::-1]) for runs in by_agent.values()]
    rows.sort(key=lambda lane: (-len(lane.runs), lane.agent))
    return rows[:LANES]
