"""The proof that the activity log is what it was: the chain of seals against the rows.

`verify` reads a company's chain from its first link on and stops at the first thing that is wrong.
Months in the archive are not in the table: their rows are counted, and proved as well where the
caller brings what the files hold. The chain itself is proved in either case.

What it cannot show: that somebody who owns the database wrote a whole new chain. For that a head is
kept elsewhere (`heads`), and compared (`contains`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db import connection, transaction

from companies import seals
from companies.models import Seal, Sealer

# No honest writer commits a row so long after the moment that it tells.
LATE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Months:
    """Months of activity, by their first days, that are (`away`) or were (`restored`) in the
    archive; `read` gives the digests of rows as the files have them, when these are to be read."""

    away: Collection[date] = ()
    restored: Collection[date] = ()
    read: Callable[[Collection[uuid.UUID]], Mapping[uuid.UUID, bytes]] | None = None


NO_MONTHS = Months()


@dataclass(frozen=True, slots=True)
class Broken:
    """The first thing that is wrong: what (changed, missing, inserted, twice, seal, head),
    under which seal, and which row."""

    what: str
    told: str
    sequence: int = 0
    row: uuid.UUID | None = None


@dataclass(slots=True)
class Report:
    """What was looked at in a company's chain. Rows: `proved` against their seal, in the table or
    in an archive's file (`filed` of them), `archived` (their seals are sound, their month is in
    the archive and was not read), `waiting` for a seal."""

    company_id: uuid.UUID
    seals: int = 0
    proved: int = 0
    archived: int = 0
    filed: int = 0
    waiting: int = 0
    broken: Broken | None = None


def heads(company_id: uuid.UUID | None = None) -> list[dict[str, Any]]:
    """The last link of each chain (or the company's), as one JSON object each."""
    found = Seal.objects.all() if company_id is None else Seal.objects.for_company(company_id)
    last = found.order_by("company_id", "-sequence").distinct("company_id")
    return [
        {
            "company": str(seal.company_id),
            "sequence": seal.sequence,
            "digest": bytes(seal.digest).hex(),
            "sealedAt": seal.sealed_at.astimezone(UTC).isoformat(),
        }
        for seal in last.defer("row_ids", "row_moments", "row_digests")
    ]


def contains(head: Mapping[str, Any]) -> Broken | None:
    """Does the company's chain still contain this head? None when it does."""
    told = f"head {head['sequence']} of company {head['company']}"
    seal = Seal.objects.filter(company_id=head["company"], sequence=head["sequence"]).first()
    if seal is None:
        return Broken("head", f"{told} is not in the chain any more: it was cut or replaced")
    if bytes(seal.digest).hex() != head["digest"]:
        return Broken("head", f"{told} is another one now: the chain was written anew")
    return None


@contextmanager
def snapshot() -> Iterator[None]:
    """A transaction in which everything is seen as it is at one moment, however long it takes."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield


def verify(company_id: uuid.UUID, months: Months = NO_MONTHS) -> Report:
    """Prove one company's chain, within a `snapshot`."""
    report = Report(company_id)
    report.broken = _links(report, months) or _beside(report, months)
    return report


def _links(report: Report, months: Months) -> Broken | None:
    """The chain, link by link, and the rows under each."""
    previous, began = seals.START, None
    while True:
        after = report.seals
        seal = (
            Seal.objects.for_company(report.company_id)
            .filter(sequence__gt=after)
            .order_by("sequence")
            .first()
        )
        if seal is None:
            return None
        began = began or seal.sealed_at
        wrong = _link(seal, after + 1, previous) or _rows(seal, began, report, months)
        if wrong is not None:
            return wrong
        previous = bytes(seal.digest)
        report.seals = seal.sequence


def _link(seal: Seal, expected: int, previous: bytes) -> Broken | None:
    number = seal.sequence
    if number != expected:
        return Broken("seal", f"seal {expected} is missing", expected)
    counts = {seal.count, len(seal.row_ids), len(seal.row_moments), len(seal.row_digests) // 32}
    if len(counts) > 1 or seal.digest != seals.digest(seal):
        return Broken("seal", f"seal {number} is not what was sealed: it was changed", number)
    if bytes(seal.previous) != previous:
        return Broken("seal", f"seal {number} does not follow seal {number - 1}", number)
    return None


_FOUND = f"""
SELECT a.id, {seals.ROW_DIGEST} FROM companies_activity a
 WHERE a.id = ANY(%(ids)s) AND a.company_id = %(company)s
"""  # noqa: S608 - a constant


def _rows(seal: Seal, began: datetime, report: Report, months: Months) -> Broken | None:
    """Is each row of a link there, and says what it said?"""
    with connection.cursor() as cursor:
        cursor.execute(_FOUND, {"ids": seal.row_ids, "company": report.company_id})
        found = {row: bytes(digest) for row, digest in cursor.fetchall()}
    gone = {
        row
        for row, moment in zip(seal.row_ids, seal.row_moments, strict=True)
        if row not in found and _month(moment) in months.away
    }
    filed = months.read(gone) if months.read and gone else {}
    digests = bytes(seal.row_digests)
    for n, (row, moment) in enumerate(zip(seal.row_ids, seal.row_moments, strict=True)):
        if row in gone and months.read is None:
            report.archived += 1
            continue
        where = f"row {row} of {moment:%Y-%m-%d %H:%M:%S} (seal {seal.sequence})"
        said = found.get(row, filed.get(row))
        if said is None:
            return Broken("missing", f"{where} is missing", seal.sequence, row)
        if said != digests[32 * n : 32 * n + 32]:
            return Broken("changed", f"{where} was changed", seal.sequence, row)
        if _is_late(moment, seal.caught_up_at, seal.sealed_at, began):
            told = f"{where} was inserted: it was not there on {seal.caught_up_at:%Y-%m-%d}"
            return Broken("inserted", told, seal.sequence, row)
        report.proved += 1
        report.filed += row in gone
    return None


def _is_late(
    moment: datetime, caught_up_at: datetime | None, at: datetime, began: datetime
) -> bool:
    """Was this row written long after its moment? Not so what a chain found in its first day:
    that is older than the chain."""
    return caught_up_at is not None and at - began > LATE and moment < caught_up_at - LATE


# Rows that no seal has, the oldest first, and rows that two have.
_BESIDE = """
WITH sealed AS MATERIALIZED (
    SELECT unnest(row_ids) AS id FROM companies_seal WHERE company_id = %(company)s)
SELECT a.id, a.occurred_at, a.xid IS NULL,
       coalesce((a.xid, a.id) > (%(xid)s, %(row)s) AND a.xid < %(next)s, false)
  FROM companies_activity a
 WHERE a.company_id = %(company)s AND NOT EXISTS (SELECT FROM sealed WHERE sealed.id = a.id)
 ORDER BY a.occurred_at, a.id
"""
_TWICE = """
SELECT id, max(sequence) FROM (
    SELECT unnest(row_ids) AS id, sequence FROM companies_seal WHERE company_id = %(company)s
) AS sealed GROUP BY id HAVING count(*) > 1 ORDER BY 2, 1 LIMIT 1
"""


def _beside(report: Report, months: Months) -> Broken | None:
    """Is there anything that the chain does not know, or knows twice?"""
    state = Sealer.objects.first() or Sealer(at_row=uuid.UUID(int=0))
    first = Seal.objects.for_company(report.company_id).order_by("sequence").first()
    values: dict[str, Any] = {
        "company": report.company_id,
        "xid": state.at_xid,
        "row": state.at_row,
    }
    with connection.cursor() as cursor:
        cursor.execute(_TWICE, values)
        for row, sequence in cursor.fetchall():
            return Broken("twice", f"row {row} is sealed twice", sequence, row)
        cursor.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        upcoming = cursor.fetchone()[0] + state.offset
        cursor.execute(_BESIDE, {**values, "next": upcoming})
        for row, moment, has_no_number, is_waiting in cursor:
            if has_no_number and _month(moment) in months.restored:
                continue  # from a file that is older than the numbers, and than the chain
            at, began = state.caught_up_at, first.sealed_at if first else moment
            if not is_waiting or (at is not None and _is_late(moment, at, at, began)):
                told = f"row {row} of {moment:%Y-%m-%d %H:%M:%S} is in no seal: it was inserted"
                return Broken("inserted", told, 0, row)
            report.waiting += 1
    return None


def _month(moment: datetime) -> date:
    return moment.astimezone(UTC).date().replace(day=1)
