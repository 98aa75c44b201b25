"""Sealing by envelope: each value has a data key of its own, which a sealing key wraps, which a
key derived from SECRET_KEY wraps.

    SECRET_KEY -> SealingKey (a row, some) -> data key (one a value) -> the value

All three by AES-256-GCM; a value is bound to its context (whose it is, which version). A sealing
key is replaced while everything runs (`rotation.py`): only the data keys are wrapped anew. What an
earlier version sealed with the derived key itself still opens.
"""

from __future__ import annotations

import hashlib
import secrets as random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from companies.models import SealingKey

# magic, sealing key's id, wrapped data key (nonce, key, tag), nonce, the sealed value with its tag
MAGIC = b"pcE1"
_ID, _WRAPPED = slice(4, 20), slice(20, 80)
HEAD = 20  # bytes that say by which key
_DIRECT, _ROOT = b"paperclip secrets", b"paperclip sealing keys"  # what keys are derived for


class CannotOpen(Exception):
    """A sealed value that no known key opens: SECRET_KEY was changed without a fallback."""


@dataclass(frozen=True, slots=True)
class Key:
    """A sealing key, ready for use."""

    id: uuid.UUID
    root: bytes
    cipher: AESGCM


_known: dict[uuid.UUID, Key] = {}


def seal(value: bytes, context: bytes) -> bytes:
    """The value sealed for `context`, without which nothing opens it.

    Until the caller's transaction ends no rotation makes another key the current one, so that
    nothing is ever sealed by a key that is being retired.
    """
    data_key = random.token_bytes(32)
    with transaction.atomic():
        key = current()
        return (
            MAGIC + key.id.bytes + _wrap(key, data_key) + _encrypt(AESGCM(data_key), value, context)
        )


def unseal(sealed: bytes, context: bytes) -> bytes:
    """What `seal` sealed. Raises CannotOpen."""
    if sealed[:4] != MAGIC:
        return _unseal_direct(sealed, context)
    try:
        return _decrypt(AESGCM(_data_key(sealed)), sealed[_WRAPPED.stop :], context)
    except InvalidTag:
        raise CannotOpen("This was sealed for another place, or was changed.") from None


def rewrap(sealed: bytes, key: Key, context: bytes) -> bytes:
    """The same sealed value with its data key wrapped by `key`. The value itself is opened only
    when it was sealed by an earlier version. Raises CannotOpen."""
    if sealed[:4] != MAGIC:
        data_key = random.token_bytes(32)
        value = _encrypt(AESGCM(data_key), _unseal_direct(sealed, context), context)
    else:
        data_key, value = _data_key(sealed), sealed[_WRAPPED.stop :]
    return MAGIC + key.id.bytes + _wrap(key, data_key) + value


# --- sealing keys --------------------------------------------------------------------------------


def current() -> Key:
    """The key that seals now; its row is locked against a change until the transaction ends."""
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT id, root, wrapped FROM companies_sealingkey WHERE is_current FOR SHARE"
            )
            row = cursor.fetchone()
        if row is not None:
            try:
                return _opened(*row)
            except CannotOpen:  # its SECRET_KEY is lost, and accepted to be: another one follows
                SealingKey.objects.filter(id=row[0]).update(is_current=False)
        # Of two who make one, one wins; and one that was just replaced is not found above.
        SealingKey.objects.bulk_create([new()], ignore_conflicts=True)


def new() -> SealingKey:
    """A key that nothing is sealed by yet, unsaved."""
    root = next(_roots())
    row = SealingKey(root=root.id, created_at=timezone.now(), rotated_at=timezone.now())
    row.wrapped = _encrypt(root.cipher, random.token_bytes(32), row.id.bytes)
    return row


def under_root(row: SealingKey) -> bool:
    """Wrap a key by this instance's SECRET_KEY when an older one has; true when that was so.
    Raises CannotOpen."""
    root = next(_roots())
    if bytes(row.root) == root.id:
        return False
    bare = _bare(row.id, bytes(row.root), bytes(row.wrapped))
    row.root, row.wrapped = root.id, _encrypt(root.cipher, bare, row.id.bytes)
    return True


def of(row: SealingKey) -> Key:
    """A row's key, ready for use. Raises CannotOpen."""
    return _opened(row.id, bytes(row.root), bytes(row.wrapped))


def openable() -> tuple[list[bytes], list[bytes]]:
    """The ids of the sealing keys that open here; and of the derived keys that earlier versions
    sealed with."""
    roots = {root.id for root in _roots()}
    keys = SealingKey.objects.values_list("id", "root")
    return [key.bytes for key, root in keys if bytes(root) in roots], direct_ids()


def direct_ids() -> list[bytes]:
    """The ids of the derived keys that earlier versions sealed with, the newest first."""
    return [_derived(master, _DIRECT)[0][:4] for master in _masters()]


# --- steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Root:
    id: bytes
    cipher: AESGCM


def _masters() -> tuple[str, ...]:
    return (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)


def _roots() -> Iterator[_Root]:
    """This instance's own first, then the older ones that it still knows."""
    for master in _masters():
        fingerprint, key = _derived(master, _ROOT)
        yield _Root(fingerprint[:8], AESGCM(key))


@lru_cache(maxsize=32)
def _derived(master: str, purpose: bytes) -> tuple[bytes, bytes]:
    """A key derived from a SECRET_KEY, after what it is known by."""
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(master.encode())
    return hashlib.sha256(key).digest(), key


def _opened(key_id: uuid.UUID, root: bytes, wrapped: bytes) -> Key:
    key = Key(key_id, bytes(root), AESGCM(_bare(key_id, bytes(root), bytes(wrapped))))
    _known[key_id] = key
    return key


def _bare(key_id: uuid.UUID, root: bytes, wrapped: bytes) -> bytes:
    for known in _roots():
        if known.id == root:
            try:
                return _decrypt(known.cipher, wrapped, key_id.bytes)
            except InvalidTag:
                break
    raise CannotOpen("This cannot be opened with the keys of this instance.")


def _data_key(sealed: bytes) -> bytes:
    key_id = uuid.UUID(bytes=sealed[_ID])
    key = _known.get(key_id)
    if key is None or key.root not in [root.id for root in _roots()]:
        row = SealingKey.objects.filter(id=key_id).first()
        if row is None:
            raise CannotOpen("This was sealed by a key that is gone.")
        key = of(row)
    return _decrypt(key.cipher, sealed[_WRAPPED], MAGIC + key_id.bytes)


def _wrap(key: Key, data_key: bytes) -> bytes:
    return _encrypt(key.cipher, data_key, MAGIC + key.id.bytes)


def _unseal_direct(sealed: bytes, context: bytes) -> bytes:
    """What an earlier version sealed: key's id (4 bytes), nonce, the value with its tag."""
    for master in _masters():
        fingerprint, key = _derived(master, _DIRECT)
        if fingerprint[:4] == sealed[:4]:
            try:
                return _decrypt(AESGCM(key), sealed[4:], context)
            except InvalidTag:
                break
    raise CannotOpen("This cannot be opened with the keys of this instance.")


def _encrypt(cipher: AESGCM, value: bytes, context: bytes) -> bytes:
    nonce = random.token_bytes(12)
    return nonce + cipher.encrypt(nonce, value, context)


def _decrypt(cipher: AESGCM, sealed: bytes, context: bytes) -> bytes:
    try:
        return cipher.decrypt(sealed[:12], sealed[12:], context)
    except ValueError:  # cut short
        raise InvalidTag from None
