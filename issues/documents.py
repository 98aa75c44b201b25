"""Documents of an issue: written, locked, restored. Every write is a revision that stays.

A write may say which revision it builds on (`base_revision`); when that is not the latest one, the
write is refused instead of burying somebody else's words.
"""

from __future__ import annotations

import re
import uuid
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from companies import live
from companies.activity import Actor
from companies.errors import Conflict, Forbidden, Invalid, NotFound
from issues import consequences, fields, graph
from issues.document_models import Document, DocumentRevision
from issues.models import Issue

BODY_CHARS = 524_288
KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
MAX_DOCUMENTS = 100


def find(issue: Issue, key: str) -> Document:
    """The document of this key. Raises NotFound."""
    found = Document.objects.filter(issue=issue, key=key).first()
    if found is None:
        raise NotFound("This issue has no such document.")
    return found


@transaction.atomic
def put(
    *,
    issue: Issue,
    key: str,
    body: str,
    actor: Actor,
    now: datetime | None = None,
    title: str = "",
    format: str = Document.Format.MARKDOWN,
    base_revision: uuid.UUID | None = None,
    if_version: int | None = None,
    change_summary: str = "",
    restored_from: int | None = None,
) -> tuple[Document, bool]:
    """Write a document; the second value tells whether it is new. The same text again is no new
    revision. `base_revision` (an id) and `if_version` (a number) say what the writer has read.

    Raises Invalid, Conflict (a stale base, a lock of somebody else).
    """
    now = now or timezone.now()
    if not KEY.fullmatch(key):
        raise Invalid("invalid_key", "A key has lower case letters, digits, - _ and .", field="key")
    if format not in Document.Format.values:
        raise Invalid("invalid_format", "format is markdown, text or json.", field="format")
    wish = {
        "title": fields.text(title, "title", limit=300, line=True),
        "format": format,
        "body": _as_written(body),
    }
    graph.lock_row(issue.id)  # one writer of an issue's documents at a time
    known = Document.objects.select_for_update(no_key=True).filter(issue=issue, key=key).first()
    if if_version is not None and if_version != (known.revision if known else 0):
        raise Conflict(
            "version_conflict",
            "Somebody else wrote in between.",
            details={"version": known.revision if known else 0},
        )
    if known is None:
        return _create(issue, key, wish, base_revision, change_summary, actor, now), True
    _check_lock(known, actor)
    _check_base(known, base_revision)
    if all(getattr(known, name) == value for name, value in wish.items()):
        return known, False
    for name, value in wish.items():
        setattr(known, name, value)
    known.revision += 1
    known.updated_at = now
    known.updated_by_user_id = actor.id if actor.type == "user" else None
    known.updated_by_agent_id = actor.id if actor.type == "agent" else None
    known.save()
    _remember(known, change_summary, actor, now)
    details: dict[str, Any] = {"key": key, "revision": known.revision}
    if restored_from is not None:
        details["restoredFrom"] = restored_from
    _tell(issue, "issue.document_updated", details, actor, now)
    return known, False


def restore(
    *, document: Document, revision: DocumentRevision, actor: Actor, now: datetime | None = None
) -> Document:
    """Write an old revision anew, as the latest one."""
    restored, _ = put(
        issue=document.issue,
        key=document.key,
        title=revision.title,
        format=revision.format,
        body=revision.body,
        change_summary=f"Restored revision {revision.number}",
        restored_from=revision.number,
        actor=actor,
        now=now,
    )
    return restored


@transaction.atomic
def delete(
    *,
    document: Document,
    actor: Actor,
    now: datetime | None = None,
    if_version: int | None = None,
) -> None:
    """Delete a document with its revisions: a person's decision. Raises Conflict for one that is
    locked, and for another revision than `if_version`."""
    if actor.type == "agent":
        raise Forbidden("people_only", "Only a person deletes a document.")
    document = Document.objects.select_for_update().get(pk=document.pk)
    _check_lock(document, actor)
    if if_version is not None and if_version != document.revision:
        raise Conflict(
            "version_conflict",
            "The document has changed since you read it.",
            details={"version": document.revision},
        )
    details = {"key": document.key, "revision": document.revision}
    _tell(document.issue, "issue.document_deleted", details, actor, now or timezone.now())
    document.delete()


