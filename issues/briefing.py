"""What a run is told when it starts: the issue in short, its thread, why it was woken, and the
variables of its environment. Plain data and bounded, whatever people have written.

The engine adds what only it has (the run's token, its folder, the opened secrets) and hands the
whole to an adapter. `context` is the same knowledge for agents that ask over HTTP.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
from django.conf import settings
from django.db.models import Q

from agents import adapters
from agents.adapters.base import Code, Message, Task
from agents.models import Agent, HeartbeatRun
from agents.wakes import ORIGINAL_REASON
from companies import rows
from issues import graph, inbox
from issues.models import Comment, Issue

THREAD_COMMENTS = 30
THREAD_CHARS = 24_000
COMMENT_CHARS = 8_000
PAYLOAD_COMMENTS = 8
PAYLOAD_CHARS = 12_000
DESCRIPTION_CHARS = 40_000
RELATIVES = 20  # ancestors and children that are named
INBOX = 10  # issues that a run without one is told of


class Gone(Exception):
    """The run has changed hands or its agent is gone: there is nothing to brief."""


@dataclass(frozen=True, slots=True)
class Briefing:
    """The parts of an adapter's `Brief` that the database knows, and the ids that money needs."""

    run_id: uuid.UUID
    epoch: int
    run_created_at: datetime
    company_id: uuid.UUID
    agent_id: uuid.UUID
    issue_id: uuid.UUID | None
    project_id: uuid.UUID | None
    goal_id: uuid.UUID | None
    billing_code: str
    company_name: str
    agent_name: str
    agent_status: str
    reason: str
    attempt: int
    adapter_type: str
    config: Mapping[str, Any]
    instructions: str
    on_finish: str
    is_assignee: bool
    task: Task | None
    thread: Sequence[Message]
    payload: Mapping[str, Any]
    env: Mapping[str, str]  # PAPERCLIP_*, without the key
    secret_names: frozenset[str]
    workspace: str
    session: Mapping[str, Any] = field(default_factory=dict)


def write(*, run_id: uuid.UUID, epoch: int) -> Briefing:
    """The briefing of a claimed run. Raises Gone.

    A configuration that cannot be read names no secrets; the adapter itself says what is wrong.
    """
    return of(*read(run_id=run_id, epoch=epoch))


@dataclass(frozen=True, slots=True)
class Around:
    """Whom a run works for, its issue's project and goal ('' for none), and whether there is
    anything to be read besides."""

    company: str
    project: str
    workspace: str
    goal: str
    has_children: bool
    has_comments: bool
    has_session: bool


# What a run begins with; what else anybody asks for is read then.
_RUN = rows.part(
    HeartbeatRun, "id", "company_id", "agent_id", "issue_id", "status", "reason", "comment_ids",
    "payload", "not_before", "attempt", "created_at", "epoch", "adapter_type", "connection_id",
    "started_at", "session",
)  # fmt: skip
_AGENT = rows.part(
    Agent, "id", "company_id", "name", "status", "adapter_type", "adapter_config", "connection_id",
    "instructions", "on_finish", "loop_limits",
)  # fmt: skip
_ISSUE = rows.part(
    Issue, "id", "company_id", "identifier", "title", "description", "status", "priority",
    "assignee_agent_id", "project_id", "goal_id", "parent_id", "billing_code", "version",
    "started_at",
)  # fmt: skip
_READ = f"""
SELECT {rows.columns(_RUN, "r")}, {rows.columns(_AGENT, "a")}, {rows.columns(_ISSUE, "i")},
       company.name, coalesce(project.name, ''), coalesce(project.workspace, ''),
       coalesce(goal.title, ''),
       EXISTS (SELECT 1 FROM issues_issue child WHERE child.parent_id = r.issue_id),
       EXISTS (SELECT 1 FROM issues_comment c WHERE c.issue_id = r.issue_id),
       EXISTS (SELECT 1 FROM agents_heartbeatrun last
               WHERE last.issue_id = r.issue_id AND last.agent_id = r.agent_id
                 AND last.status = 'succeeded' AND last.session <> '{{}}')
FROM agents_heartbeatrun r
JOIN agents_agent a ON a.id = r.agent_id
JOIN companies_company company ON company.id = r.company_id
LEFT JOIN issues_issue i ON i.id = r.issue_id
LEFT JOIN companies_project project ON project.id = i.project_id
LEFT JOIN companies_goal goal ON goal.id = i.goal_id
WHERE r.id = %(run_id)s AND r.epoch = %(epoch)s
"""  # noqa: S608


