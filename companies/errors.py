"""What a domain verb says when it will not: one family of exceptions, each with a machine code.

The API answers `{"error", "code", "details"}` with the status; a page shows the message at the
field. Anything else that escapes a verb is a fault of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Refusal(Exception):
    """An expected "no". `code` is for programs, `message` for people."""

    status = 422

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        field: str = "",
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = dict(details or {})
        self.field = field
        if status is not None:
            self.status = status


class Invalid(Refusal):
    """The input is malformed; `field` names where."""

    status = 400


class Forbidden(Refusal):
    status = 403


class NotFound(Refusal):
    """Unknown, or another company's: the caller cannot tell the two apart."""

    status = 404

    def __init__(self, message: str = "Not found.", *, code: str = "not_found") -> None:
        super().__init__(code, message)


class Conflict(Refusal):
    """The state has moved on. `details` tells what it is now."""

    status = 409


class RateLimited(Refusal):
    """Too many attempts; `retry_after` in seconds."""

    status = 429

    def __init__(self, message: str, *, retry_after: int, code: str = "rate_limited") -> None:
        super().__init__(code, message, details={"retryAfter": retry_after})
        self.retry_after = retry_after
