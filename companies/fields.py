"""Text that comes in from outside, made clean or refused with the field's name."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from companies.errors import Invalid


def text(value: Any, field: str, *, limit: int, required: bool = False, line: bool = False) -> str:
    """A string that PostgreSQL and a page can carry: at most `limit` characters, no NUL, no half
    surrogate, trimmed. None is empty. `line` folds white space, for what stands on one line."""
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
    return str(value)


def is_link(url: str) -> bool:
    """May a page lead there? What agents name as an address may be anything."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)
