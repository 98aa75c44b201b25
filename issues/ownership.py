"""Whose issue is it? What one agent may do to an issue that is another's, or a person's.

People may change every issue of their company (`companies.access` has checked the role). Agents
may change what is theirs, what nobody has, what they asked for, and what their reports work on.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db import connection

from agents.models import Agent, HeartbeatRun, Hold
from companies import rows
from companies.activity import Actor
from companies.errors import Conflict, Forbidden, RateLimited
from issues import transitions
from issues.models import Checkout, Issue

MAX_REQUEST_DEPTH = 10  # agents asking agents asking agents …
MAX_CHILDREN_A_RUN = 50
ORG_LEVELS = 50


def check_change(*, issue: Issue, actor: Actor) -> None:
    """Let pass or raise, for a change of an issue's fields (comments are always free)."""
    if actor.type != "agent":
        return
    if issue.assignee_user_id is not None and issue.created_by_agent_id != actor.id:
        raise Forbidden(
            "persons_issue",
            "This issue belongs to a person. Comment on it instead.",
            details={"issueId": str(issue.id)},
        )
    if issue.assignee_agent_id in (None, actor.id) or issue.created_by_agent_id == actor.id:
        return
    if not is_above(actor.id, issue.assignee_agent_id):
        raise conflict(issue, "not_the_assignee", "Another agent works on this issue.")


def check_assignee(*, agent: Agent | None, actor: Actor) -> None:
    """Let pass or raise: may this agent be given work by this actor?"""
    if agent is None:
        return
    if agent.status != Agent.Status.ACTIVE:
        raise transitions.Unprocessable(
            "assignee_not_active",
            f"{agent.name} does not work here ({transitions.word(agent.status)}).",
            field="assignee_agent",
            details={"agentId": str(agent.id), "agentStatus": agent.status},
        )
    if actor.type != "agent" or actor.id == agent.id:
        return
    held = Hold.objects.filter(agent=agent).values_list("reason", flat=True).first()
    if held is not None:
        raise Conflict(
            "assignee_paused",
            f"{agent.name} is paused ({held}). Choose another agent or ask a person.",
            field="assignee_agent",
            details={"agentId": str(agent.id), "reason": held, "alternatives": _others(agent)},
        )


def _others(agent: Agent) -> list[dict[str, str]]:
    others = (
        Agent.objects.for_company(agent.company_id)
        .filter(status=Agent.Status.ACTIVE, holds=None)
        .order_by("created_at", "id")[:5]
    )
    return [{"agentId": str(one.id), "name": one.name} for one in others]


def request_depth(*, actor: Actor, parent: Issue | None) -> int:
    """How many agents in a row have asked for the new issue. Raises when there are too many."""
    depth = parent.request_depth if parent else 0
    if actor.type != "agent":
        return depth
    if actor.run_id is not None:
        run = HeartbeatRun.objects.select_related("issue").filter(id=actor.run_id).first()
        if run is not None and run.issue is not None:
            depth = max(depth, run.issue.request_depth)
    if depth + 1 > MAX_REQUEST_DEPTH:
        raise transitions.Unprocessable(
            "request_too_deep",
            f"Agents may pass work on {MAX_REQUEST_DEPTH} times. Ask a person instead.",
            field="parent",
        )
    return depth + 1


def lock_fan_out(actor: Actor) -> None:
    """What an agent creates is counted one at a time until the transaction ends; before the graph's
    lock and any row's."""
    if is_counted(actor):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_advisory_xact_lock(hashtext('issues.fan_out'), hashtext(%s))",
                [str(actor.id)],
            )


def is_counted(actor: Actor) -> bool:
    """Is there a limit to what this actor creates?"""
    return actor.type == "agent" and actor.id is not None


