"""One change of an issue: cleaned, checked and set on the locked row, with before and after.

`board.update` is the caller; what the change means for others is `consequences.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agents.models import Agent
from companies.activity import Actor
from companies.errors import Invalid
from companies.models import Membership, User
from issues import fields, graph, ownership, steps
from issues.models import Blocker, Issue

S = Issue.Status


class Change:
    """What an update did: values before and after by field, and what it means for others."""

    def __init__(self) -> None:
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}
        self.overridden: list[str] = []
        self.old_status: str | None = None
        self.old_agent: Agent | None = None
        self.reassigned = False
        self.unblocked = False

    def note(self, field: str, before: Any, after: Any) -> None:
        if before != after:
            self.before.setdefault(field, before)
            self.after[field] = after

    def details(self) -> dict[str, Any]:
        extra = {"overridden": self.overridden} if self.overridden else {}
        return {"before": self.before, "after": self.after, **extra}


_CLEAN = {
    "title": fields.title,
    "description": fields.description,
    "status": fields.status,
    "priority": fields.priority,
    "billing_code": fields.billing_code,
    "blocked_reason": fields.blocked_reason,
}
_REFERENCES = ("assignee_agent", "assignee_user", "project", "goal", "parent", "blocked_by")


def clean(changes: Mapping[str, Any], company_id: uuid.UUID) -> dict[str, Any]:
    """The changes with clean values; a new assignee of one kind ends that of the other."""
    unknown = changes.keys() - _CLEAN.keys() - set(_REFERENCES)
    if unknown:
        raise Invalid(
            "unknown_field", f"{min(unknown)} is not a field of an issue.", field=min(unknown)
        )
    wish: dict[str, Any] = {
        field: _CLEAN[field](value) if field in _CLEAN else value
        for field, value in changes.items()
    }
    for field in ("project", "goal", "parent"):
        fields.ours(wish.get(field), company_id, field)
    if "blocked_by" in wish:
        wish["blocked_by"] = fields.blockers(wish["blocked_by"] or (), company_id)
    check_people(company_id, wish.get("assignee_agent"), wish.get("assignee_user"))
    if wish.get("assignee_agent") is not None:
        wish["assignee_user"] = None
    elif wish.get("assignee_user") is not None:
        wish["assignee_agent"] = None
    return wish


def apply(
    row: Issue, wish: Mapping[str, Any], *, actor: Actor, now: datetime, has_comment: bool
) -> Change:
    """Set the wish on the locked row (unsaved; blockers are written)."""
    change = Change()
    change.old_status, change.old_agent = row.status, row.assignee_agent
    for field in ("title", "billing_code", "blocked_reason"):
        if field in wish:
            change.note(field, getattr(row, field), wish[field])
            setattr(row, field, wish[field])
    if "description" in wish and wish["description"] != row.description:
        change.note("description", short(row.description), short(wish["description"]))
        change.after.setdefault("description", short(wish["description"]))
        row.description = wish["description"]
    if "priority" in wish:
        before = row.get_priority_display()
        row.priority = wish["priority"]
        change.note("priority", before, row.get_priority_display())
    for field in ("project", "goal"):
        if field in wish:
            change.note(field, name(getattr(row, field)), name(wish[field]))
            setattr(row, field, wish[field])
    if "parent" in wish:
        _set_parent(row, wish["parent"], change)
    _assign(row, wish, change, actor=actor)
    if "blocked_by" in wish:
        _set_blockers(row, wish["blocked_by"], change)
    to = wish.get("status", row.status)
    change.overridden = steps.take(row=row, to=to, actor=actor, now=now, has_comment=has_comment)
    if "status" not in wish:
        _settle(row, change, now)
    if row.status != S.BLOCKED:
        row.blocked_reason = ""
    change.note("status", change.old_status, row.status)
    return change


def _assign(row: Issue, wish: Mapping[str, Any], change: Change, *, actor: Actor) -> None:
    if not wish.keys() & {"assignee_agent", "assignee_user"}:
        return
    before = row.assignee_agent or row.assignee_user
    agent = wish.get("assignee_agent", row.assignee_agent)
    user = wish.get("assignee_user", row.assignee_user)
    after = agent or user
    if before == after:
        return
    ownership.check_assignee(agent=agent, actor=actor)
    row.assignee_agent, row.assignee_user = agent, user
    change.reassigned = True
    change.note("assignee", name(before), name(after))


def _set_parent(row: Issue, parent: Issue | None, change: Change) -> None:
    if parent is not None and parent.id != row.parent_id:
        graph.refuse_parent_circle(row, parent)
    before = row.parent.identifier if row.parent else None
    change.note("parent", before, parent.identifier if parent else None)
    row.parent = parent


def _set_blockers(row: Issue, blocking: list[Issue], change: Change) -> None:
    before = {issue.id: issue.identifier for issue in row.blocked_by.order_by("number")}
    after = {issue.id: issue.identifier for issue in blocking}
    graph.refuse_blocker_circle(row, [one for one in blocking if one.id not in before])
    waited = bool(graph.open_blockers(row.id))
    Blocker.objects.filter(issue=row, blocking_id__in=before.keys() - after.keys()).delete()
    Blocker.objects.bulk_create(
        [
            Blocker(company_id=row.company_id, issue=row, blocking_id=one)
            for one in after
            if one not in before
        ]
    )
    change.unblocked = waited and not graph.open_blockers(row.id)
    change.note("blocked_by", list(before.values()), list(after.values()))


def _settle(row: Issue, change: Change, now: datetime) -> None:
    """The status that a change of blockers or of the assignee brings by itself."""
    waits = "blocked_by" in change.after and bool(graph.open_blockers(row.id))
    if row.status == S.IN_PROGRESS and waits:
        steps.mark(row, S.BLOCKED, now)
    elif row.status == S.IN_PROGRESS and change.reassigned and row.assignee_user_id is None:
        steps.mark(row, S.TODO, now)  # the new one has not checked it out
    elif row.status == S.BLOCKED and change.unblocked and not row.blocked_reason:
        steps.mark(row, S.TODO, now)


def check_people(company_id: uuid.UUID, agent: Agent | None, user: User | None) -> None:
    fields.ours(agent, company_id, "assignee_agent")
    if agent is not None and user is not None:
        raise Invalid(
            "two_assignees", "Assign an agent or a person, not both.", field="assignee_user"
        )
    if (
        user is not None
        and not Membership.objects.filter(company_id=company_id, user=user).exists()
    ):
        raise Invalid("not_a_member", "This person is no member.", field="assignee_user")


def name(thing: Any) -> str | None:
    return str(thing) if thing is not None else None


def short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
