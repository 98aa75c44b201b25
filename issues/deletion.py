"""Taking back what was written: a comment loses its words, an issue goes as a whole.

The activity stays: that something was deleted, and by whom, can always be read.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.utils import timezone

from agents.models import HeartbeatRun
from companies.activity import Actor
from companies.errors import Conflict, Forbidden
from issues import consequences, graph
from issues.models import Comment, Issue, Worktree


@transaction.atomic
def delete_comment(*, comment: Comment, actor: Actor, now: datetime | None = None) -> Comment:
    """Empty a comment; its place in the thread stays. An agent takes back only its own words.

    Twice is once. Raises Forbidden.
    """
    now = now or timezone.now()
    row = Comment.objects.select_for_update(no_key=True).get(pk=comment.pk)
    if actor.type == "agent" and row.author_agent_id != actor.id:
        raise Forbidden("not_yours", "An agent deletes only its own comments.")
    if row.deleted_at is not None:
        return row
    row.deleted_at = now
    row.save(update_fields=["deleted_at"])
    details = {"commentId": str(row.pk)}
    consequences.record(
        row.issue, actor=actor, action="issue.comment_deleted", now=now, details=details
    )
    consequences.announce(row.issue)
    return row


@transaction.atomic
def delete_issue(
    *, issue: Issue, actor: Actor, now: datetime | None = None, if_version: int | None = None
) -> None:
    """Delete an issue with its thread and documents; its children stay, its runs and costs too.

    A person's decision. Queued runs are cancelled. Raises Conflict while one is running, or while
    there is a work tree (what is in it is looked at first), and for another version than
    `if_version`.
    """
    now = now or timezone.now()
    if actor.type == "agent":
        raise Forbidden("people_only", "Only a person deletes an issue.")
    graph.lock(issue.company_id, "write")  # nobody begins to wait for it meanwhile
    row = graph.lock_row(issue.id)
    graph.refuse_version(row, if_version)
    running = HeartbeatRun.Status.RUNNING
    if HeartbeatRun.objects.filter(issue=row, status=running).exists():
        raise Conflict("run_live", "An agent works on this issue; stop the run first.")
    if Worktree.objects.filter(issue=row).exclude(status=Worktree.Status.REMOVED).exists():
        raise Conflict("worktree_exists", "The issue has a work tree; remove that one first.")
    consequences.cancel_runs(row, actor=actor, reason="issue_deleted", now=now)
    details = {"before": {"identifier": row.identifier, "title": row.title}}
    consequences.record(row, actor=actor, action="issue.deleted", now=now, details=details)
    consequences.announce(row)
    row.delete()
