"""The way back, offered beside the message that something was done.

An offer is an address of ours and the fields to post there: nothing is remembered on the server,
so it works after a restart and on every web process. What must not be forged (the values that were
there before) travels signed, with a time limit; the verb that undoes checks rights and versions
like every other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.contrib import messages
from django.core import signing
from django.http import HttpRequest

from companies.errors import Conflict

SALT = "paperclip.undo"
SECONDS = 15 * 60
_MARK = "undo "


@dataclass(frozen=True, slots=True)
class Offer:
    """Where to post what, to take something back."""

    action: str
    fields: dict[str, str]


def offer(request: HttpRequest, words: str, action: str, fields: Mapping[str, str]) -> None:
    """Say on the next page that it is done, with a button that takes it back."""
    messages.success(request, words, extra_tags=f"{_MARK}{action}?{urlencode(fields)}")


def of(message: Any) -> Offer | None:
    """The offer that a message carries, None when it carries none."""
    tags = getattr(message, "extra_tags", None) or ""
    if not tags.startswith(_MARK):
        return None
    action, _, query = tags.removeprefix(_MARK).partition("?")
    return Offer(action, dict(parse_qsl(query, keep_blank_values=True)))


def seal(value: Any) -> str:
    """A JSON value as a signed token that fits a form field."""
    return signing.dumps(value, salt=SALT, compress=True)


def unseal(token: str) -> Any:
    """What `seal` was given. Raises Conflict when it is too late, or not ours."""
    try:
        return signing.loads(token, salt=SALT, max_age=SECONDS)
    except signing.BadSignature:
        raise Conflict("undo_expired", "It is too late to undo this.") from None
