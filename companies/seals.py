"""The sealer: it chains what the activity log says, company by company, behind the writers' backs.

Writers do nothing for it: each row carries the number of the transaction that wrote it (a column's
default), and the sealer takes the rows of all transactions below the snapshot's horizon. Those have
ended, each of them: a transaction that stays open holds the horizon back, so it is never passed
over, however late it commits and whatever its rows say of their moment.

Read next: `chain.py` (the proof).
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import connection, transaction

from companies.errors import Conflict
from companies.models import Seal, Sealer

ROWS = 2_000  # of one step, which is one transaction
STEPS = 20  # of one round
SECONDS = 5.0  # after which a round takes no further step
UNKNOWN = "unknown"  # the identity of a cluster that keeps it to itself
START = b"\0" * 32  # what the first seal of a company follows

# The canonical bytes of a row `a`: a JSON array as PostgreSQL prints it, in UTF-8.
ROW_DIGEST = """
sha256(convert_to(jsonb_build_array(a.id, a.company_id,
    to_char(a.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), a.actor_type,
    a.actor_id, a.actor_name, a.run_id, a.action, a.entity_type, a.entity_id, a.entity_name,
    a.details)::text, 'UTF8'))
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of activity as the chain knows it; `xid` is the transaction that wrote it."""

    company_id: uuid.UUID
    id: uuid.UUID
    occurred_at: datetime
    digest: bytes
    xid: int


def digest(seal: Seal) -> bytes:
    """What a seal's digest must be, by its own fields (SHA-256)."""
    hashed = hashlib.sha256(bytes(seal.previous))
    hashed.update(seal.company_id.bytes)
    for number in (seal.sequence, seal.count, _micros(seal.sealed_at), _micros(seal.caught_up_at)):
        hashed.update(number.to_bytes(8, "big", signed=True))
    digests = bytes(seal.row_digests)
    for n, (row, moment) in enumerate(zip(seal.row_ids, seal.row_moments, strict=True)):
        hashed.update(row.bytes + _micros(moment).to_bytes(8, "big", signed=True))
        hashed.update(digests[32 * n : 32 * n + 32])
    return hashed.digest()


def advance(
    *, now: datetime, rows: int = ROWS, steps: int = STEPS, seconds: float = SECONDS
) -> int:
    """Seal what has been committed since, at most `steps` times `rows` rows, and begin no step
    after `seconds`; returns how many.

    Safe anywhere at any time: who finds another one at work leaves it to them, and a step that is
    cut leaves nothing. Raises Conflict when the database was moved to another cluster, which
    counts its transactions anew: then `adopt` has to come first.
    """
    done, deadline = 0, time.monotonic() + seconds
    for _ in range(steps):
        sealed = _step(rows, now)
        done += sealed
        if sealed < rows or time.monotonic() > deadline:
            break
    return done


def horizon(state: Sealer) -> int:
    """Every transaction with a lower number has ended."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        return int(cursor.fetchone()[0]) + state.offset


def cluster() -> str:
    """The identity of the database cluster; a dump restored elsewhere has another one. Where a
    host keeps it from us, all are one: then `adopt` is for who knows that it was moved."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT has_function_privilege('pg_control_system()', 'execute')")
        if cursor.fetchone() != (True,):
            return UNKNOWN
        cursor.execute("SELECT system_identifier::text FROM pg_control_system()")
        return str(cursor.fetchone()[0])