def check_fan_out(*, actor: Actor, now: datetime) -> None:
    """Raise RateLimited when an agent's run (or its last hour) has created enough issues. Under
    `lock_fan_out`, else its runs count past each other."""
    if actor.type != "agent" or actor.id is None:
        return
    since = now - timedelta(hours=1)
    if actor.run_id is not None:
        run = HeartbeatRun.objects.filter(id=actor.run_id).first()
        since = (run.started_at if run else None) or since
    made = Issue.objects.filter(created_by_agent_id=actor.id, created_at__gte=since).count()
    if made >= MAX_CHILDREN_A_RUN:
        raise RateLimited(
            f"An agent may create {MAX_CHILDREN_A_RUN} issues in one run.",
            retry_after=3600,
            code="too_many_issues",
        )


def is_above(manager_id: uuid.UUID | None, agent_id: uuid.UUID | None) -> bool:
    """Does `agent_id` report to `manager_id`, directly or not?"""
    current: uuid.UUID | None = agent_id
    for _ in range(ORG_LEVELS if manager_id is not None else 0):
        if current is None:
            return False
        current = Agent.objects.filter(id=current).values_list("reports_to", flat=True).first()
        if current == manager_id:
            return True
    return False


def holder(issue_id: uuid.UUID) -> Checkout | None:
    """The live checkout of an issue, with its agent and run."""
    statement = (
        f"SELECT {rows.columns(Checkout, 'c')}, {rows.columns(Agent, 'a')},"  # noqa: S608
        f" {rows.columns(HeartbeatRun, 'r')} FROM issues_checkout c"
        " JOIN agents_agent a ON a.id = c.agent_id"
        " LEFT JOIN agents_heartbeatrun r ON r.id = c.run_id"
        " WHERE c.issue_id = %(id)s AND c.released_at IS NULL"
    )
    found = rows.fetch(statement, {"id": issue_id}, Checkout, Agent, HeartbeatRun)
    if not found:
        return None
    held: Checkout
    held, held.agent, held.run = found[0]
    return held


@functools.cache
def _seen_by(key: Literal["id", "identifier"]) -> str:
    return (
        f"SELECT {rows.columns(Issue, 'i')}, {rows.columns(Checkout, 'c')}, r.id, r.status"  # noqa: S608
        " FROM issues_issue i"
        " LEFT JOIN issues_checkout c ON c.issue_id = i.id AND c.released_at IS NULL"
        " LEFT JOIN agents_heartbeatrun r ON r.id = c.run_id"
        f" WHERE i.{key} = %(wanted)s AND i.company_id = ANY (%(companies)s)"
    )


def look(
    key: Literal["id", "identifier"], wanted: uuid.UUID | str, companies: Sequence[uuid.UUID]
) -> tuple[Issue, Checkout | None] | None:
    """An issue of these companies and its live checkout, as they are at one moment. Of the
    checkout's run only the status is read."""
    values = {"wanted": wanted, "companies": list(companies)}
    found = rows.fetch(_seen_by(key), values, Issue, Checkout)
    if not found:
        return None
    issue, held, run_id, status = found[0]
    if held is not None:
        held.run = run_id and HeartbeatRun.from_db(None, ["id", "status"], [run_id, status])
    return issue, held


def conflict(
    issue: Issue, code: str, message: str, *, known: Sequence[Checkout | None] = (), **details: Any
) -> Conflict:
    """A 409 that tells who has the issue and whether that one is alive. `known`: its live
    checkout, or None, when the caller has just read it."""
    held = known[0] if known else holder(issue.id)
    run = held.run if held else None
    return Conflict(
        code,
        message,
        details={
            "issueId": str(issue.id),
            "identifier": issue.identifier,
            "status": issue.status,
            "assigneeAgentId": _text(issue.assignee_agent_id),
            "assigneeUserId": _text(issue.assignee_user_id),
            "checkoutAgentId": _text(held.agent_id if held else None),
            "checkoutRunId": _text(held.run_id if held else None),
            "executionRunId": _text(held.run_id if held else None),
            "holderRunId": _text(held.run_id if held else None),
            "holderRunStatus": run.status if run else None,
            "holderLive": bool(held and (run is None or run.status in HeartbeatRun.LIVE)),
            "hint": "Do not repeat this call; take another issue from your inbox.",
            **details,
        },
    )


def _text(value: uuid.UUID | None) -> str | None:
    return str(value) if value else None
