"""What agents ask of people: a pending interaction in the thread, and its answer.

While a question is pending the issue is in review; the answer wakes the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
from django.db import transaction
from django.utils import timezone

from agents import runs
from agents.models import HeartbeatRun
from companies import live
from companies.activity import Actor
from companies.errors import Conflict, Forbidden, Invalid
from issues import consequences, fields, graph, payloads, steps
from issues.models import Comment, Interaction, Issue

S = Issue.Status
Kind = Interaction.Kind
State = Interaction.Status

MAX_PENDING = 10
MAX_OPTIONS = payloads.MAX_OPTIONS
PAYLOAD_BYTES = 32_768


@transaction.atomic
def ask(
    *,
    issue: Issue,
    actor: Actor,
    payload: Mapping[str, Any],
    kind: str = Kind.QUESTION,
    now: datetime | None = None,
) -> Interaction:
    """Ask people something; an issue in progress goes into review until they answer.

    `payload` is what a page shows, in the shapes of `payloads.py`. Raises Invalid, Conflict
    (the issue is closed, or too much is asked already).
    """
    now = now or timezone.now()
    if kind not in Kind.values:
        raise Invalid("invalid_kind", "kind is one of " + ", ".join(Kind.values), field="kind")
    clean = plain_json(payload)
    payloads.check(kind, clean)
    row = graph.lock_row(issue.id)
    if row.status in Issue.CLOSED:
        raise Conflict(
            "issue_closed",
            "Nothing can be asked on a closed issue.",
            details={"status": row.status},
        )
    if row.interactions.filter(status=State.PENDING).count() >= MAX_PENDING:
        raise Conflict("too_many_questions", "Enough questions wait for an answer here.")
    asked = Interaction.objects.create(
        company_id=row.company_id,
        issue=row,
        kind=kind,
        payload=clean,
        asked_by_agent_id=actor.id if actor.type == "agent" else None,
        run_id=actor.run_id,
        created_at=now,
    )
    before = row.status
    if row.status == S.IN_PROGRESS and row.assignee_agent_id == actor.id:
        steps.take(row=row, to=S.IN_REVIEW, actor=actor, now=now)
        consequences.release_checkouts(row, reason="asked", now=now)
    consequences.save(row, now)
    consequences.record(
        row,
        actor=actor,
        action="interaction.asked",
        now=now,
        details={
            "interactionId": str(asked.id),
            "kind": kind,
            "excerpt": question(asked)[:200],
            "before": {"status": before},
            "after": {"status": row.status},
        },
    )
    consequences.announce(row)
    live.publish(row.company_id, "inbox")
    return asked


@transaction.atomic
def answer(
    *,
    interaction: Interaction,
    response: str | Mapping[str, Any],
    actor: Actor,
    now: datetime | None = None,
    outcome: str | None = None,
) -> Interaction:
    """Answer as a person: a comment says it, the issue is to do again, its agent is woken.

    `response` is text, or {"answer": …} with whatever else the asker should get. `outcome` is
    answered, accepted or rejected (a confirmation needs one of the last two). Raises Conflict
    when it was answered before.
    """
    now = now or timezone.now()
    if actor.type != "user":
        raise Forbidden("people_only", "Questions to people are answered by people.")
    outcome = _outcome(interaction, response, outcome)
    clean = plain_json({"answer": response} if isinstance(response, str) else response)
    said = _said(interaction.payload, clean, outcome)
    row, asked = _locked(interaction)
    asked.status, asked.response = outcome, clean
    asked.answered_by_id, asked.answered_at = actor.id, now
    asked.save(update_fields=["status", "response", "answered_by", "answered_at"])
    comment = Comment.objects.create(
        company_id=row.company_id,
        issue=row,
        author_user_id=actor.id,
        body=f"{_quoted(question(asked)[:500])}\n\n{said}",
        created_at=now,
    )
    before = row.status
    waiting = row.interactions.filter(status=State.PENDING).exists()
    if row.status == S.IN_REVIEW and not waiting:
        steps.mark(row, S.TODO, now)
    consequences.save(row, now)
    consequences.record(
        row,
        actor=actor,
        action="interaction.answered",
        now=now,
        details={
            "interactionId": str(asked.id),
            "outcome": outcome,
            "excerpt": said[:200],
            "before": {"status": before},
            "after": {"status": row.status},
        },
    )
    consequences.announce(row)
    live.publish(row.company_id, "inbox")
    _wake_asker(row, asked, comment, clean, actor=actor, now=now)
    return asked


@transaction.atomic
def cancel(*, interaction: Interaction, actor: Actor, now: datetime | None = None) -> Interaction:
    """Take a question back: by whoever asked it, or by a person."""
    now = now or timezone.now()
    row, asked = _locked(interaction)
    if actor.type == "agent" and asked.asked_by_agent_id != actor.id:
        raise Forbidden("not_yours", "Another agent has asked this.")
    asked.status, asked.answered_at = State.CANCELLED, now
    asked.save(update_fields=["status", "answered_at"])
    consequences.record(
        row,
        actor=actor,
        action="interaction.cancelled",
        now=now,
        details={"interactionId": str(asked.id)},
    )
    consequences.announce(row)
    live.publish(row.company_id, "inbox")
    return asked


def question(interaction: Interaction) -> str:
    """The text of what is asked, whatever shape the asker gave it."""
    return payloads.question(interaction.payload)


def options(interaction: Interaction) -> list[str]:
    """The answers that the asker suggests, as text."""
    return payloads.options(interaction.payload)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _locked(interaction: Interaction) -> tuple[Issue, Interaction]:
    row = graph.lock_row(interaction.issue_id)
    asked = Interaction.objects.select_for_update(no_key=True).get(id=interaction.id)
    if asked.status != State.PENDING:
        raise Conflict(
            "already_answered",
            "This question is no longer open.",
            details={"status": asked.status},
        )
    return row, asked


def _outcome(
    interaction: Interaction, response: str | Mapping[str, Any], outcome: str | None
) -> str:
    if interaction.kind == Kind.QUESTION:
        allowed = (State.ANSWERED, State.REJECTED)
        outcome = outcome or State.ANSWERED
    else:
        allowed = (State.ACCEPTED, State.REJECTED)
        if outcome is None and isinstance(response, Mapping):
            outcome = str(response.get("outcome") or "")
    if outcome not in allowed:
        raise Invalid("invalid_outcome", "outcome is one of " + ", ".join(allowed), field="outcome")
    return str(outcome)


def _said(asked: Any, response: Mapping[str, Any], outcome: str) -> str:
    """The answer to the payload `asked`, as a person would read it."""
    for key in ("answer", "summaryMarkdown", "reason", "note"):
        value = response.get(key)
        if isinstance(value, str) and value.strip():
            text = fields.text(value, "answer", limit=fields.TEXT_CHARS - 1_000)
            return text if outcome == State.ANSWERED else f"{outcome.capitalize()}: {text}"
    if response.get("answers"):
        text = payloads.said(asked, response["answers"])
        return fields.text(text, "answers", limit=fields.TEXT_CHARS - 1_000)
    if outcome == State.ANSWERED:
        raise Invalid("required", "An answer must say something.", field="answer")
    return f"{outcome.capitalize()}."


def plain_json(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object of bounded size that PostgreSQL can hold."""
    if not isinstance(payload, Mapping):
        raise Invalid("invalid_type", "payload must be an object.", field="payload")
    try:
        packed = orjson.dumps(dict(payload))
    except (orjson.JSONEncodeError, RecursionError):
        raise Invalid("invalid_json", "payload must be plain JSON.", field="payload") from None
    if len(packed) > PAYLOAD_BYTES:
        raise Invalid("too_long", f"payload has at most {PAYLOAD_BYTES:,} bytes.", field="payload")
    if b"\\u0000" in packed:
        raise Invalid("invalid_text", "payload has characters that are no text.", field="payload")
    clean: dict[str, Any] = orjson.loads(packed)
    return clean


def _wake_asker(
    issue: Issue,
    asked: Interaction,
    comment: Comment,
    response: Mapping[str, Any],
    *,
    actor: Actor,
    now: datetime,
) -> None:
    """Wake the issue's agent, or the one that asked when the issue is now a person's."""
    agent = issue.assignee_agent or asked.asked_by_agent
    if agent is None:
        return
    runs.wake(
        agent=agent,
        issue=issue,
        reason="interaction_answered",
        source=HeartbeatRun.Source.AUTOMATION,
        actor=actor,
        now=now,
        priority=issue.priority,
        comment_ids=(comment.id,),
        payload={
            "interaction": {
                "id": str(asked.id),
                "kind": asked.kind,
                "status": asked.status,
                "question": question(asked)[:2_000],
                "response": response,
            }
        },
    )
