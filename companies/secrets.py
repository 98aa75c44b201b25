"""Secrets at rest: sealed with AES-256-GCM, bound to their company, name and version.

The key is derived from `SECRET_KEY`; older keys in `SECRET_KEY_FALLBACKS` still open what they
sealed. Write-only: no page, answer or log ever shows a value. Only the engine opens one, at the
moment a run needs it.
"""

from __future__ import annotations

import hashlib
import secrets as random
import uuid
from collections.abc import Iterable
from datetime import datetime

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import F

from companies import activity
from companies.errors import Invalid, NotFound
from companies.models import Company, Secret

MAX_BYTES = 16_384


class CannotOpen(Exception):
    """A sealed value that no known key opens: SECRET_KEY was changed without a fallback."""


def _cipher(master: str) -> tuple[bytes, AESGCM]:
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"paperclip secrets").derive(
        master.encode()
    )
    return hashlib.sha256(key).digest()[:4], AESGCM(key)


def _context(company_id: uuid.UUID, name: str, version: int) -> bytes:
    return f"{company_id}|{name}|{version}".encode()


def seal(value: bytes, context: bytes) -> bytes:
    """The value sealed for `context`, without which nothing opens it."""
    key_id, cipher = _cipher(settings.SECRET_KEY)
    nonce = random.token_bytes(12)
    return key_id + nonce + cipher.encrypt(nonce, value, context)


def unseal(sealed: bytes, context: bytes) -> bytes:
    """What `seal` sealed. Raises CannotOpen."""
    for master in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        key_id, cipher = _cipher(master)
        if key_id == sealed[:4]:
            try:
                return cipher.decrypt(sealed[4:16], sealed[16:], context)
            except InvalidTag:
                break
    raise CannotOpen("This cannot be opened with the keys of this instance.")


def _open(secret: Secret) -> str:
    context = _context(secret.company_id, secret.name, secret.version)
    try:
        return unseal(bytes(secret.sealed), context).decode()
    except CannotOpen:
        raise CannotOpen(
            f"The secret {secret.name} cannot be opened with the keys of this instance."
        ) from None


@transaction.atomic
def put(*, company: Company, name: str, value: str, actor: activity.Actor, now: datetime) -> Secret:
    """Store a new secret or a new version of it. Raises Invalid for a bad name or value."""
    if not value or len(value.encode(errors="replace")) > MAX_BYTES or "\x00" in value:
        raise Invalid("secret_value", "A secret has 1 to 16,384 bytes and no NUL.", field="value")
    # A row that is not there yet cannot be locked: who stores takes turns by company.
    Company.objects.select_for_update(no_key=True).get(id=company.id)
    secret = Secret.objects.select_for_update().filter(company=company, name=name).first()
    made = secret is None
    if secret is None:
        secret = Secret(company=company, name=name, version=0, sealed=b"")
        try:
            secret.clean_fields(exclude=["sealed"])
        except ValidationError as error:
            raise Invalid("secret_name", "; ".join(error.messages), field="name") from None
    secret.version += 1
    secret.sealed = seal(value.encode(), _context(company.id, name, secret.version))
    secret.save()
    activity.record(
        company_id=company.id,
        actor=actor,
        action="secret.created" if made else "secret.rotated",
        entity_type="secret",
        entity_id=secret.id,
        entity_name=name,
        details={"version": secret.version},
        now=now,
    )
    return secret


@transaction.atomic
def delete(*, company: Company, name: str, actor: activity.Actor, now: datetime) -> None:
    """Forget a secret. Raises NotFound."""
    secret = Secret.objects.select_for_update().filter(company=company, name=name).first()
    if secret is None:
        raise NotFound("There is no such secret.")
    secret_id = secret.id
    secret.delete()
    activity.record(
        company_id=company.id,
        actor=actor,
        action="secret.deleted",
        entity_type="secret",
        entity_id=secret_id,
        entity_name=name,
        now=now,
    )


def names(company_id: uuid.UUID) -> list[str]:
    """The names of a company's secrets, in order."""
    return list(Secret.objects.for_company(company_id).values_list("name", flat=True))


def unopenable() -> int:
    """How many stored secrets, of all companies, were sealed with a key that nobody knows here."""
    known = [_cipher(master)[0] for master in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM companies_secret"
            " WHERE substring(sealed FROM 1 FOR 4) <> ALL (%s::bytea[])",
            [known],
        )
        return int(cursor.fetchone()[0])


def reveal(*, company_id: uuid.UUID, names: Iterable[str], now: datetime) -> dict[str, str]:
    """The values of the secrets that exist among `names`. Raises CannotOpen.

    For the engine alone, at the start of a run.
    """
    asked = set(names)
    if not asked:
        return {}
    wanted = list(Secret.objects.for_company(company_id).filter(name__in=asked))
    values = {secret.name: _open(secret) for secret in wanted}
    if wanted:
        Secret.objects.filter(id__in=[s.id for s in wanted]).update(
            last_used_at=now, updated_at=F("updated_at")
        )
    return values
