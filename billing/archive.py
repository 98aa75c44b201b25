"""The archive: old months of the big tables as files that prove what they hold.

    attached -> DETACHED -> EXPORTED (written, read back, found equal) -> DROPPED
                                                                            |
    attached <- RESTORED <--------------------------------------------------+

Each step is committed with its row, so that an archive that was cut goes on where it stopped and
nothing is dropped before its file was read back. The roll-up and the totals stay in the database:
pages about old months remain exact. A file is gzipped JSON, one row a line, beside a manifest
with count, sums and SHA-256.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from billing import durable
from billing.ledger import OLDEST
from billing.models import ArchivedPartition
from companies import partitions
from companies.errors import Conflict, Invalid, NotFound

State = ArchivedPartition.State

# What is added up in the manifest, beside the number of rows.
SUMS = {
    "billing_costevent": ("cost_micros", "input_tokens", "output_tokens"),
    "agents_runevent": ("seq",),
    "companies_activity": (),
}
# A month may still get late receipts, and idempotency keys, for so long after its end.
REST = OLDEST + timedelta(days=5)


class ArchiveError(Exception):
    """A file does not hold what its manifest says. Nothing was dropped or attached."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a file or a table holds."""

    rows: int
    sums: dict[str, int]


def due(*, keep_months: int, now: datetime) -> list[tuple[str, date]]:
    """Months to archive: older than the `keep_months` last full ones, and at rest.

    Raises Invalid for fewer than one month.
    """
    if keep_months < 1:
        raise Invalid("keep_invalid", "Keep at least one full month.", field="keepMonths")
    limit = partitions.month_start(now)
    for _ in range(keep_months):
        limit = partitions.month_start(limit - timedelta(days=1))
    found = []
    for table in SUMS:
        for month in _months(table):
            start = datetime(month.year, month.month, 1, tzinfo=UTC)
            if start < limit and partitions.next_month(start) + REST < now:
                found.append((table, month))
    started = ArchivedPartition.objects.filter(state__in=[State.DETACHED, State.EXPORTED])
    return sorted({*found, *started.values_list("table", "month")})


def archive(*, table: str, month: date, folder: Path, now: datetime) -> ArchivedPartition:
    """Take one month of one table to a file and out of the database. Goes on where an earlier
    attempt stopped.

    Raises NotFound when there is no such month, ArchiveError when the file read back differs.
    """
    _check_table(table)
    name = _name(table, month)
    entry = ArchivedPartition.objects.filter(table=table, month=month).first()
    if entry is None or entry.state == State.RESTORED:
        entry = _detach(table, month, name, entry, now)
    if entry.state == State.DETACHED:
        _export(entry, name, folder, now)
    if entry.state == State.EXPORTED:
        _drop(entry, name, folder, now)
    return entry


def folder() -> Path:
    """Where the files of this instance lie."""
    return Path(settings.DATA_DIR) / "archive"


def take_due(keep_months: int) -> None:
    """Everything that is due, by a worker; what somebody else is at is left to them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(hashtextextended('archive', 0))")
        if cursor.fetchone() != (True,):
            return
    try:
        now = timezone.now()
        for table, month in due(keep_months=keep_months, now=now):
            archive(table=table, month=month, folder=folder(), now=now)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(hashtextextended('archive', 0))")


def restore(*, table: str, month: date, folder: Path, now: datetime) -> ArchivedPartition:
    """Bring an archived month back: verified, loaded, verified again, attached.

    Raises NotFound when it was not archived, ArchiveError when the file is not what it was.
    """
    _check_table(table)
    entry = ArchivedPartition.objects.filter(table=table, month=month, state=State.DROPPED).first()
    if entry is None:
        raise NotFound("That month is not in the archive.")
    path = folder / entry.file
    _verify(entry, path)
    name = _name(table, month)
    start = datetime(month.year, month.month, 1, tzinfo=UTC)
    _load(entry, path, name)
    for constraint, definition in _references(table).items():
        # Known and checked before, so that the attachment need not check them under its lock.
        durable.briefly(
            lambda c=constraint, d=definition: _change(name, f'ADD CONSTRAINT "{c}" {d} NOT VALID')  # type: ignore[misc]
        )
        _change(name, f'VALIDATE CONSTRAINT "{constraint}"')
    start = datetime(month.year, month.month, 1, tzinfo=UTC)
    end = partitions.next_month(start)

    def attach() -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                f'ALTER TABLE "{table}" ATTACH PARTITION "{name}" FOR VALUES '
                f"FROM ('{start.isoformat()}') TO ('{end.isoformat()}')"
            )
        _advance(entry, State.RESTORED, now)

    durable.briefly(attach)
    _change(name, f'DROP CONSTRAINT "{name}_month"')  # from here on its bounds say so
    return entry


def verify(*, entry: ArchivedPartition, folder: Path) -> None:
    """Read a file and compare it with its manifest. Raises ArchiveError."""
    _verify(entry, folder / entry.file)


def copy_lines(entry: ArchivedPartition, folder: Path, *, into: str) -> None:
    """Copy a file's lines into a table of ours that has one column of JSON."""
    with connection.cursor() as cursor, cursor.copy(f"COPY {into} FROM STDIN {_RAW}") as copy:
        for block in _blocks(folder / entry.file):
            copy.write(block)