@transaction.atomic
def lock(*, document: Document, actor: Actor, now: datetime | None = None) -> Document:
    """Keep a document as it is. Again by the same one: no change. Raises Conflict."""
    row = Document.objects.select_for_update(no_key=True).get(pk=document.pk)
    _check_lock(row, actor)
    if row.locked_at is None:
        row.locked_at = now or timezone.now()
        row.locked_by_user_id = actor.id if actor.type == "user" else None
        row.locked_by_agent_id = actor.id if actor.type == "agent" else None
        row.save(update_fields=["locked_at", "locked_by_user", "locked_by_agent"])
        _tell(row.issue, "issue.document_locked", {"key": row.key}, actor, row.locked_at)
    return row


@transaction.atomic
def unlock(*, document: Document, actor: Actor, now: datetime | None = None) -> Document:
    """Free a document: by whoever locked it, or by a person. Raises Forbidden."""
    row = Document.objects.select_for_update(no_key=True).get(pk=document.pk)
    if row.locked_at is None:
        return row
    if actor.type == "agent" and row.locked_by_agent_id != actor.id:
        raise Forbidden("not_yours", "Somebody else has locked this document.")
    row.locked_at = row.locked_by_user = row.locked_by_agent = None
    row.save(update_fields=["locked_at", "locked_by_user", "locked_by_agent"])
    _tell(row.issue, "issue.document_unlocked", {"key": row.key}, actor, now or timezone.now())
    return row


def _as_written(body: str) -> str:
    """Checked like all text, but kept to the last blank and line break."""
    fields.text(body, "body", limit=BODY_CHARS)
    return body


def _create(
    issue: Issue,
    key: str,
    wish: dict[str, str],
    base_revision: uuid.UUID | None,
    change_summary: str,
    actor: Actor,
    now: datetime,
) -> Document:
    if base_revision is not None:
        raise Conflict("revision_conflict", "There is no such document any more.")
    if Document.objects.filter(issue=issue).count() >= MAX_DOCUMENTS:
        raise Conflict("too_many_documents", f"An issue has at most {MAX_DOCUMENTS} documents.")
    by_user = actor.id if actor.type == "user" else None
    by_agent = actor.id if actor.type == "agent" else None
    try:
        with transaction.atomic():
            made = Document.objects.create(
                company_id=issue.company_id,
                issue=issue,
                key=key,
                created_by_user_id=by_user,
                created_by_agent_id=by_agent,
                updated_by_user_id=by_user,
                updated_by_agent_id=by_agent,
                created_at=now,
                updated_at=now,
                **wish,
            )
    except IntegrityError:
        raise Conflict("revision_conflict", "Somebody else has just written it.") from None
    _remember(made, change_summary, actor, now)
    _tell(issue, "issue.document_created", {"key": key}, actor, now)
    return made


def _remember(document: Document, summary: str, actor: Actor, now: datetime) -> None:
    DocumentRevision.objects.create(
        company_id=document.company_id,
        document=document,
        number=document.revision,
        title=document.title,
        format=document.format,
        body=document.body,
        change_summary=fields.text(summary, "changeSummary", limit=500),
        created_by_user_id=actor.id if actor.type == "user" else None,
        created_by_agent_id=actor.id if actor.type == "agent" else None,
        run_id=actor.run_id,
        created_at=now,
    )


def _check_base(document: Document, base_revision: uuid.UUID | None) -> None:
    if base_revision is None:
        return
    latest = document.revisions.order_by("-number").first()
    if latest is None or latest.pk != base_revision:
        raise Conflict(
            "revision_conflict",
            "The document has changed since you read it.",
            details={
                "latestRevisionId": str(latest.pk) if latest else None,
                "latestRevisionNumber": document.revision,
            },
        )


def _check_lock(document: Document, actor: Actor) -> None:
    if document.locked_at is None:
        return
    if actor.id in (document.locked_by_user_id, document.locked_by_agent_id):
        return
    raise Conflict(
        "document_locked",
        "Somebody else has locked this document.",
        details={"lockedAt": document.locked_at.isoformat()},
    )


def _tell(issue: Issue, action: str, details: dict[str, Any], actor: Actor, now: datetime) -> None:
    consequences.record(issue, actor=actor, action=action, now=now, details=details)
    live.publish(issue.company_id, "issue", issue.id)
