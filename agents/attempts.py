"""What follows a run that did not succeed: another attempt, or nothing. Reads only.

A retry folds into what the agent has queued about the same issue (`wakes.py`), so it is looked for
by agent and issue; `retry_of` tells it from a wish that came by chance. When one follows is said
in `outcomes.py` and decided at the end of the run.
"""

from __future__ import annotations

import uuid

from django.db.models import Exists, OuterRef, QuerySet, Value
from django.db.models.functions import Coalesce

from agents import outcomes
from agents.models import Agent, HeartbeatRun

Run = HeartbeatRun.Status
FAILED = (Run.FAILED, Run.TIMED_OUT, Run.UNKNOWN)
_NOTHING = Value(uuid.UUID(int=0))

# The same for a statement; `{run}` names the table of the run that failed.
REPEATED = """
EXISTS (SELECT 1 FROM agents_heartbeatrun again
         WHERE again.agent_id = {run}.agent_id AND again.retry_of_id IS NOT NULL
           AND again.issue_id IS NOT DISTINCT FROM {run}.issue_id
           AND (again.status = 'queued' OR again.status = 'running'))
"""


def repeated() -> Exists:
    """For runs: is another attempt queued or going on?"""
    return Exists(
        HeartbeatRun.objects.live()
        .annotate(about=Coalesce("issue_id", _NOTHING))
        .filter(
            agent_id=OuterRef("agent_id"),
            retry_of__isnull=False,
            about=Coalesce(OuterRef("issue_id"), _NOTHING),
        )
    )


def following(run: HeartbeatRun) -> HeartbeatRun | None:
    """The next attempt: the one that is queued or going on, else the last that was made."""
    later = HeartbeatRun.objects.filter(agent=run.agent_id, issue=run.issue_id)
    now = later.live().filter(retry_of__isnull=False).exclude(id=run.id)
    made = later.filter(retry_of_id=run.id)
    return now.order_by("created_at", "id").first() or made.order_by("-created_at", "-id").first()


def last_failed(company_id: uuid.UUID) -> QuerySet[HeartbeatRun]:
    """The last failed run of each agent of a company."""
    return (
        HeartbeatRun.objects.for_company(company_id)
        .filter(status__in=FAILED)
        .order_by("agent_id", "-created_at", "-id")
        .distinct("agent_id")
    )


def advice(agent: Agent) -> str:
    """What people can do about the failure that stands at an agent."""
    runs = HeartbeatRun.objects.filter(agent=agent, status__in=(*FAILED, Run.LOST))
    last = runs.order_by("-created_at", "-id").values_list("code", repeated()).first()
    return outcomes.advice(agent.error_code, repeats=last == (agent.error_code, True))