# --- steps -------------------------------------------------------------------------------------


def _detach(
    table: str, month: date, name: str, entry: ArchivedPartition | None, now: datetime
) -> ArchivedPartition:
    """Out of the table. The lock that it takes is asked for briefly and often, so that writers
    behind it never wait long."""
    if month not in _months(table):
        raise NotFound(f"{table} has no month {month:%Y-%m}.")
    start = datetime(month.year, month.month, 1, tzinfo=UTC)
    if partitions.next_month(start) + REST >= now:
        raise Conflict("month_not_at_rest", f"{month:%Y-%m} may still get late receipts.")

    def detach() -> ArchivedPartition:
        # Not CONCURRENTLY, which PostgreSQL refuses beside a DEFAULT partition.
        with connection.cursor() as cursor:
            cursor.execute(f'ALTER TABLE "{table}" DETACH PARTITION "{name}"')
        detached, _ = ArchivedPartition.objects.update_or_create(
            table=table,
            month=month,
            defaults={"state": State.DETACHED, "updated_at": now},
            create_defaults={"state": State.DETACHED, "created_at": now, "updated_at": now},
        )
        return detached

    return durable.briefly(detach)


def _export(entry: ArchivedPartition, name: str, folder: Path, now: datetime) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = f"{name}.jsonl.gz"
    proof = _proof_of_table(entry.table, name)
    unfinished = folder / f".{file}.part"
    with unfinished.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as out:
        with connection.cursor() as cursor:
            rows = f'SELECT row_to_json(t) FROM "{name}" t ORDER BY {_order(entry.table)}'  # noqa: S608
            with cursor.copy(f"COPY ({rows}) TO STDOUT {_RAW}") as copy:
                for block in copy:
                    out.write(block)
    _sync(unfinished)
    entry.file, entry.rows, entry.sums = file, proof.rows, proof.sums
    entry.sha256 = _sha256(unfinished)
    _verify(entry, unfinished)
    os.replace(unfinished, folder / file)
    manifest = folder / f"{name}.manifest.json"
    manifest.write_text(json.dumps(_manifest(entry, now), indent=2) + "\n", encoding="utf-8")
    _sync(manifest)
    _advance(entry, State.EXPORTED, now)


def _load(entry: ArchivedPartition, path: Path, name: str) -> None:
    """The file as a table beside the big one, proved, with a CHECK that spares the attachment
    from reading it again. What an earlier attempt has left is replaced."""
    start = datetime(entry.month.year, entry.month.month, 1, tzinfo=UTC)
    end = partitions.next_month(start)
    column = _column(entry.table)
    with transaction.atomic(), connection.cursor() as cursor:
        # Names come from SUMS and dates, never from outside.
        cursor.execute(f'DROP TABLE IF EXISTS "{name}"')
        cursor.execute(f'CREATE TABLE "{name}" (LIKE "{entry.table}" INCLUDING ALL)')
        cursor.execute("CREATE TEMP TABLE archived_line (line json) ON COMMIT DROP")
        with cursor.copy(f"COPY archived_line FROM STDIN {_RAW}") as copy:
            for block in _blocks(path):
                copy.write(block)
        cursor.execute(
            f'INSERT INTO "{name}" SELECT loaded.* FROM archived_line, '  # noqa: S608
            f'json_populate_record(NULL::"{entry.table}", line) loaded'
        )
        if _proof_of_table(entry.table, name) != Proof(entry.rows, entry.sums):
            raise ArchiveError(f"{name}: what was loaded is not what was archived.")
        cursor.execute(
            f'ALTER TABLE "{name}" ADD CONSTRAINT "{name}_month" CHECK ({column} IS NOT NULL '
            f"AND {column} >= '{start.isoformat()}' AND {column} < '{end.isoformat()}')"
        )


