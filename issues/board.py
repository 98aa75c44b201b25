"""The board: what people (and agents over the API) do to issues and their threads.

Each verb is one transaction: it locks what it changes, writes the rows, the activity and the runs
of those it wakes. Each takes the actor and the clock. Checkouts are `work.py`'s business.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from agents.models import Agent, HeartbeatRun
from companies import live
from companies.activity import Actor
from companies.errors import Conflict, Invalid
from companies.models import Company, Goal, Project, User
from issues import changes as changing
from issues import consequences, entry, fields, graph, numbers, ownership, questions
from issues.models import Blocker, Comment, Issue

S = Issue.Status
Source = HeartbeatRun.Source

answer = questions.answer  # the third thing people do in a thread, beside commenting and closing


def create(
    *,
    company: Company,
    actor: Actor,
    now: datetime | None = None,
    title: str,
    description: str = "",
    status: str | None = None,
    priority: str | int = "medium",
    assignee_agent: Agent | None = None,
    assignee_user: User | None = None,
    project: Project | None = None,
    goal: Goal | None = None,
    parent: Issue | None = None,
    blocked_by: Iterable[Issue] = (),
    billing_code: str = "",
    wake: bool = True,
) -> Issue:
    """Put a new issue on the board and wake the agent it is for.

    Without a status it is to do when somebody is assigned (blocked, when something open blocks it)
    and in the backlog otherwise. What the parent has (project, goal, billing code) is inherited.
    Raises Invalid, NotFound (a reference of another company), Unprocessable, RateLimited.
    """
    now = now or timezone.now()
    blocking = fields.blockers(blocked_by, company.id)
    # What blocks it must not be closed meanwhile, and what an agent creates is counted; else
    # nothing is locked before its own rows.
    is_counted = ownership.is_counted(actor)
    with transaction.atomic() if blocking or is_counted else contextlib.nullcontext():
        ownership.lock_fan_out(actor)
        if blocking:
            graph.lock(company.id, "write")
            graph.refuse_gone(blocking, "blocked_by")
            blocking = list(Issue.objects.filter(id__in=[one.id for one in blocking]))
        issue = _draft(
            company=company,
            actor=actor,
            now=now,
            title=title,
            description=description,
            status=status,
            priority=priority,
            assignee_agent=assignee_agent,
            assignee_user=assignee_user,
            project=project,
            goal=goal,
            parent=parent,
            blocking=blocking,
            billing_code=billing_code,
        )
        # After all that could refuse it, and before the transaction: see `numbers.take`.
        issue.number, issue.identifier = numbers.take(company.id)
        _enter(issue, blocking, actor=actor, now=now, wake=wake)
    return issue


def _draft(
    *,
    company: Company,
    actor: Actor,
    now: datetime,
    title: str,
    description: str,
    status: str | None,
    priority: str | int,
    assignee_agent: Agent | None,
    assignee_user: User | None,
    project: Project | None,
    goal: Goal | None,
    parent: Issue | None,
    blocking: list[Issue],
    billing_code: str,
) -> Issue:
    """The new issue, checked and unwritten; it still lacks its number."""
    fields.ours(parent, company.id, "parent")
    changing.check_people(company.id, assignee_agent, assignee_user)
    ownership.check_assignee(agent=assignee_agent, actor=actor)
    ownership.check_fan_out(actor=actor, now=now)
    waits = any(one.status not in Issue.CLOSED for one in blocking)
    somebody = assignee_agent is not None or assignee_user is not None
    if status is None:
        status = (S.BLOCKED if waits else S.TODO) if somebody else S.BACKLOG
    _check_first_status(status, waits=waits)
    if parent is not None:
        project, goal = project or parent.project, goal or parent.goal
    references = {
        "assignee_agent": assignee_agent,
        "assignee_user": assignee_user,
        "project": fields.ours(project, company.id, "project"),
        "goal": fields.ours(goal, company.id, "goal"),
        "parent": parent,
    }
    return Issue(
        company=company,
        title=fields.title(title),
        description=fields.description(description),
        status=status,
        priority=fields.priority(priority),
        request_depth=ownership.request_depth(actor=actor, parent=parent),
        billing_code=fields.billing_code(billing_code) or (parent.billing_code if parent else ""),
        created_by_user_id=actor.id if actor.type == "user" else None,
        created_by_agent_id=actor.id if actor.type == "agent" else None,
        created_at=now,
        updated_at=now,
        # None is what they are anyway, and to say so costs Django a look at each.
        **{name: one for name, one in references.items() if one is not None},
    )


def _enter(issue: Issue, blocking: list[Issue], *, actor: Actor, now: datetime, wake: bool) -> None:
    """Write the issue with what belongs to it, and wake its agent. In a transaction, if anything
    blocks it."""
    details = {
        "after": {
            "status": issue.status,
            "priority": issue.get_priority_display(),
            "assignee": changing.name(issue.assignee_agent or issue.assignee_user),
            **({"parent": issue.parent.identifier} if issue.parent else {}),
            **({"blocked_by": [b.identifier for b in blocking]} if blocking else {}),
        }
    }
    is_free = issue.status == S.TODO and all(one.status in Issue.CLOSED for one in blocking)
    entry.write(issue, details=details, actor=actor, now=now, wake=wake and is_free)
    if blocking:
        Blocker.objects.bulk_create(
            [Blocker(company_id=issue.company_id, issue=issue, blocking=one) for one in blocking]
        )


@transaction.atomic
def update(
    *,
    issue: Issue,
    changes: Mapping[str, Any],
    actor: Actor,
    now: datetime | None = None,
    if_version: int | None = None,
    comment: str | None = None,
) -> Issue:
    """Change fields, the status or the assignee, with a comment if wanted; all or nothing.

    `changes` may carry title, description, status, priority, assignee_agent, assignee_user,
    project, goal, parent, blocked_by, blocked_reason, billing_code. Returns the fresh issue.
    Raises Invalid (with the field), Unprocessable (with the allowed statuses), Conflict (another
    version, another agent's issue), Forbidden (a person's issue), NotFound.
    """
    now = now or timezone.now()
    wish = changing.clean(changes, issue.company_id)
    closing = wish.get("status") in Issue.CLOSED
    if wish.keys() & {"blocked_by", "parent"}:
        graph.lock(issue.company_id, "write")
        graph.refuse_gone(wish.get("blocked_by") or (), "blocked_by")
        graph.refuse_gone([wish["parent"]] if wish.get("parent") else (), "parent")
    elif closing:
        graph.lock(issue.company_id, "read")
    rows = {issue.id} | (graph.neighbours(issue) if closing else set())
    locked = graph.lock_rows(rows | ({wish["parent"].id} if wish.get("parent") else set()))
    row = locked.pop(issue.id, None) or graph.lock_row(issue.id)
    graph.refuse_version(row, if_version)
    if wish:
        ownership.check_change(issue=row, actor=actor)
    posted = _post(row, comment, actor=actor, now=now) if comment is not None else None
    change = changing.apply(row, wish, actor=actor, now=now, has_comment=posted is not None)
    if change.after:
        consequences.save(row, now, wish.keys() - {"blocked_by"})
        consequences.record(
            row, actor=actor, action="issue.updated", now=now, details=change.details()
        )
        consequences.announce(row)
    _follow(row, change, posted, actor=actor, now=now, locked=locked)
    return row


@transaction.atomic
def comment(
    *,
    issue: Issue,
    body: str,
    actor: Actor,
    now: datetime | None = None,
    wake: bool = True,
    reopen: bool = False,
) -> Comment:
    """Add to the thread; wakes the assignee and whom the text calls by name, never the author.

    `reopen` puts a closed issue back on to do. A run's comment carries the run of its actor.
    """
    now = now or timezone.now()
    row = graph.lock_row(issue.id)
    reopened = reopen and row.status in Issue.CLOSED
    posted = _post(row, body, actor=actor, now=now)
    change = changing.Change()
    if reopened:
        ownership.check_change(issue=row, actor=actor)
        change = changing.apply(row, {"status": S.TODO}, actor=actor, now=now, has_comment=True)
        consequences.save(row, now)
        consequences.record(
            row, actor=actor, action="issue.reopened", now=now, details=change.details()
        )
    else:
        Issue.objects.filter(id=row.id).update(updated_at=now)
    consequences.announce(row)
    if wake:
        _follow(row, change, posted, actor=actor, now=now, locked={})
    return posted


def set_blockers(
    *, issue: Issue, blocked_by: Iterable[Issue], actor: Actor, now: datetime | None = None
) -> Issue:
    """Replace what blocks an issue. Circles are refused with the way round."""
    return update(issue=issue, changes={"blocked_by": list(blocked_by)}, actor=actor, now=now)


def archive(*, issue: Issue, actor: Actor, now: datetime | None = None) -> Issue:
    """Take an issue off the lists. It must be closed, so that nothing runs out of sight."""
    return _set_archived(issue, True, actor, now or timezone.now())


def unarchive(*, issue: Issue, actor: Actor, now: datetime | None = None) -> Issue:
    """Put it back on the lists."""
    return _set_archived(issue, False, actor, now or timezone.now())


@transaction.atomic
def _set_archived(issue: Issue, archived: bool, actor: Actor, now: datetime) -> Issue:
    row = graph.lock_row(issue.id)
    ownership.check_change(issue=row, actor=actor)
    if archived == (row.archived_at is not None):
        return row
    if archived and row.status not in Issue.CLOSED:
        raise Conflict(
            "issue_open",
            "Close the issue before you archive it.",
            details={"status": row.status},
        )
    row.archived_at = now if archived else None
    consequences.save(row, now, {"archived_at"})
    action = "issue.archived" if archived else "issue.unarchived"
    consequences.record(row, actor=actor, action=action, now=now)
    consequences.announce(row)
    return row


def _follow(
    row: Issue,
    change: changing.Change,
    posted: Comment | None,
    *,
    actor: Actor,
    now: datetime,
    locked: dict[Any, Issue],
) -> None:
    """Carry the change to everybody it concerns."""
    if change.reassigned:
        old_id = change.old_agent.id if change.old_agent else None
        consequences.reassigned(row, old_agent_id=old_id, actor=actor, now=now)
    stepped = bool(change.old_status) and change.old_status != row.status
    if stepped and row.status in Issue.CLOSED:
        consequences.closed(row, actor=actor, now=now, locked=locked)
    elif stepped and change.old_status == S.IN_PROGRESS:
        consequences.release_checkouts(row, reason=row.status, now=now)
    quiet = posted is not None and consequences.talk_is_paused(row, actor, now)
    called = set()
    if posted is not None and not quiet:
        called = consequences.wake_mentioned(posted, row, actor=actor, now=now)
    reason, source = _wake_reason(row, change, stepped, posted, quiet)
    if reason and row.assignee_agent_id not in (None, *called):
        consequences.wake_assignee(
            row,
            reason=reason,
            source=source,
            actor=actor,
            now=now,
            comment_ids=[posted.id] if posted else [],
        )


def _wake_reason(
    row: Issue, change: changing.Change, stepped: bool, posted: Comment | None, quiet: bool
) -> tuple[str, str]:
    """Why the assignee should hear of it; empty when there is nothing to do for it."""
    if change.reassigned and row.status != S.BLOCKED:
        return "issue_assigned", Source.ASSIGNMENT
    if change.unblocked:
        return "issue_blockers_resolved", Source.AUTOMATION
    if stepped and row.status == S.TODO:
        if change.old_status in Issue.CLOSED:
            return "issue_reopened_via_comment", Source.AUTOMATION
        return "issue_status_changed", Source.AUTOMATION
    if posted is not None and not quiet:
        return "issue_commented", Source.AUTOMATION
    return "", ""


def _post(row: Issue, body: str, *, actor: Actor, now: datetime) -> Comment:
    posted = Comment.objects.create(
        company_id=row.company_id,
        issue=row,
        author_user_id=actor.id if actor.type == "user" else None,
        author_agent_id=actor.id if actor.type == "agent" else None,
        run_id=actor.run_id,
        body=fields.body(body),
        created_at=now,
    )
    consequences.record(
        row,
        actor=actor,
        action="issue.commented",
        now=now,
        details={"commentId": str(posted.id), "excerpt": changing.short(posted.body)},
    )
    live.publish(row.company_id, "issue", row.id)
    return posted


def _check_first_status(status: str, *, waits: bool) -> None:
    """A new issue starts at the left of the board."""
    fields.status(status)
    if status == S.BLOCKED and waits:
        return
    if status not in (S.BACKLOG, S.TODO):
        raise Invalid(
            "invalid_status",
            "A new issue is in the backlog or to do; blocked, when an open issue blocks it.",
            field="status",
            details={"allowed": [S.BACKLOG, S.TODO]},
        )
