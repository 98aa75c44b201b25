"""An issue's fields as they come in from outside, made clean or refused with the field's name."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, TypeVar

from companies.errors import Invalid, NotFound
from companies.fields import text
from issues.models import Issue, Priority

TITLE_CHARS = 300
TEXT_CHARS = 100_000
REASON_CHARS = 500
BILLING_CODE_CHARS = 80
BLOCKERS = 50

# Django puts these together each time that they are asked for.
_STATUSES = tuple(Issue.Status.values)
_PRIORITIES = tuple(Priority.choices)

T = TypeVar("T")


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
    if value not in _STATUSES:
        raise Invalid("invalid_status", "status is one of " + ", ".join(_STATUSES), field="status")
    return str(value)


def priority(value: Any) -> int:
    """The rank of a priority given by its word (`high`) or its rank (1)."""
    for rank, label in _PRIORITIES:
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
