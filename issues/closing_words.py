"""What stands in the thread when a run is over: the agent's summary, or why it failed."""

from __future__ import annotations

from datetime import datetime

from django.db import connection

from agents import outcomes
from agents.models import HeartbeatRun
from companies import live, rows
from companies.activity import Actor
from issues import consequences
from issues.models import Comment, Issue


def say(row: Issue, run: HeartbeatRun, summary: str, now: datetime) -> None:
    """The run's closing words, once, unless the agent has spoken itself."""
    words = summary.replace("\x00", "").encode("utf-8", "replace").decode().strip()[:100_000]
    if not words or _has_spoken(run):
        return
    comment = Comment(
        company_id=row.company_id,
        issue=row,
        author_agent=run.agent,
        run=run,
        body=words,
        created_at=now,
    )
    rows.insert(comment)
    actor = Actor("agent", run.agent_id, run.agent.name, run.id)
    consequences.record(
        row,
        actor=actor,
        action="issue.commented",
        now=now,
        details={"commentId": str(comment.id), "excerpt": words[:200]},
    )
    calls = "@" in words  # who calls nobody wakes nobody
    if calls and not consequences.talk_is_paused(row, actor, now):
        consequences.wake_mentioned(comment, row, actor=actor, now=now)


def _has_spoken(run: HeartbeatRun) -> bool:
    """Has the agent written a comment or asked a question in this run?"""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM issues_comment"
            " WHERE run_id = %(run_id)s AND author_agent_id = %(agent_id)s)"
            " OR EXISTS (SELECT 1 FROM issues_interaction WHERE run_id = %(run_id)s)",
            {"run_id": run.pk, "agent_id": run.agent_id},
        )
        return bool(cursor.fetchone()[0])


def say_failed(row: Issue, run: HeartbeatRun, code: str, message: str, now: datetime) -> bool:
    """One word of the system in the thread when no further attempt follows. False when it was
    said before."""
    if Comment.objects.filter(run=run, author_agent=None, author_user=None).exists():
        return False
    clean = message.replace("\x00", "").encode("utf-8", "replace").decode().strip()[:2_000]
    detail = f"\n\n{clean}" if clean else ""
    Comment.objects.create(
        company_id=row.company_id,
        issue=row,
        run=run,
        body=f"**{failure(run, code)}**{detail}",
        created_at=now,
    )
    live.publish(row.company_id, "inbox")
    return True


def failure(run: HeartbeatRun, code: str) -> str:
    """Who could not finish, why, and what to do, on one line."""
    outcome = outcomes.of(code)
    return f"{run.agent.name} could not finish: {outcome.title}. {outcome.remedy}"
