"""What comes in from outside, made clean or refused with the field's name."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, TypeVar

from companies.errors import Invalid, NotFound
from issues.models import Issue, Priority

TITLE_CHARS = 300
TEXT_CHARS = 100_000
REASON_CHARS = 500
BILLING_CODE_CHARS = 80
BLOCKERS = 50

T = TypeVar("T")


def text(value: Any, field: str, *, limit: int, required: bool = False, line: bool = False) -> str:
    """A string that PostgreSQL and a page can carry: at most `limit` characters, no NUL, no half
    surrogate. `line` folds white space, because titles stand on one line."""
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise Invalid("invalid_type", f"{field} must be text.", field=field)
    if len(value) > limit:
        raise Invalid("too_long", f"{field} has at most {limit:,} characters.", field=field)
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise Invalid("invalid_text", f"{field} has characters that are no text.", field=field)
    value = " ".join(value.split()) if line else value.strip()
    if required and not value:
        raise Invalid("required", f"{field} must not be empty.", field=field)
    return value


def title(value: Any) -> str:
    return text(value, "title", limit=TITLE_CHARS, required=True, line=True)


def description(value: Any) -> str:
    return text(value, "description", limit=TEXT_CHARS)


def body(value: Any) -> str:
    """The text of a comment."""
    return text(value, "body", limit=TEXT_CHARS, required=True)


def billing_code(value: Any) -> str:
    return text(value, "billing_code", limit=BILLING_CODE_CHARS, line=True)


def blocked_reason(value: Any) -> str:
    return text(value, "blocked_reason", limit=REASON_CHARS, line=True)


def status(value: Any) -> str:
    if value not in Issue.Status.values:
        raise Invalid(
            "invalid_status", "status is one of " + ", ".join(Issue.Status.values), field="status"
        )
    return str(value)


def priority(value: Any) -> int:
    """The rank of a priority given by its word (`high`) or its rank (1)."""
    for rank, label in Priority.choices:
        if value == label or (value == rank and not isinstance(value, bool)):
            return rank
    raise Invalid(
        "invalid_priority", "priority is one of " + ", ".join(Priority.labels), field="priority"
    )


def ours(value: T | None, company_id: uuid.UUID, field: str) -> T | None:
    """`value` if it is of this company. Raises NotFound, as for an id that does not exist."""
    if value is not None and getattr(value, "company_id", None) != company_id:
        raise NotFound(f"{field}: there is no such entry.")
    return value


def blockers(value: Iterable[Issue], company_id: uuid.UUID) -> list[Issue]:
    """The blocking issues without repeats, all of this company."""
    unique = {issue.id: issue for issue in value}
    if len(unique) > BLOCKERS:
        raise Invalid("too_many", f"At most {BLOCKERS} issues can block one.", field="blocked_by")
    for issue in unique.values():
        ours(issue, company_id, "blocked_by")
    return list(unique.values())
