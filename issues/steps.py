"""One step of an issue's status, on a locked row: are its conditions met, and which moments and
reasons follow. The caller saves the row and sees to the consequences (`consequences.py`)."""

from __future__ import annotations

from datetime import datetime

from companies.activity import Actor
from companies.models import Membership
from issues import graph, transitions
from issues.models import Checkout, Interaction, Issue

S = Issue.Status


def take(
    *, row: Issue, to: str, actor: Actor, now: datetime, has_comment: bool = False
) -> list[str]:
    """Set the status of a locked row (unsaved). Returns what was overridden, for the activity.

    The row's assignee and blocked reason are those after the change. Raises
    `transitions.Unprocessable` with the steps that are open.
    """
    if row.status == to:
        return []
    person = actor.type != "agent"
    transitions.check(issue=row, to=to, person=person)
    overridden: list[str] = []
    if to == S.IN_PROGRESS:
        _check_in_progress(row, person=person)
    elif to == S.BLOCKED:
        _check_blocked(row, person=person)
    elif to == S.IN_REVIEW and not person:
        _check_review(row)
    elif to == S.DONE:
        overridden = _check_done(row, person=person)
    elif row.status in Issue.CLOSED and not has_comment:
        raise transitions.refusal(
            row, to, "reopen_needs_comment", "Say in a comment why the issue is open again.",
            person=person,
        )  # fmt: skip
    mark(row, to, now)
    return overridden


def mark(row: Issue, to: str, now: datetime) -> None:
    """Set the status and what always goes with it, without a question."""
    if to == S.IN_PROGRESS and row.started_at is None:
        row.started_at = now
    if to != S.BLOCKED:
        row.blocked_reason = ""
    row.completed_at = now if to == S.DONE else None
    row.cancelled_at = now if to == S.CANCELLED else None
    row.status = to


def _check_in_progress(row: Issue, *, person: bool) -> None:
    if row.assignee_agent_id is None and row.assignee_user_id is None:
        raise transitions.refusal(
            row, S.IN_PROGRESS, "assignee_needed", "Assign the issue to somebody first.",
            person=person,
        )  # fmt: skip
    refuse_blocked(row, S.IN_PROGRESS, person=person)
    if (
        row.assignee_agent_id is not None
        and not Checkout.objects.filter(
            issue=row, agent_id=row.assignee_agent_id, released_at=None
        ).exists()
    ):
        raise transitions.refusal(
            row,
            S.IN_PROGRESS,
            "checkout_needed",
            "An agent's issue is in progress while the agent has it checked out. Put it on"
            " to do and the agent is woken.",
            person=person,
        )


def refuse_blocked(row: Issue, to: str, *, person: bool) -> None:
    """Raise when another issue still blocks this one."""
    blocking = graph.open_blockers(row.id)
    if blocking:
        names = [issue.identifier for issue in blocking]
        raise transitions.refusal(
            row,
            to,
            "open_blockers",
            f"{row.identifier} is blocked by {', '.join(names[:5])}.",
            person=person,
            blockedBy=names,
        )


def _check_blocked(row: Issue, *, person: bool) -> None:
    if not row.blocked_reason and not graph.open_blockers(row.id):
        raise transitions.refusal(
            row,
            S.BLOCKED,
            "blocker_needed",
            "Name the issue that blocks this one, or say who must do what.",
            person=person,
        )


def _check_review(row: Issue) -> None:
    """An agent hands its work to somebody who exists."""
    if Interaction.objects.filter(issue=row, status=Interaction.Status.PENDING).exists():
        return
    if (
        row.created_by_user_id is None
        and not Membership.objects.filter(
            company_id=row.company_id, role=Membership.Role.OWNER
        ).exists()
    ):
        raise transitions.refusal(
            row, S.IN_REVIEW, "reviewer_needed", "Nobody is there to review this issue."
        )


def _check_done(row: Issue, *, person: bool) -> list[str]:
    if person:
        return ["open_blockers"] if graph.open_blockers(row.id) else []
    refuse_blocked(row, S.DONE, person=person)
    return []
