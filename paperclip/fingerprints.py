"""Do all instances of this database have the same keys? Asked at each start.

An instance with another SECRET_KEY would drop the queued tasks of the others, end their people's
sessions and be unable to open their stored secrets, and nothing would say why.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets as random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from paperclip.models import KeyFingerprint


class OtherKey(Exception):
    """The database is used with another key; the text is one sentence for the operator."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of this instance, the older ones that it still knows, and the variable's name."""

    name: str
    value: str
    older: Sequence[str]


def _keys() -> Iterator[Key]:
    # Stored secrets are sealed with a key that is derived from this one.
    yield Key("SECRET_KEY", settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS)


def check(*, now: datetime) -> None:
    """Raises OtherKey when another key is in use here. The first instance of a database notes its
    own; one that knows the noted key as an older one notes its new one."""
    for key in _keys():
        noted = KeyFingerprint.objects.filter(name=key.name).first()
        if noted is None:
            KeyFingerprint.objects.bulk_create([_noted(key, now)], ignore_conflicts=True)
            noted = KeyFingerprint.objects.get(name=key.name)
        if _fits(noted, key.value):
            continue
        if not any(_fits(noted, older) for older in key.older):
            raise OtherKey(
                f"The {key.name} of this instance is not the one that this database is used with:"
                f" give it the same one; to change it, name the old one in {key.name}_FALLBACKS,"
                " or run `manage.py accept_key` when that is lost, with all that it had sealed."
            )
        accept(name=key.name, now=now)


def accept(*, name: str | None = None, now: datetime) -> list[str]:
    """From now on this instance's keys (or the one called `name`) are the ones. Returns which."""
    changed = [key for key in _keys() if name in (None, key.name)]
    KeyFingerprint.objects.bulk_create(
        [_noted(key, now) for key in changed],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["salt", "digest", "noted_at"],
    )
    return [key.name for key in changed]


def _noted(key: Key, now: datetime) -> KeyFingerprint:
    salt = random.token_hex(16)
    return KeyFingerprint(name=key.name, salt=salt, digest=_digest(key.value, salt), noted_at=now)


def _fits(noted: KeyFingerprint, value: str) -> bool:
    return hmac.compare_digest(noted.digest, _digest(value, noted.salt))


def _digest(value: str, salt: str) -> str:
    """Slow (some 30 ms), so that a short key cannot be found from it by trying."""
    return hashlib.scrypt(
        value.encode(), salt=b"paperclip " + salt.encode(), n=2**14, r=8, p=1, dklen=32
    ).hex()