@transaction.atomic
def adopt(*, now: datetime) -> int:
    """Go on after the database was moved to another cluster: number transactions above all that
    were, and seal what no seal has. Returns how many rows that were. Writers wait meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute("LOCK TABLE companies_activity IN ACCESS EXCLUSIVE MODE")
        state = _mine()
        if state is None or state.cluster == cluster() != UNKNOWN:
            return 0
        cursor.execute("SELECT coalesce(max(xid), 0) FROM companies_activity")
        state.offset = max(cursor.fetchone()[0], state.at_xid)
        # A number of ours, never a caller's word: DDL takes no parameters.
        cursor.execute(
            "ALTER TABLE companies_activity ALTER COLUMN xid "
            f"SET DEFAULT pg_current_xact_id()::text::bigint + {int(state.offset)}"
        )
        rows = _read(_LEFT_OUT, {})
    for start in range(0, len(rows), ROWS):
        _seal(rows[start : start + ROWS], state, now)
    state.cluster, state.at_xid, state.at_row = cluster(), state.offset, uuid.UUID(int=2**128 - 1)
    state.caught_up_at = now
    state.save()
    return len(rows)


# --- a step --------------------------------------------------------------------------------------

_COLUMNS = f"a.company_id, a.id, a.occurred_at, {ROW_DIGEST}, coalesce(a.xid, 0)"
# The rest of the transaction at which the last step has stopped, then those after it. Apart, so
# that rows from before there were numbers, one heap of them, are walked by their key. Rows are
# chosen first, so that whatever the plan is none is hashed that is not taken.
_REST = f"""
SELECT {_COLUMNS} FROM (
    SELECT * FROM companies_activity
     WHERE xid = %(xid)s AND id > %(row)s ORDER BY id LIMIT %(rows)s
) a ORDER BY a.id
"""  # noqa: S608 - constants
_AFTER = f"""
SELECT {_COLUMNS} FROM (
    SELECT * FROM companies_activity
     WHERE xid > %(xid)s AND xid < %(horizon)s ORDER BY xid, id LIMIT %(rows)s
) a ORDER BY a.xid, a.id
"""  # noqa: S608 - constants
_LEFT_OUT = f"""
SELECT {_COLUMNS} FROM companies_activity a
 WHERE a.xid IS NOT NULL
   AND NOT EXISTS (SELECT FROM (SELECT unnest(row_ids) AS id FROM companies_seal) sealed
                    WHERE sealed.id = a.id)
 ORDER BY a.xid, a.id
"""  # noqa: S608 - constants


@transaction.atomic
def _step(rows: int, now: datetime) -> int:
    state = _mine()
    if state is None:
        return 0
    if state.cluster != cluster():
        raise Conflict(
            "audit_moved",
            "The database was moved to another cluster: run `manage.py audit adopt` once, so that "
            "the chain of the activity log goes on.",
        )
    # Asked before the rows are: what has ended then is seen by the statements that follow.
    values: dict[str, Any] = {
        "xid": state.at_xid,
        "row": state.at_row,
        "horizon": horizon(state),
        "rows": rows,
    }
    found = _read(_REST, {**values, "rows": rows})
    if len(found) < rows:
        found += _read(_AFTER, {**values, "rows": rows - len(found)})
    if found:
        _seal(found, state, now)
        state.at_xid, state.at_row = found[-1].xid, found[-1].id
    if len(found) < rows:
        state.caught_up_at = now
    state.save()
    return len(found)


def _mine() -> Sealer | None:
    """The sealer's row, locked; None when another process has it."""
    waiting = Sealer.objects.select_for_update(skip_locked=True)
    state = waiting.filter(id=Sealer.THE_ONE).first()
    if state is None and not Sealer.objects.exists():
        # Of two who come first, one waits for the other here. Where seals are already, its row was
        # lost: that is an end of the numbering, too.
        known = "" if Seal.objects.exists() else cluster()
        Sealer.objects.bulk_create(
            [Sealer(cluster=known, at_row=uuid.UUID(int=0))], ignore_conflicts=True
        )
        state = waiting.filter(id=Sealer.THE_ONE).first()
    return state


def _read(statement: str, values: dict[str, Any]) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [
            Row(company, row, moment, bytes(digest), xid)
            for company, row, moment, digest, xid in cursor.fetchall()
        ]


def _seal(rows: Sequence[Row], state: Sealer, now: datetime) -> None:
    """One more link for each company among the rows."""
    by_company: dict[uuid.UUID, list[Row]] = {}
    for row in rows:
        by_company.setdefault(row.company_id, []).append(row)
    heads = {
        seal.company_id: seal
        for seal in Seal.objects.filter(company_id__in=by_company)
        .order_by("company_id", "-sequence")
        .distinct("company_id")
        .only("company_id", "sequence", "digest")
    }
    Seal.objects.bulk_create(
        [
            _link(company, heads.get(company), theirs, state.caught_up_at, now)
            for company, theirs in by_company.items()
        ]
    )


def _link(
    company: uuid.UUID,
    head: Seal | None,
    rows: Sequence[Row],
    since: datetime | None,
    now: datetime,
) -> Seal:
    seal = Seal(
        company_id=company,
        sequence=head.sequence + 1 if head else 1,
        first_row=rows[0].id,
        last_row=rows[-1].id,
        count=len(rows),
        row_ids=[row.id for row in rows],
        row_moments=[row.occurred_at for row in rows],
        row_digests=b"".join(row.digest for row in rows),
        previous=bytes(head.digest) if head else START,
        sealed_at=now,
        caught_up_at=since,
    )
    seal.digest = digest(seal)
    return seal


def _micros(moment: datetime | None) -> int:
    """Since 1970, exactly; -1 for none."""
    if moment is None:
        return -1
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
