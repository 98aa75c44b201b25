"""A new sealing key while everything runs: what was sealed is wrapped anew, a batch at a time.

    begin (another key is current) -> step, step, … (each a transaction) -> finish -> retire

Readers need nothing: until it is retired the old key opens what it has sealed. Writers and steps
seal by the current key, whose row they hold until they commit, so that after `begin` nothing more
is sealed by an old one. A rotation that was cut, or that two processes are at, goes on where it
is: what is left to do is what the rows say. Whoever comes to a rotation that another has finished
has nothing to do, though a later one may be under way by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from companies import keyring, second_factor, secrets
from companies.errors import Conflict
from companies.models import IdempotencyRecord, SealingKey, SecondFactor, Secret

ROWS = 100  # of one batch
RowId = Any  # a number or a UUID, as the table has it


@dataclass(frozen=True, slots=True)
class Place:
    """Where sealed values are kept: behind `prefix` in a column, each bound to its own context."""

    name: str
    table: str
    column: str
    prefix: bytes
    context: Callable[[list[RowId]], dict[RowId, bytes]]

    @property
    def sealed(self) -> str:
        """The statement's words for the sealed value."""
        return f"substring({self.column} FROM {len(self.prefix) + 1})"

    @property
    def holds(self) -> str:
        """Does the row have one at all? The prefix is a parameter."""
        return f"substring({self.column} FROM 1 FOR {len(self.prefix)}) = %(prefix)s"


def _of_secrets(ids: list[RowId]) -> dict[RowId, bytes]:
    return {
        row.id: secrets.context(row.company_id, row.name, row.version)
        for row in Secret.objects.filter(id__in=ids)
    }


def _of_answers(ids: list[RowId]) -> dict[RowId, bytes]:
    rows = IdempotencyRecord.objects.filter(id__in=ids).values_list("id", "fingerprint")
    return {row: fingerprint.encode() for row, fingerprint in rows}


def _of_factors(ids: list[RowId]) -> dict[RowId, bytes]:
    rows = SecondFactor.objects.filter(id__in=ids).values_list("id", "user_id")
    return {row: second_factor.context(user_id) for row, user_id in rows}


# Everything that is sealed: whoever seals something new adds it here.
PLACES = (
    Place("secrets", "companies_secret", "sealed", b"", _of_secrets),
    Place("second factors", "companies_secondfactor", "sealed", b"", _of_factors),
    Place("kept answers", "companies_idempotencyrecord", "body", b"\0", _of_answers),
)


