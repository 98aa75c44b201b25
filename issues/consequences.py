"""What follows from a change of an issue for others: who is woken, whose runs end, who is freed.

Called by the verbs of `board.py` and `work.py`, in their transaction, after the rows are written.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from django.db import connection

from agents import runs, wakes
from agents.models import Agent, HeartbeatRun
from companies import activity, live, rows
from companies.activity import Actor
from issues import graph, mentions, steps
from issues.models import Checkout, Comment, Interaction, Issue

S = Issue.Status
Source = HeartbeatRun.Source

WAITS_FOR_CHILDREN = "Waits for its sub-issues."
MAX_HOPS = 6  # wakes by agents' comments in a row, before a person must say something
COMMENT_REASONS = ("issue_commented", "issue_comment_mentioned")
PAUSE_TALK = (
    f"The agents have called each other {MAX_HOPS} times here without a person. Nobody is woken by"
    " their comments any more until a person writes."
)


def announce(issue: Issue) -> None:
    """Tell the pages that show this issue."""
    live.publish(issue.company_id, "issues")
    live.publish(issue.company_id, "issue", issue.id)


def record(
    issue: Issue, *, actor: Actor, action: str, now: datetime, details: dict[str, Any] | None = None
) -> None:
    """Write the activity row of a change of an issue."""
    activity.record(**_about(issue), actor=actor, action=action, now=now, details=details)


def entry(
    issue: Issue, *, actor: Actor, action: str, now: datetime, details: dict[str, Any] | None = None
) -> activity.Row:
    """The same row, for a statement that writes it."""
    return activity.entry(**_about(issue), actor=actor, action=action, now=now, details=details)


def _about(issue: Issue) -> dict[str, Any]:
    return {
        "company_id": issue.company_id,
        "entity_type": "issue",
        "entity_id": issue.id,
        "entity_name": f"{issue.identifier} {issue.title}",
    }


def wake_assignee(
    issue: Issue,
    *,
    reason: str,
    source: str,
    actor: Actor,
    now: datetime,
    comment_ids: Iterable[uuid.UUID] = (),
    payload: dict[str, Any] | None = None,
    is_free: bool = False,
) -> bool:
    """Wake the agent whose issue this is, if it can do something about it. True when woken.

    Nobody is woken about what is closed or not planned yet. What an open issue blocks wakes for
    an answer only; the change that opens the way wakes again. `is_free`: the caller knows that
    nothing blocks it.
    """
    agent = issue.assignee_agent
    if agent is None or issue.status in (*Issue.CLOSED, S.BACKLOG):
        return False
    if not is_free and reason not in wakes.ANSWERING and graph.open_blockers(issue.id):
        return False
    woken = runs.wake(
        agent=agent,
        issue=issue,
        reason=reason,
        source=source,
        actor=actor,
        now=now,
        priority=issue.priority,
        comment_ids=tuple(comment_ids),
        payload=payload,
    )
    return woken.run_id is not None


def wake_assigned(issue: Issue, *, actor: Actor, now: datetime) -> bool:
    """Wake the agent that a new issue is for.

    One that gives itself work is woken as well (`request_depth` and the fan-out limit bound it):
    without a timer it would never come back to it.
    """
    own = actor.type == "agent" and actor.id == issue.assignee_agent_id
    return wake_assignee(
        issue,
        reason="issue_assigned",
        source=Source.ASSIGNMENT,
        actor=activity.SYSTEM if own else actor,
        now=now,
        is_free=True,
    )


def wake_mentioned(
    comment: Comment, issue: Issue, *, actor: Actor, now: datetime
) -> set[uuid.UUID]:
    """Wake whom the comment calls by name; never its author. Returns the agents called."""
    called: set[uuid.UUID] = set()
    for agent in mentions.find(comment.body, issue.company_id):
        if agent.id != comment.author_agent_id:
            runs.wake(
                agent=agent,
                issue=issue,
                reason="issue_comment_mentioned",
                source=Source.AUTOMATION,
                actor=actor,
                now=now,
                priority=issue.priority,
                comment_ids=(comment.id,),
            )
            called.add(agent.id)
    return called


def talk_is_paused(issue: Issue, actor: Actor, now: datetime) -> bool:
    """True when agents have woken each other by comments too often without a person in between.

    Says so once in the thread, so that a person sees it.
    """
    if actor.type != "agent":
        return False
    last_word = (
        Comment.objects.filter(issue=issue, author_user__isnull=False)
        .order_by("-created_at", "-id")
        .values_list("created_at", flat=True)
        .first()
    )
    hops = HeartbeatRun.objects.filter(issue=issue, reason__in=COMMENT_REASONS)
    said = Comment.objects.filter(issue=issue, body=PAUSE_TALK)
    if last_word is not None:
        hops, said = hops.filter(created_at__gt=last_word), said.filter(created_at__gt=last_word)
    if hops.count() < MAX_HOPS:
        return False
    if not said.exists():
        Comment.objects.create(
            company_id=issue.company_id, issue=issue, body=PAUSE_TALK, created_at=now
        )
        live.publish(issue.company_id, "inbox")
    return True


def release_checkouts(
    issue: Issue, *, reason: str, now: datetime, agent_id: uuid.UUID | None = None
) -> int:
    """Close the live checkout of an issue (of one agent only, when given). Returns how many."""
    held = Checkout.objects.filter(issue=issue, released_at=None)
    if agent_id is not None:
        held = held.filter(agent_id=agent_id)
    return held.update(released_at=now, release_reason=reason[:40])


def cancel_runs(
    issue: Issue,
    *,
    actor: Actor,
    reason: str,
    now: datetime,
    of_agent: uuid.UUID | None = None,
) -> int:
    """End the live runs of an issue, except the one that is acting itself. Returns how many."""
    doomed = HeartbeatRun.objects.live().filter(issue=issue).select_related("agent")
    if of_agent is not None:
        doomed = doomed.filter(agent_id=of_agent)
    if actor.run_id is not None:
        doomed = doomed.exclude(id=actor.run_id)
    if actor.type != "user":
        # What people have asked meanwhile is still answered.
        doomed = doomed.exclude(status=HeartbeatRun.Status.QUEUED, reason__in=wakes.ANSWERING)
    ended = 0
    for run in doomed.order_by("id"):
        runs.cancel(run=run, actor=actor, reason=reason, now=now)
        ended += 1
    return ended


def reassigned(
    issue: Issue, *, old_agent_id: uuid.UUID | None, actor: Actor, now: datetime
) -> None:
    """The old agent stops working on it and loses its checkout."""
    if old_agent_id is None:
        return
    release_checkouts(issue, reason="reassigned", now=now, agent_id=old_agent_id)
    cancel_runs(issue, actor=actor, reason="reassigned", now=now, of_agent=old_agent_id)


# What may be left to end at a closed issue; mostly nothing.
_LEFT = """
SELECT EXISTS (SELECT 1 FROM issues_checkout WHERE issue_id = %(id)s AND released_at IS NULL),
       EXISTS (SELECT 1 FROM agents_heartbeatrun WHERE issue_id = %(id)s AND status = 'queued')
    OR EXISTS (SELECT 1 FROM agents_heartbeatrun WHERE issue_id = %(id)s AND status = 'running'
               AND id IS DISTINCT FROM %(own)s),
       EXISTS (SELECT 1 FROM issues_interaction WHERE issue_id = %(id)s AND status = 'pending')