def _drop(entry: ArchivedPartition, name: str, folder: Path, now: datetime) -> None:
    _check_hash(entry, folder / entry.file)
    for constraint in _references(name):
        # A table with references locks what it refers to, agents and companies, when it goes;
        # one without them goes alone, however long that takes.
        durable.briefly(lambda c=constraint: _change(name, f'DROP CONSTRAINT "{c}"'))  # type: ignore[misc]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f'DROP TABLE "{name}"')
        _advance(entry, State.DROPPED, now)


def _references(table: str) -> dict[str, str]:
    """The foreign keys of a table: their names and what they say."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE conrelid = to_regclass(%s) AND contype = 'f' ORDER BY conname",
            [table],
        )
        return dict(cursor.fetchall())


def _change(name: str, change: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER TABLE "{name}" {change}')


def _advance(entry: ArchivedPartition, state: str, now: datetime) -> None:
    entry.state, entry.updated_at = state, now
    entry.save()


# --- proofs ------------------------------------------------------------------------------------

# One JSON text a line, unescaped: JSON never holds these two characters as they are.
_RAW = "(FORMAT csv, DELIMITER E'\\x01', QUOTE E'\\x02')"


def _verify(entry: ArchivedPartition, path: Path) -> None:
    _check_hash(entry, path)
    if _proof_of_file(entry.table, path) != Proof(entry.rows, entry.sums):
        raise ArchiveError(f"{path.name} does not hold what its manifest says.")


def _check_hash(entry: ArchivedPartition, path: Path) -> None:
    if not path.is_file():
        raise ArchiveError(f"{path.name} is not there.")
    if _sha256(path) != entry.sha256:
        raise ArchiveError(f"{path.name} has changed: its SHA-256 is another.")


def _proof_of_file(table: str, path: Path) -> Proof:
    rows, sums = 0, dict.fromkeys(SUMS[table], 0)
    with gzip.open(path, "rb") as lines:
        for line in lines:
            row = orjson.loads(line)
            rows += 1
            for column in sums:
                sums[column] += row[column] or 0
    return Proof(rows, sums)


def _proof_of_table(table: str, name: str) -> Proof:
    columns = SUMS[table]
    wanted = ", ".join(["COUNT(*)", *(f"COALESCE(SUM({each}), 0)" for each in columns)])
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT {wanted} FROM "{name}"')  # noqa: S608 - constants and dates
        rows, *sums = cursor.fetchone()
    return Proof(int(rows), {name: int(each) for name, each in zip(columns, sums, strict=True)})


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    with gzip.open(path, "rb") as file:
        while block := file.read(1 << 18):
            yield block


def _manifest(entry: ArchivedPartition, now: datetime) -> dict[str, Any]:
    return {
        "table": entry.table,
        "month": f"{entry.month:%Y-%m}",
        "file": entry.file,
        "format": "one JSON object a line, gzip",
        "rows": entry.rows,
        "sums": entry.sums,
        "sha256": entry.sha256,
        "archivedAt": now.astimezone(UTC).isoformat(timespec="seconds"),
    }


# --- names -------------------------------------------------------------------------------------


def _check_table(table: str) -> None:
    if table not in SUMS:
        raise NotFound(f"{table} is not archived.")


def _name(table: str, month: date) -> str:
    return f"{table}_{month:%Y_%m}"


def _order(table: str) -> str:
    return f"{_column(table)}, id"


def _column(table: str) -> str:
    """What decides in which month a row lies."""
    return next(each.column for each in partitions.TABLES if each.table == table)


def _months(table: str) -> list[date]:
    """The months that are attached, oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid "
            "WHERE inhparent = %s::regclass ORDER BY child.relname",
            [table],
        )
        names = [row[0].removeprefix(f"{table}_") for row in cursor.fetchall()]
    return [datetime.strptime(name, "%Y_%m").date() for name in names if name[:1].isdigit()]


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
