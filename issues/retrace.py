"""The way back for a person who clicked wrong: an issue as it was before, if nobody has touched it
since.

A status that no transition leads back to (done to in review) is set without a question, because it
stood there a moment ago. Whoever was woken meanwhile stays woken. Work that was stopped cannot go
on where it was: what was in progress is to do again, and its agent is woken.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from agents.models import Agent
from companies.activity import Actor
from companies.errors import Conflict
from companies.models import User
from issues import board, changes, consequences, graph, marks, ownership, steps
from issues.document_models import IssueLabel, Label
from issues.models import Issue, Priority

S = Issue.Status
FIELDS = ("status", "priority", "assignee", "labels", "archived")


def snapshot(issue: Issue, names: tuple[str, ...]) -> dict[str, Any]:
    """What `restore` needs to bring these of FIELDS back, as plain JSON."""
    every: dict[str, Any] = {
        "status": lambda: {"status": issue.status, "reason": issue.blocked_reason},
        "priority": lambda: issue.priority,
        "assignee": lambda: [_id(issue.assignee_agent_id), _id(issue.assignee_user_id)],
        "labels": lambda: [str(one) for one in _labels(issue)],
        "archived": lambda: issue.archived_at is not None,
    }
    return {name: every[name]() for name in names}


@transaction.atomic
def restore(
    *, issue: Issue, before: Mapping[str, Any], version: int, actor: Actor, now: datetime
) -> Issue:
    """Bring back what `snapshot` saw. Raises Conflict when somebody has changed the issue since
    `version`, Forbidden."""
    row = graph.lock_row(issue.id)
    if row.version != version:
        raise Conflict("version_conflict", "Somebody else has changed it in the meantime.")
    ownership.check_change(issue=row, actor=actor)
    if "labels" in before:
        labels = Label.objects.for_company(row.company_id).filter(id__in=before["labels"])
        marks.set_labels(issue=row, labels=labels, actor=actor, now=now)
    if "archived" in before and not before["archived"]:
        row = board.unarchive(issue=row, actor=actor, now=now)
    change = changes.Change()
    if "priority" in before:
        was = row.get_priority_display()
        row.priority = Priority(before["priority"])
        change.note("priority", was, row.get_priority_display())
    if "assignee" in before:
        _assign(row, before["assignee"], change)
    if "status" in before:
        _step(row, before["status"], change, now)
    if not change.after:
        return row
    consequences.save(row, now, {"priority", "assignee_agent", "assignee_user"})
    consequences.record(
        row, actor=actor, action="issue.restored", now=now, details=change.details()
    )
    consequences.announce(row)
    if row.status == S.TODO and {"status", "assignee"} & change.after.keys():
        consequences.wake_assigned(row, actor=actor, now=now)
    return row


def _assign(row: Issue, ids: list[str | None], change: changes.Change) -> None:
    was = changes.name(row.assignee_agent or row.assignee_user)
    agent_id, user_id = ids
    row.assignee_agent = (
        Agent.objects.for_company(row.company_id).filter(id=agent_id).first() if agent_id else None
    )
    row.assignee_user = User.objects.filter(id=user_id).first() if user_id else None
    changes.check_people(row.company_id, row.assignee_agent, row.assignee_user)
    change.note("assignee", was, changes.name(row.assignee_agent or row.assignee_user))


def _step(row: Issue, before: Mapping[str, str], change: changes.Change, now: datetime) -> None:
    was = row.status
    to = S.TODO if before["status"] == S.IN_PROGRESS else S(before["status"])
    steps.mark(row, to, now)
    row.blocked_reason = before["reason"] if to == S.BLOCKED else ""
    change.note("status", was, row.status)


def _labels(issue: Issue) -> list[uuid.UUID]:
    return list(
        IssueLabel.objects.filter(issue=issue).order_by("id").values_list("label_id", flat=True)
    )


def _id(key: uuid.UUID | None) -> str | None:
    return str(key) if key else None