@dataclass(slots=True)
class Count:
    """How much of a place is sealed by the current key (`done`), and how much by others."""

    place: str
    done: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What one batch did: where it has come to, how many were wrapped, whose key nobody knows."""

    at: RowId | None
    wrapped: int
    lost: list[RowId]


def counts() -> list[Count]:
    """What is sealed, and by which keys; changes nothing."""
    row = SealingKey.objects.filter(is_current=True).first()
    found = []
    for place in PLACES:
        values = {"prefix": place.prefix, "head": _head(row.id) if row else b""}
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT count(*) FILTER (WHERE {_IS_CURRENT.format(place=place)}), count(*)"  # noqa: S608
                f" FROM {place.table} WHERE {place.holds}",
                values,
            )
            done, every = cursor.fetchone()
        found.append(Count(place.name, done, every - done))
    return found


@transaction.atomic
def begin(*, now: datetime) -> tuple[SealingKey, bool]:
    """Make a new key the current one, unless a rotation is under way already, which goes on then.
    Returns the current key, and whether it is a new one.

    Raises CannotOpen when SECRET_KEY is not the one that the current key was wrapped by.
    """
    _take_turns()
    for row in SealingKey.objects.select_for_update().order_by("id"):
        if keyring.under_root(row):
            row.save(update_fields=["root", "wrapped"])
    under_way = SealingKey.objects.filter(is_current=True, rotated_at=None).first()
    if under_way is not None:
        return under_way, False
    SealingKey.objects.filter(is_current=True).update(is_current=False)
    made = keyring.new()
    made.created_at, made.rotated_at = now, None
    made.save(force_insert=True)
    return made, True


def step(place: Place, row: SealingKey, *, after: RowId | None, rows: int = ROWS) -> Step:
    """Wrap the next batch of a place by the current key, in a transaction of its own.

    Rows that somebody else holds are left for later; `after` is where the last step had come to.
    Once another key is current nothing is wrapped by this one, which may be retired at any time.
    """
    key = keyring.of(row)
    values = {"prefix": place.prefix, "head": _head(row.id), "after": after, "rows": rows}
    beyond = "" if after is None else "AND id > %(after)s"
    with transaction.atomic(), connection.cursor() as cursor:
        if not _held_as_current(row):
            return Step(None, 0, [])
        cursor.execute(
            f"SELECT id, {place.sealed} FROM {place.table}"  # noqa: S608 - constants
            f" WHERE {place.holds} AND NOT {_IS_CURRENT.format(place=place)} {beyond}"
            " ORDER BY id LIMIT %(rows)s FOR NO KEY UPDATE SKIP LOCKED",
            values,
        )
        found = [(each, bytes(sealed)) for each, sealed in cursor.fetchall()]
        contexts = place.context([each for each, _ in found])
        wrapped, lost = [], []
        for each, sealed in found:
            try:
                wrapped.append((place.prefix + keyring.rewrap(sealed, key, contexts[each]), each))
            except keyring.CannotOpen:
                lost.append(each)
        cursor.executemany(
            f"UPDATE {place.table} SET {place.column} = %s WHERE id = %s",  # noqa: S608
            wrapped,
        )
    return Step(found[-1][0] if found else None, len(wrapped), lost)


def passes(place: Place, row: SealingKey, *, rows: int = ROWS) -> Iterator[Step]:
    """All batches of a place, once over it."""
    after = None
    while True:
        done = step(place, row, after=after, rows=rows)
        if done.at is None:
            return
        yield done
        after = done.at


def is_over(row: SealingKey) -> bool:
    """Has somebody finished the rotation to this key?"""
    return not SealingKey.objects.filter(id=row.id, is_current=True, rotated_at=None).exists()


@transaction.atomic
def finish(row: SealingKey, *, now: datetime) -> bool:
    """Is the rotation done, by this call or by another's? False while something is left."""
    _take_turns()
    if is_over(row):
        return True
    if any(count.left for count in counts()):
        return False
    SealingKey.objects.filter(id=row.id, rotated_at=None).update(rotated_at=now)
    return True


@dataclass(frozen=True, slots=True)
class Retired:
    """An old key, and how many values it still seals: it is gone when those are none."""

    key_id: uuid.UUID
    used: int


@transaction.atomic
def retire() -> list[Retired]:
    """Delete each old key that nothing is sealed by any more. Raises Conflict when a rotation is
    under way."""
    _take_turns()
    current = SealingKey.objects.filter(is_current=True).first()
    if current is not None and current.rotated_at is None:
        raise Conflict("rotation_unfinished", "A rotation is under way: finish it first.")
    found = []
    for row in SealingKey.objects.select_for_update().filter(is_current=False).order_by("id"):
        used = sum(_used(place, row.id) for place in PLACES)
        found.append(Retired(row.id, used))
        if not used:
            row.delete()
    return found


# --- steps ---------------------------------------------------------------------------------------

_IS_CURRENT = "substring({place.sealed} FROM 1 FOR 20) = %(head)s"


def _used(place: Place, key_id: uuid.UUID) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT count(*) FROM {place.table}"  # noqa: S608 - constants
            f" WHERE {place.holds} AND {_IS_CURRENT.format(place=place)}",
            {"prefix": place.prefix, "head": _head(key_id)},
        )
        return int(cursor.fetchone()[0])


def _held_as_current(row: SealingKey) -> bool:
    """Is it the current key? It stays so until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM companies_sealingkey WHERE id = %s AND is_current FOR SHARE", [row.id]
        )
        return cursor.fetchone() is not None


def _head(key_id: uuid.UUID) -> bytes:
    return keyring.MAGIC + key_id.bytes


def _take_turns() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('sealing keys', 0))")
