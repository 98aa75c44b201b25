"""What regular beats have not cost: those for which SQL found nothing to do, so that no model was
called; and the wishes to wake an agent that came to nothing, by reason.

Counted by `meters.py`, a row an agent, day and reason.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Sum

from agents.meter_models import AgentTally
from agents.models import Agent

DAYS = 30
RUNS = 20  # that make the median
# Beats that would have called a model. One while work is under way folds into what is queued.
WOULD_RUN = ("idle", "waiting")
WORDS = {
    "idle": "nothing to do",
    "waiting": "its work waits for something else",
    "under_way": "its work was under way",
    "own_change": "its own doing",
    "wake_limit": "agents had called each other too often",
    "wake_on_demand_off": "it works by its timer only",
    "agent_terminated": "it was terminated",
    "agent_pending_approval": "it was not approved yet",
    "company_archived": "the company was archived",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """So many, and why in words."""

    code: str
    count: int

    @property
    def words(self) -> str:
        return WORDS.get(self.code, self.code.replace("_", " "))


@dataclass(frozen=True, slots=True)
class Savings:
    """Of the last `DAYS` days. `worth_micros` None: nobody knows yet what a run costs."""

    saved: int = 0
    worth_micros: int | None = None
    beats: list[Reason] = field(default_factory=list)
    refused: list[Reason] = field(default_factory=list)


_MEDIAN = """
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY cost_micros)
FROM (SELECT cost_micros FROM agents_heartbeatrun
      WHERE agent_id = %(agent)s AND finished_at IS NOT NULL AND started_at IS NOT NULL
        AND unpriced_calls = 0
      ORDER BY created_at DESC, id DESC LIMIT %(runs)s) recent
"""
_COMPANY = f"""
SELECT coalesce(sum(t.count), 0)::bigint, sum(t.count * habit.median)::bigint
FROM (SELECT agent_id, sum(count) AS count FROM agents_agenttally
      WHERE company_id = %(company)s AND name = 'saved' AND reason = ANY (%(reasons)s)
        AND day > %(since)s GROUP BY agent_id) t
LEFT JOIN LATERAL ({_MEDIAN.replace("%(agent)s", "t.agent_id")}) habit (median) ON true
"""  # noqa: S608 - constants


def of_agent(*, agent: Agent, now: datetime) -> Savings:
    """Two queries."""
    counted = (
        AgentTally.objects.filter(agent=agent, day__gt=_since(now))
        .order_by()
        .values_list("name", "reason")
        .annotate(total=Sum("count"))
    )
    rows = sorted(counted, key=lambda row: (-row[2], row[1]))
    beats = [Reason(reason, total) for name, reason, total in rows if name == "saved"]
    refused = [Reason(reason, total) for name, reason, total in rows if name == "refused"]
    saved = sum(one.count for one in beats if one.code in WOULD_RUN)
    worth = None
    if saved:
        with connection.cursor() as cursor:
            cursor.execute(_MEDIAN, {"agent": agent.pk, "runs": RUNS})
            median = cursor.fetchone()[0]
        worth = None if median is None else round(saved * median)
    return Savings(saved, worth, beats, refused)


def of_company(*, company_id: uuid.UUID, now: datetime) -> Savings:
    """The sum over its agents, each by its own habit; what a run of some costs may be unknown.
    One query."""
    with connection.cursor() as cursor:
        cursor.execute(
            _COMPANY,
            {
                "company": company_id,
                "reasons": list(WOULD_RUN),
                "since": _since(now),
                "runs": RUNS,
            },
        )
        saved, worth = cursor.fetchone()
    return Savings(saved, worth)


def _since(now: datetime) -> str:
    return (now - timedelta(days=DAYS)).date().isoformat()