"""


def closed(
    issue: Issue,
    *,
    actor: Actor,
    now: datetime,
    locked: dict[uuid.UUID, Issue],
    left: tuple[bool, bool, bool] | None = None,
) -> None:
    """Nothing is left to do here; who waited may go on. `locked` holds the rows of those. `left`:
    whether somebody holds it, runs are there and something is asked, if the caller knows."""
    is_held, is_run, is_asked = left or _left(issue, actor)
    if is_held:
        release_checkouts(issue, reason=issue.status, now=now)
    if is_run:
        cancel_runs(issue, actor=actor, reason=f"issue_{issue.status}", now=now)
    if is_asked:
        asked = Interaction.objects.filter(issue=issue, status=Interaction.Status.PENDING)
        asked.update(status=Interaction.Status.CANCELLED, answered_at=now)
        live.publish(issue.company_id, "inbox")
    for issue_id in sorted(graph.freed(issue) & locked.keys() if locked else ()):
        _free(locked[issue_id], by=issue, actor=actor, now=now)
    if issue.parent_id in locked:
        _child_closed(locked[issue.parent_id], actor=actor, now=now)


def _left(issue: Issue, actor: Actor) -> tuple[bool, bool, bool]:
    with connection.cursor() as cursor:
        cursor.execute(_LEFT, {"id": issue.id, "own": actor.run_id})
        is_held, is_run, is_asked = cursor.fetchone()
    return is_held, is_run, is_asked


def _free(issue: Issue, *, by: Issue, actor: Actor, now: datetime) -> None:
    """The last blocker of `issue` is gone."""
    if issue.status in Issue.CLOSED or (issue.status == S.BLOCKED and issue.blocked_reason):
        return
    unblock(issue, actor=actor, now=now)
    wake_assignee(
        issue,
        reason="issue_blockers_resolved",
        source=Source.AUTOMATION,
        actor=activity.SYSTEM,
        now=now,
        payload={"resolvedBy": by.identifier, "resolvedAs": by.status},
        is_free=True,
    )


def unblock(issue: Issue, *, actor: Actor, now: datetime) -> None:
    """A blocked issue is to do again. The row is locked by the caller."""
    if issue.status != S.BLOCKED:
        return
    steps.mark(issue, S.TODO, now)
    save(issue, now)
    record(
        issue,
        actor=actor,
        action="issue.unblocked",
        now=now,
        details={"before": {"status": S.BLOCKED}, "after": {"status": S.TODO}},
    )
    announce(issue)


def _child_closed(parent: Issue, *, actor: Actor, now: datetime) -> None:
    """Wake the parent's agent when the last open child is closed, with what came out."""
    if parent.status in Issue.CLOSED or parent.children.open().exists():
        return
    waited = parent.status == S.BLOCKED and parent.blocked_reason.startswith(WAITS_FOR_CHILDREN)
    if waited and not graph.open_blockers(parent.id):
        unblock(parent, actor=actor, now=now)
    children = parent.children.order_by("number", "id")[:50]
    wake_assignee(
        parent,
        reason="issue_children_completed",
        source=Source.AUTOMATION,
        actor=activity.SYSTEM,
        now=now,
        payload={
            "children": [
                {"id": str(c.id), "identifier": c.identifier, "title": c.title, "status": c.status}
                for c in children
            ]
        },
    )


def save(issue: Issue, now: datetime, fields: Collection[str] = ()) -> None:
    """Write a locked row: the given fields, the status and what goes with it, the next version."""
    issue.version += 1  # the row is locked
    issue.updated_at = now
    rows.update(
        issue,
        {
            "status",
            "blocked_reason",
            "started_at",
            "completed_at",
            "cancelled_at",
            "version",
            "updated_at",
            *fields,
        },
    )


def unread_by(agent: Agent | uuid.UUID, issue: Issue) -> list[Comment]:
    """People's comments that wait for this agent's next run on the issue."""
    agent_id = agent.id if isinstance(agent, Agent) else agent
    queued = (
        HeartbeatRun.objects.filter(
            agent_id=agent_id, issue=issue, status=HeartbeatRun.Status.QUEUED
        )
        .values_list("comment_ids", flat=True)
        .first()
    )
    if not queued:
        return []
    return list(
        Comment.objects.filter(id__in=queued, author_user__isnull=False, deleted_at=None).order_by(
            "created_at", "id"
        )
    )
