"""Personal API keys of operators: made, listed, revoked. The token is shown once."""

from __future__ import annotations

import uuid
from datetime import datetime

from companies import keys, moments
from companies.errors import Invalid, NotFound
from companies.models import OperatorKey, User


def create(
    *, user: User, name: str, now: datetime, expires_at: datetime | None = None
) -> tuple[OperatorKey, str]:
    """A new key and its token. Raises Invalid for an empty name or a past expiry."""
    name = name.strip()
    if not name or len(name) > 120:
        raise Invalid("key_name", "A key needs a name of 1 to 120 characters.", field="name")
    if expires_at is not None and moments.sound(expires_at, "expiresAt") <= now:
        raise Invalid("key_expiry", "The expiry lies in the past.", field="expiresAt")
    minted = keys.mint(keys.OPERATOR)
    key = OperatorKey.objects.create(
        user=user, name=name, lookup=minted.lookup, digest=minted.digest, expires_at=expires_at
    )
    return key, minted.token


def revoke(*, user: User, key_id: uuid.UUID, now: datetime) -> None:
    """Make a key of this user worthless, at once. Raises NotFound."""
    if not OperatorKey.objects.filter(id=key_id, user=user, revoked_at=None).update(revoked_at=now):
        raise NotFound("There is no such key.")
