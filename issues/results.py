"""What came of an issue, as people see it: its documents and its work products."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import connection

from companies import fields
from companies.errors import NotFound
from issues import documents
from issues.document_models import Document, DocumentRevision
from issues.models import Issue

MOST = 200  # on a page
MOST_REVISIONS = 200


@dataclass(frozen=True, slots=True)
class Result:
    """A document (with its `key`) or a work product, which leads to `url` if to anywhere."""

    key: str
    title: str
    url: str
    about: str  # who wrote it, or what it is
    locked: bool
    at: datetime


_OF = """
SELECT d.key, coalesce(nullif(d.title, ''), d.key), '',
    concat_ws(' · ', coalesce(a.name, u.name),
        CASE WHEN d.revision > 1 THEN 'revision ' || d.revision END),
    d.locked_at IS NOT NULL, d.updated_at
FROM issues_document d
LEFT JOIN agents_agent a ON a.id = d.updated_by_agent_id
LEFT JOIN companies_user u ON u.id = d.updated_by_user_id
WHERE d.issue_id = %(issue)s
UNION ALL
SELECT '', p.title, p.url,
    replace(concat_ws(' · ', p.type, nullif(p.status, 'active')), '_', ' '), false, p.created_at
FROM issues_workproduct p WHERE p.issue_id = %(issue)s AND p.provider <> 'git'
ORDER BY 6, 2 LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """One document as it is or was: `revision` is what is read, `all_` what there is of it, the
    newest first and without texts."""

    document: Document
    revision: DocumentRevision
    all_: list[DocumentRevision]

    @property
    def is_latest(self) -> bool:
        return self.revision.number == self.document.revision

    @property
    def text(self) -> str:
        """The text as it is to be read: JSON is laid out, if it is some."""
        if self.revision.format != Document.Format.JSON:
            return self.revision.body
        try:
            return json.dumps(json.loads(self.revision.body), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            return self.revision.body


def of(issue: Issue) -> list[Result]:
    """One statement; the oldest first. What stands in a work tree is shown with that."""
    with connection.cursor() as cursor:
        cursor.execute(_OF, {"issue": issue.pk, "most": MOST})
        found = [Result(*row) for row in cursor.fetchall()]
    return [one if fields.is_link(one.url) else replace(one, url="") for one in found]


def document(issue: Issue, key: str, number: int | None = None) -> Shown:
    """A document in its newest or another revision. Raises NotFound."""
    if not documents.KEY.fullmatch(key):
        raise NotFound("This issue has no such document.")
    found = documents.find(issue, key)
    revisions = DocumentRevision.objects.filter(document=found).select_related(
        "created_by_agent", "created_by_user"
    )
    revision = revisions.filter(number=found.revision if number is None else number).first()
    if revision is None:
        raise NotFound("There is no such revision.")
    return Shown(found, revision, list(revisions.defer("body")[:MOST_REVISIONS]))
