"""How a new issue comes into the database: one statement, with its activity and the run it wakes.

A statement alone is a transaction, so that a new issue takes two ways to the server: one for its
number, one for this.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from agents import wakes
from agents.models import HeartbeatRun
from companies import activity, live, rows
from companies.activity import Actor
from issues import consequences
from issues.models import Issue


def write(
    issue: Issue, *, details: dict[str, Any], actor: Actor, now: datetime, wake: bool
) -> None:
    """Write the issue and its activity; with `wake` also the wish for its agent.

    An agent that gives itself work is woken as well (`request_depth` and the fan-out limit bound
    it): without a timer it would never come back to it.
    """
    agent = issue.assignee_agent if wake else None
    noted = consequences.entry(issue, actor=actor, action="issue.created", now=now, details=details)
    values = {**rows.values(issue), "activity": activity.as_json([noted])}
    if agent is not None:
        own = actor.type == "agent" and actor.id == agent.pk
        values |= wakes.about_new(
            agent=agent,
            issue=issue,
            reason="issue_assigned",
            source=HeartbeatRun.Source.ASSIGNMENT,
            actor=activity.SYSTEM if own else actor,
            now=now,
        )
    ((run_id,),) = rows.ask(_statement(is_woken=agent is not None), values)
    rows.inserted(issue)
    topics = [("activity", None), ("issues", None), ("issue", issue.id)]
    if agent is not None and wakes.wished(agent=agent, run_id=run_id).created:
        topics.append(("runs", None))
    live.publish_all((issue.company_id, topic, entity_id) for topic, entity_id in topics)


def _statement(*, is_woken: bool) -> str:
    run = f", run AS ({wakes.WISH})" if is_woken else ""
    return f"""
        WITH issue AS ({rows.insertion(Issue)}), noted AS ({activity.NOTE}){run}
        SELECT {"(SELECT id FROM run)" if is_woken else "NULL"}
    """  # noqa: S608
