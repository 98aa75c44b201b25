"""Who has to look at what: an agent's open issues, and what waits for the people of a company."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from agents import attempts, outcomes
from agents.connection_models import ProviderConnection
from agents.models import Agent, HeartbeatRun, Hold
from issues import questions
from issues.models import Approval, Interaction, Issue, Priority

S = Issue.Status
Run = HeartbeatRun.Status

# What an agent can act on comes first.
_ORDER = (S.IN_PROGRESS, S.TODO, S.IN_REVIEW, S.BLOCKED)
_PRIORITIES = dict(Priority.choices)
FAILED_DAYS = 7


# The agent's open issues by urgency, four times as many as are shown; of these what it can act on
# comes first. The running runs are asked for once, not issue by issue.
_INBOX = """
WITH urgent AS MATERIALIZED (
    SELECT i.id, i.identifier, i.title, i.status, i.priority, i.project_id, i.goal_id, i.parent_id,
           i.updated_at, array_position(%(order)s::text[], i.status::text) AS place
    FROM issues_issue i
    WHERE i.assignee_agent_id = %(agent_id)s AND i.company_id = %(company_id)s
      AND i.status IN ('todo', 'in_progress', 'in_review', 'blocked') AND i.archived_at IS NULL
    ORDER BY i.priority, i.id LIMIT 4 * %(limit)s::int
), shown AS MATERIALIZED (
    SELECT * FROM urgent ORDER BY place, priority, id LIMIT %(limit)s::int
), running AS MATERIALIZED (
    SELECT r.id, r.agent_id, r.issue_id FROM agents_heartbeatrun r
    WHERE r.status = 'running' AND r.issue_id = ANY (ARRAY(SELECT id FROM shown))
)
SELECT shown.id, shown.identifier, shown.title, shown.status, shown.priority, shown.project_id,
       shown.goal_id, shown.parent_id, shown.updated_at, running.id, running.agent_id,
       ARRAY(SELECT b.blocking_id FROM issues_blocker b
             JOIN issues_issue before ON before.id = b.blocking_id
             WHERE b.issue_id = shown.id AND before.status NOT IN ('done', 'cancelled')
             ORDER BY b.created_at, b.id)
FROM shown LEFT JOIN running ON running.issue_id = shown.id
ORDER BY shown.place, shown.priority, shown.id
"""


def for_agent(agent: Agent, *, limit: int = 50) -> list[dict[str, Any]]:
    """`GET /api/agents/me/inbox-lite`: the agent's open issues, what it can do first.

    One statement whatever the number. Only its own issues: nobody works on another's by accident.
    """
    values: dict[str, Any] = {
        "agent_id": agent.pk,
        "company_id": agent.company_id,
        "limit": limit,
        "order": [str(status) for status in _ORDER],
    }
    with connection.cursor() as cursor:
        cursor.execute(_INBOX, values)
        return [_row(*row) for row in cursor.fetchall()]


def _row(
    issue_id: uuid.UUID,
    identifier: str,
    title: str,
    status: str,
    priority: int,
    project_id: uuid.UUID | None,
    goal_id: uuid.UUID | None,
    parent_id: uuid.UUID | None,
    updated_at: datetime,
    run_id: uuid.UUID | None,
    agent_id: uuid.UUID | None,
    blocking: list[uuid.UUID],
) -> dict[str, Any]:
    return {
        "id": str(issue_id),
        "identifier": identifier,
        "title": title,
        "status": status,
        "priority": _PRIORITIES[priority],
        "projectId": str(project_id) if project_id else None,
        "goalId": str(goal_id) if goal_id else None,
        "parentId": str(parent_id) if parent_id else None,
        "updatedAt": updated_at.astimezone(UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z"),
        "activeRun": {"id": str(run_id), "status": str(Run.RUNNING), "agentId": str(agent_id)}
        if run_id
        else None,
        "activeRecoveryAction": None,
        "dependencyReady": not blocking,
        "unresolvedBlockerCount": len(blocking),
        "unresolvedBlockerIssueIds": [str(one) for one in blocking],
    }


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that waits for a person."""

    kind: str  # question, approval, review, failed, hold or connection
    ref: uuid.UUID  # of the interaction, approval, issue, run, hold or connection
    at: datetime
    title: str
    text: str
    issue: Issue | None = None
    agent: Agent | None = None
    interaction: Interaction | None = None
    approval: Approval | None = None
    run: HeartbeatRun | None = None
    hold: Hold | None = None
    code: str = ""

    @property
    def is_held_by_budget(self) -> bool:
        """Raising a budget lifts the hold; a person's release would not."""
        return self.kind == "hold" and self.code.endswith("_budget")


def for_operators(company_id: uuid.UUID, *, now: datetime, limit: int = 50) -> list[Item]:
    """What waits for the people of a company, the newest first, at most `limit` of each kind."""
    items = [
        *_approvals(company_id, limit),
        *_questions(company_id, limit),
        *_reviews(company_id, limit),
        *_failures(company_id, now, limit),
        *_holds(company_id, limit),
        *_connections(company_id, limit),
    ]
    return sorted(items, key=lambda item: item.at, reverse=True)