def read(*, run_id: uuid.UUID, epoch: int) -> tuple[HeartbeatRun, Around]:
    """The run, with its agent and issue, and what lies around it. Raises Gone."""
    values = {"run_id": run_id, "epoch": epoch}
    found = rows.fetch(_READ, values, _RUN, _AGENT, _ISSUE)
    if not found:
        raise Gone(f"run {run_id} has left epoch {epoch}")
    run: HeartbeatRun
    run, run.agent, run.issue, *around = found[0]
    return run, Around(*around)


def of(run: HeartbeatRun, around: Around) -> Briefing:
    """The briefing of a run that was just read."""
    agent, issue = run.agent, run.issue
    reason = str(run.payload.get(ORIGINAL_REASON) or run.reason)
    payload = _payload(run, issue, reason)
    return Briefing(
        run_id=run.id,
        epoch=run.epoch,
        run_created_at=run.created_at,
        company_id=run.company_id,
        agent_id=agent.id,
        issue_id=run.issue_id,
        project_id=issue.project_id if issue else None,
        goal_id=issue.goal_id if issue else None,
        billing_code=issue.billing_code if issue else "",
        company_name=around.company,
        agent_name=agent.name,
        agent_status=agent.status,
        reason=reason,
        attempt=run.attempt,
        adapter_type=agent.adapter_type,
        config=dict(agent.adapter_config),
        instructions=agent.instructions,
        on_finish=agent.on_finish,
        is_assignee=issue is not None and issue.assignee_agent_id == agent.id,
        task=_task(issue, agent, around) if issue else None,
        thread=_thread(issue, agent) if issue and around.has_comments else (),
        payload=payload,
        env=_env(run, around.workspace, reason, payload),
        secret_names=_secret_names(agent),
        workspace=around.workspace,
        session=_session(run) if around.has_session else dict(run.session),
    )


def _task(issue: Issue, agent: Agent, around: Around) -> Task:
    return Task(
        id=str(issue.id),
        identifier=issue.identifier,
        title=issue.title,
        description=_cut(issue.description, DESCRIPTION_CHARS),
        status=issue.status,
        priority=issue.get_priority_display(),
        project=around.project,
        goal=around.goal,
        ancestors=[f"{one.identifier} {one.title}" for one in ancestors(issue)],
        children=[
            f"{one.identifier} {one.status} {one.title}"
            for one in (
                issue.children.order_by("number", "id")[:RELATIVES] if around.has_children else ()
            )
        ],
        on_finish="done" if agent.on_finish == Agent.OnFinish.DONE else "in_review",
    )


def ancestors(issue: Issue) -> list[Issue]:
    """The issue's parents, nearest first, bounded."""
    if issue.parent_id is None:
        return []
    ids = graph.ancestor_ids(issue.id)[:RELATIVES]
    found = Issue.objects.in_bulk(ids)
    return [found[one] for one in ids if one in found]


def _thread(issue: Issue, agent: Agent) -> list[Message]:
    """The last comments, oldest first, within a budget; the newest matter most."""
    newest = (
        Comment.objects.filter(issue=issue, deleted_at=None)
        .select_related("author_user", "author_agent")
        .order_by("-created_at", "-id")[:THREAD_COMMENTS]
    )
    room = THREAD_CHARS
    kept: list[Message] = []
    for comment in newest:
        body = _cut(comment.body, COMMENT_CHARS)
        room -= len(body)
        if room < 0 and kept:
            break
        kept.append(_message(comment, body, agent))
    return kept[::-1]


def _message(comment: Comment, body: str, agent: Agent) -> Message:
    at = moment(comment.created_at)
    if comment.author_agent_id == agent.id:
        return Message("self", agent.name, body, at)
    if comment.author_agent is not None:
        return Message("agent", comment.author_agent.name, body, at)
    if comment.author_user is not None:
        return Message("operator", str(comment.author_user), body, at)
    return Message("system", "Paperclip", body, at)


