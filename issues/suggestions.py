"""What saying yes means: suggested tasks become issues, a confirmed text is the one that was read.

`questions.py` keeps the question and wakes the asker; this file knows the two payloads that do
more than tell: `suggest_tasks` and `request_confirmation` with a document as its target.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from agents.models import Agent
from companies.activity import Actor
from companies.errors import Conflict, Invalid, NotFound
from issues import board, fields, questions
from issues.document_models import Document
from issues.models import Interaction, Issue

MAX_TASKS = 50
Kind = Interaction.Kind


def check(*, kind: str, payload: Mapping[str, Any], issue: Issue) -> None:
    """Let a payload pass or raise Invalid or NotFound, before it is asked."""
    if kind == Kind.TASKS:
        _check_tasks(payload, issue)
    elif kind == Kind.CONFIRMATION and payload.get("target") is not None:
        _document(payload, issue)


@transaction.atomic
def accept(
    *,
    interaction: Interaction,
    response: Mapping[str, Any],
    actor: Actor,
    now: datetime,
    selected: Collection[str] | None = None,
) -> Interaction:
    """Say yes. Suggested tasks (all, or those `selected` by their keys) become issues below this
    one; a document that has changed since it was put up is refused with Conflict."""
    issue = interaction.issue
    answer = dict(response)
    locked = Interaction.objects.select_for_update(no_key=True).get(pk=interaction.pk)
    if locked.status == Interaction.Status.PENDING:
        if locked.kind == Kind.TASKS:
            answer["createdTasks"] = _create(locked, issue, selected, actor, now)
        elif locked.kind == Kind.CONFIRMATION and locked.payload.get("target") is not None:
            _check_fresh(locked.payload, issue)
    return questions.answer(
        interaction=locked, response=answer, outcome="accepted", actor=actor, now=now
    )


# --- suggested tasks -------------------------------------------------------------------------


def _check_tasks(payload: Mapping[str, Any], issue: Issue) -> None:
    tasks = payload.get("tasks")
    if not isinstance(tasks, list) or not 1 <= len(tasks) <= MAX_TASKS:
        raise Invalid("invalid_tasks", f"tasks has 1 to {MAX_TASKS} entries.", field="payload")
    known: set[str] = set()
    for task in tasks:
        if not isinstance(task, dict):
            raise Invalid("invalid_tasks", "Each task is an object.", field="payload")
        fields.title(task.get("title"))
        fields.description(task.get("description") or "")
        fields.priority(task.get("priority") or "medium")
        _agent(task, issue)
        key = _key(task)
        if key in known:
            raise Invalid("invalid_tasks", "Two tasks have the same clientKey.", field="payload")
        parent = task.get("parentClientKey")
        if parent is not None and parent not in known:
            raise Invalid("invalid_tasks", "A parent comes before its children.", field="payload")
        known.add(key)


def _create(
    interaction: Interaction,
    issue: Issue,
    selected: Collection[str] | None,
    actor: Actor,
    now: datetime,
) -> list[dict[str, Any]]:
    tasks = interaction.payload.get("tasks", [])
    keys = {_key(task) for task in tasks}
    if selected is not None and (set(selected) - keys or not selected):
        raise Invalid(
            "invalid_selection",
            "selectedClientKeys name suggested tasks.",
            field="selectedClientKeys",
        )
    made: dict[str, Issue] = {}
    for task in tasks:
        key = _key(task)
        if selected is not None and key not in selected:
            continue
        made[key] = board.create(
            company=issue.company,
            actor=actor,
            now=now,
            title=task["title"],
            description=task.get("description") or "",
            priority=task.get("priority") or "medium",
            assignee_agent=_agent(task, issue),
            parent=made.get(task.get("parentClientKey") or "", issue),
        )
    return [
        {
            "clientKey": key,
            "issueId": str(one.id),
            "identifier": one.identifier,
            "title": one.title,
        }
        for key, one in made.items()
    ]


def _key(task: Mapping[str, Any]) -> str:
    return fields.text(task.get("clientKey"), "clientKey", limit=80, required=True, line=True)


def _agent(task: Mapping[str, Any], issue: Issue) -> Agent | None:
    value = task.get("assigneeAgentId")
    if value is None:
        return None
    try:
        wanted = uuid.UUID(str(value))
    except ValueError:
        raise Invalid("invalid_id", "assigneeAgentId is not a UUID.", field="payload") from None
    found = Agent.objects.for_company(issue.company_id).filter(id=wanted).first()
    if found is None:
        raise NotFound("assigneeAgentId names no agent here.", code="unknown_reference")
    return found


# --- a document that is to be confirmed ------------------------------------------------------


def _document(payload: Mapping[str, Any], issue: Issue) -> Document:
    target = payload.get("target")
    if not isinstance(target, dict) or not isinstance(target.get("key"), str):
        raise Invalid("invalid_target", "target names a document by its key.", field="payload")
    found = Document.objects.filter(issue=issue, key=target["key"][:80]).first()
    if found is None:
        raise NotFound("target names no document here.", code="unknown_reference")
    return found


def _check_fresh(payload: Mapping[str, Any], issue: Issue) -> None:
    """Nobody says yes to words that they have not read."""
    target = payload["target"]
    try:
        document = _document(payload, issue)
    except NotFound:
        raise Conflict("stale_target", "The document was deleted meanwhile.") from None
    latest = document.revisions.order_by("-number").first()
    asked_id, asked_number = target.get("revisionId"), target.get("revisionNumber")
    same_id = asked_id is None or (latest is not None and str(latest.pk) == str(asked_id))
    same_number = asked_number is None or asked_number == document.revision
    if not (same_id and same_number):
        raise Conflict(
            "stale_target",
            "The document has changed since it was put up for confirmation.",
            details={
                "latestRevisionId": str(latest.pk) if latest else None,
                "latestRevisionNumber": document.revision,
            },
        )