def count(company_id: uuid.UUID) -> int:
    """How many questions and reviews wait; for the badge."""
    asked = Interaction.objects.for_company(company_id).filter(status="pending").count()
    return asked + _in_review(company_id).count()


def _in_review(company_id: uuid.UUID) -> Any:
    """Issues handed to people without a question of their own."""
    return (
        Issue.objects.for_company(company_id)
        .listed()
        .filter(status=S.IN_REVIEW)
        .exclude(interactions__status=Interaction.Status.PENDING)
    )


def _approvals(company_id: uuid.UUID, limit: int) -> list[Item]:
    """What agents may not decide. One that went back for a revision waits for its agent."""
    rows = (
        Approval.objects.for_company(company_id)
        .filter(status=Approval.Status.PENDING)
        .select_related("requested_by_agent", "requested_by_user", "agent")
        .order_by("-created_at", "-id")[:limit]
    )
    return [
        Item(
            kind="approval",
            ref=row.id,
            at=row.updated_at,
            title=approval_title(row),
            text=approval_text(row),
            agent=row.requested_by_agent,
            approval=row,
        )
        for row in rows
    ]


def approval_title(approval: Approval) -> str:
    """What is asked for, in a few words."""
    asker = approval.requested_by_agent or approval.requested_by_user or "Somebody"
    if approval.type == Approval.Type.HIRE:
        name = approval.agent.name if approval.agent else approval.payload.get("name") or "somebody"
        return f"{asker} wants to hire {name}"
    return str(approval.payload.get("title") or f"{asker} asks: {approval.get_type_display()}")


def approval_text(approval: Approval) -> str:
    """The reason that was given, as far as one was."""
    for key in ("summary", "description", "reason", "plan", "text", "capabilities"):
        said = approval.payload.get(key)
        if isinstance(said, str) and said.strip():
            return said.strip()
    return f"{approval.get_type_display()}: needs a decision by a person."


def _questions(company_id: uuid.UUID, limit: int) -> list[Item]:
    rows = (
        Interaction.objects.for_company(company_id)
        .filter(status=Interaction.Status.PENDING)
        .select_related("issue", "asked_by_agent")
        .order_by("-created_at", "-id")[:limit]
    )
    return [
        Item(
            kind="question",
            ref=row.id,
            at=row.created_at,
            title=f"{row.asked_by_agent or 'An agent'} asks",
            text=questions.question(row),
            issue=row.issue,
            agent=row.asked_by_agent,
            interaction=row,
        )
        for row in rows
    ]


def _reviews(company_id: uuid.UUID, limit: int) -> list[Item]:
    rows = (
        _in_review(company_id)
        .select_related("assignee_agent")
        .order_by("-updated_at", "-id")[:limit]
    )
    return [
        Item(
            kind="review",
            ref=row.id,
            at=row.updated_at,
            title="To review",
            text=row.title,
            issue=row,
            agent=row.assignee_agent,
        )
        for row in rows
    ]


def _failures(company_id: uuid.UUID, now: datetime, limit: int) -> list[Item]:
    """The last failed run of each agent that has not succeeded since and is not tried again by
    itself."""
    last = attempts.last_failed(company_id).filter(
        created_at__gte=now - timedelta(days=FAILED_DAYS), agent__status=Agent.Status.ACTIVE
    )
    rows = (
        HeartbeatRun.objects.filter(id__in=last.exclude(agent__error_code="").values("id"))
        .exclude(attempts.repeated())
        .select_related("agent", "issue")
        .order_by("agent_id")[:limit]
    )
    return [
        Item(
            kind="failed",
            ref=row.id,
            at=row.finished_at or row.created_at,
            title=f"{row.agent.name}: {outcomes.of(row.code).title}",
            text=outcomes.advice(row.code, repeats=False),
            issue=row.issue,
            agent=row.agent,
            run=row,
            code=row.code,
        )
        for row in rows
    ]


def _holds(company_id: uuid.UUID, limit: int) -> list[Item]:
    """Holds that a machine placed; who paused an agent by hand knows it."""
    rows = (
        Hold.objects.for_company(company_id)
        .exclude(reason=Hold.Reason.OPERATOR)
        .select_related("agent")
        .order_by("-created_at", "-id")[:limit]
    )
    return [
        Item(
            kind="hold",
            ref=row.id,
            at=row.created_at,
            title=f"{row.agent.name} is on hold",
            text=row.note or row.get_reason_display(),
            agent=row.agent,
            hold=row,
            code=row.reason,
        )
        for row in rows
    ]


def _connections(company_id: uuid.UUID, limit: int) -> list[Item]:
    """Providers that nobody is asked until a person has done something: quotas used up."""
    rows = (
        ProviderConnection.objects.for_company(company_id)
        .filter(breaker=ProviderConnection.Breaker.OPEN, open_until=None, disabled_at=None)
        .order_by("-opened_at", "-id")[:limit]
    )
    return [
        Item(
            kind="connection",
            ref=row.id,
            at=row.opened_at or row.updated_at,
            title=f"{row.name}: {outcomes.of(row.open_code).title}",
            text="Top up the account, then release it under Providers. Runs wait until then.",
            code=row.open_code,
        )
        for row in rows
    ]