def _payload(run: HeartbeatRun, issue: Issue | None, reason: str) -> dict[str, Any]:
    """PAPERCLIP_WAKE_PAYLOAD_JSON: the issue in short, the new comments in order, and whether the
    agent should fetch more than it was given."""
    extra = {key: value for key, value in run.payload.items() if key != ORIGINAL_REASON}
    if issue is None:
        rows = inbox.for_agent(run.agent, limit=INBOX)
        return {**extra, "reason": reason, "issue": None, "inbox": rows, "comments": []}
    comments, cut, missing = _new_comments(run.comment_ids)
    return {
        **extra,
        "reason": reason,
        "issue": {
            "id": str(issue.id),
            "identifier": issue.identifier,
            "title": issue.title,
            "status": issue.status,
            "priority": issue.get_priority_display(),
        },
        "commentIds": [str(one) for one in run.comment_ids],
        "latestCommentId": str(run.comment_ids[-1]) if run.comment_ids else None,
        "comments": comments,
        "commentWindow": {
            "requestedCount": len(run.comment_ids),
            "includedCount": len(comments),
            "missingCount": missing,
        },
        "truncated": cut,
        "fallbackFetchNeeded": cut or missing > 0,
    }


def _new_comments(ids: Sequence[uuid.UUID]) -> tuple[list[dict[str, Any]], bool, int]:
    """The comments that woke the run, in order, as far as they fit: (comments, was anything cut,
    how many are missing)."""
    if not ids:
        return [], False, 0
    newest = list(ids)[-PAYLOAD_COMMENTS:]
    found = (
        Comment.objects.filter(id__in=newest, deleted_at=None)
        .select_related("author_user", "author_agent")
        .order_by("-created_at", "-id")
    )
    room, cut = PAYLOAD_CHARS, False
    kept: list[dict[str, Any]] = []
    for comment in found:
        if room <= 0:
            break
        body = comment.body[:room]
        cut = cut or len(body) < len(comment.body)
        room -= len(body)
        kept.append(
            {
                "id": str(comment.id),
                "issueId": str(comment.issue_id),
                "body": body,
                "bodyTruncated": len(body) < len(comment.body),
                "createdAt": moment(comment.created_at),
                **_author(comment),
            }
        )
    return kept[::-1], cut, len(ids) - len(kept)


def _author(comment: Comment) -> dict[str, Any]:
    if comment.author_agent is not None:
        who, kind = comment.author_agent, "agent"
        return {"authorType": kind, "authorId": str(who.id), "authorName": who.name}
    if comment.author_user is not None:
        return {
            "authorType": "user",
            "authorId": str(comment.author_user_id),
            "authorName": str(comment.author_user),
        }
    return {"authorType": "system", "authorId": None, "authorName": "Paperclip"}


def _env(
    run: HeartbeatRun, workspace: str, reason: str, payload: Mapping[str, Any]
) -> dict[str, str]:
    """The variables of docs/api.md, all but the key. Absent facts are absent variables."""
    env = {
        "PAPERCLIP_API_URL": settings.BASE_URL,
        "PAPERCLIP_AGENT_ID": str(run.agent_id),
        "PAPERCLIP_COMPANY_ID": str(run.company_id),
        "PAPERCLIP_RUN_ID": str(run.id),
        "PAPERCLIP_WAKE_REASON": reason,
        "PAPERCLIP_WAKE_PAYLOAD_JSON": orjson.dumps(payload, default=str).decode(),
    }
    if run.issue is not None:
        env["PAPERCLIP_TASK_ID"] = str(run.issue.id)
        env["PAPERCLIP_LINKED_ISSUE_IDS"] = str(run.issue.id)
    if run.comment_ids:
        env["PAPERCLIP_WAKE_COMMENT_ID"] = str(run.comment_ids[-1])
    if workspace:
        env["PAPERCLIP_WORKSPACE_CWD"] = workspace
    for key, name in (
        ("approvalId", "PAPERCLIP_APPROVAL_ID"),
        ("approvalStatus", "PAPERCLIP_APPROVAL_STATUS"),
    ):
        if isinstance(run.payload.get(key), str):
            env[name] = run.payload[key]
    return env


def _secret_names(agent: Agent) -> frozenset[str]:
    try:
        return frozenset(adapters.secret_names(agent.adapter_type, agent.adapter_config))
    except (adapters.UnknownAdapter, adapters.ConfigError):
        return frozenset()


