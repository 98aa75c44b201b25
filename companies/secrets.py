"""Secrets at rest: sealed by envelope (`keyring.py`), bound to their company, name and version.

Write-only: no page, answer or log ever shows a value. Only the engine opens one, at the moment a
run needs it, and each opening is written down (`SecretRead`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import F

from companies import activity, keyring
from companies.errors import Invalid, NotFound
from companies.keyring import CannotOpen as CannotOpen
from companies.models import Company, Secret, SecretRead

MAX_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class Reader:
    """For what a secret is opened, and by which run or person."""

    purpose: SecretRead.Purpose = SecretRead.Purpose.OTHER
    run_id: uuid.UUID | None = None
    user_id: uuid.UUID | None = None


SOMEBODY = Reader()


def context(company_id: uuid.UUID, name: str, version: int) -> bytes:
    """What a secret's value is bound to."""
    return f"{company_id}|{name}|{version}".encode()


def _open(secret: Secret) -> str:
    try:
        return _value(secret)
    except CannotOpen:
        # Its key may have been retired since the row was read; then the row says another one now.
        again = Secret.objects.filter(id=secret.id).first()
        if again is not None and bytes(again.sealed) != bytes(secret.sealed):
            return _value(again)
        raise CannotOpen(
            f"The secret {secret.name} cannot be opened with the keys of this instance."
        ) from None


def _value(secret: Secret) -> str:
    bound_to = context(secret.company_id, secret.name, secret.version)
    return keyring.unseal(bytes(secret.sealed), bound_to).decode()


@transaction.atomic
def put(*, company: Company, name: str, value: str, actor: activity.Actor, now: datetime) -> Secret:
    """Store a new secret or a new version of it. Raises Invalid for a bad name or value."""
    if not value or len(value.encode(errors="replace")) > MAX_BYTES or "\x00" in value:
        raise Invalid("secret_value", "A secret has 1 to 16,384 bytes and no NUL.", field="value")
    if "\x00" in name:
        raise Invalid("secret_name", "A name has no NUL.", field="name")
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
    secret.sealed = keyring.seal(value.encode(), context(company.id, name, secret.version))
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
    if "\x00" in name:
        raise NotFound("There is no such secret.")
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
    known, direct = keyring.openable()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM companies_secret WHERE CASE"
            " WHEN substring(sealed FROM 1 FOR 4) = %(magic)s"
            " THEN substring(sealed FROM 5 FOR 16) <> ALL (%(known)s::bytea[])"
            " ELSE substring(sealed FROM 1 FOR 4) <> ALL (%(direct)s::bytea[]) END",
            {"magic": keyring.MAGIC, "known": known, "direct": direct},
        )
        return int(cursor.fetchone()[0])


def reveal(
    *, company_id: uuid.UUID, names: Iterable[str], reader: Reader = SOMEBODY, now: datetime
) -> dict[str, str]:
    """The values of the secrets that exist among `names`. Raises CannotOpen.

    For the engine alone, at the start of a run, and for tests of a configuration. It is written
    down who read which.
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
        SecretRead.objects.bulk_create(
            SecretRead(
                company_id=company_id,
                secret_id=secret.id,
                purpose=reader.purpose,
                run_id=reader.run_id,
                user_id=reader.user_id,
                read_at=now,
            )
            for secret in wanted
        )
    return values