def _session(run: HeartbeatRun) -> dict[str, Any]:
    """The session that the agent's last run on this issue gave back, if this one brings none and
    nobody asked for a fresh one.

    A session is the run's that goes on with it, and only its holder's own end, which the epoch
    fences, gives it back. Whoever was cancelled or lost may still be at it, and what it used is not
    known: the next run begins anew and waits for nobody.
    """
    if run.payload.get("forceFreshSession") is True:
        return {}
    if run.session or run.issue_id is None:
        return dict(run.session)
    S = HeartbeatRun.Status
    stopped = Q(code__in=["", Code.CANCELLED])  # else it was refused and waits: nothing had begun
    refused = Q(status=S.CANCELLED) & ~stopped
    came_to_none = Q(status__in=[S.SUCCEEDED, S.FAILED]) | Q(started_at=None) | refused
    last = (
        HeartbeatRun.objects.filter(issue_id=run.issue_id, agent_id=run.agent_id)
        .exclude(pk=run.pk)
        .exclude(status=S.QUEUED)
        .exclude(came_to_none, session={})  # and left the one before as it was
        .only("status", "adapter_type", "session", "result")
        .order_by("-created_at", "-id")
        .first()
    )
    if last is None or last.adapter_type != run.adapter_type:
        return {}
    if last.status == S.SUCCEEDED:
        return dict(last.session)
    detail = last.result.get("detail")
    kept = detail.get("session") if isinstance(detail, Mapping) else None  # a passing failure
    return dict(kept) if last.status == S.FAILED and isinstance(kept, Mapping) else {}


# --- for agents that ask ---------------------------------------------------------------------


def context(*, issue: Issue, comment_id: uuid.UUID | None = None) -> dict[str, Any]:
    """`GET /api/issues/{id}/heartbeat-context`: the issue, what surrounds it, where the thread
    stands. `comment_id` is the comment that woke the agent; a foreign one is not shown."""
    blockers = graph.open_blockers(issue.id)
    comments = Comment.objects.filter(issue=issue, deleted_at=None).order_by("-created_at", "-id")
    latest = comments.first()
    woken_by = (
        comments.select_related("author_user", "author_agent").filter(id=comment_id).first()
        if comment_id
        else None
    )
    return {
        "issue": {
            **brief(issue),
            "description": _cut(issue.description, DESCRIPTION_CHARS),
            "projectId": _id(issue.project_id),
            "goalId": _id(issue.goal_id),
            "parentId": _id(issue.parent_id),
            "assigneeAgentId": _id(issue.assignee_agent_id),
            "assigneeUserId": _id(issue.assignee_user_id),
            "blockedReason": issue.blocked_reason or None,
            "blockedBy": [brief(one) for one in blockers],
            "blocks": [brief(one) for one in issue.blocks.order_by("number", "id")[:RELATIVES]],
            "version": issue.version,
            "originKind": "manual",
            "originId": None,
            "updatedAt": moment(issue.updated_at),
        },
        "ancestors": [brief(one) for one in ancestors(issue)],
        "children": [brief(one) for one in issue.children.order_by("number", "id")[:RELATIVES]],
        "project": _project(issue),
        "goal": _goal(issue),
        "commentCursor": {
            "totalComments": comments.count(),
            "latestCommentId": _id(latest.id) if latest else None,
            "latestCommentAt": moment(latest.created_at) if latest else None,
        },
        "wakeComment": {
            "id": str(woken_by.id),
            "body": woken_by.body,
            "createdAt": moment(woken_by.created_at),
            **_author(woken_by),
        }
        if woken_by
        else None,
        "attachments": [],
        "continuationSummary": None,
        "planReviewContext": None,
        "documentReviewContext": None,
        "currentExecutionWorkspace": None,
    }


def brief(issue: Issue) -> dict[str, Any]:
    """An issue on one line, for programs."""
    return {
        "id": str(issue.id),
        "identifier": issue.identifier,
        "title": issue.title,
        "status": issue.status,
        "priority": issue.get_priority_display(),
    }


def _project(issue: Issue) -> dict[str, Any] | None:
    project = issue.project
    if project is None:
        return None
    target = project.target_date.isoformat() if project.target_date else None
    return {
        "id": str(project.id),
        "name": project.name,
        "status": project.status,
        "targetDate": target,
    }


def _goal(issue: Issue) -> dict[str, Any] | None:
    goal = issue.goal
    if goal is None:
        return None
    return {
        "id": str(goal.id),
        "title": goal.title,
        "status": goal.status,
        "level": goal.level,
        "parentId": _id(goal.parent_id),
    }


def moment(at: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and Z, as the wire has it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _id(value: uuid.UUID | None) -> str | None:
    return str(value) if value else None


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "\n[cut]"
