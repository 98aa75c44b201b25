"""The archive's files of activity, for the proof of the chain: what they say, row by row."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from datetime import date
from pathlib import Path

from django.db import connection

from billing import archive
from billing.models import ArchivedPartition
from companies import chain, seals

TABLE = "companies_activity"
State = ArchivedPartition.State


def months(folder: Path | None = None) -> chain.Months:
    """The months that the archive has or had. With `folder` their files are read, within the
    caller's transaction; a month that is detached and has no file yet is read where it lies.

    Raises ArchiveError for a file that is not there or not what its manifest says.
    """
    known = list(ArchivedPartition.objects.filter(table=TABLE))
    away = [entry for entry in known if entry.state != State.RESTORED]
    restored = [entry.month for entry in known if entry.state == State.RESTORED]
    if folder is not None:
        _load(away, folder)
    return chain.Months([entry.month for entry in away], restored, _said if folder else None)


def _load(entries: Collection[ArchivedPartition], folder: Path) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP TABLE archived_activity (id uuid, digest bytea) ON COMMIT DROP;"
            "CREATE TEMP TABLE archived_activity_line (line json) ON COMMIT DROP"
        )
        for entry in entries:
            if entry.state == State.DROPPED:
                archive.verify(entry=entry, folder=folder)
                archive.copy_lines(entry, folder, into="archived_activity_line")
                rows = f'archived_activity_line, json_populate_record(NULL::"{TABLE}", line) a'
            else:
                rows = f'"{_partition(entry.month)}" a'
            cursor.execute(
                f"INSERT INTO archived_activity SELECT a.id, {seals.ROW_DIGEST} FROM {rows}"  # noqa: S608
            )
            cursor.execute("TRUNCATE archived_activity_line")
        cursor.execute("CREATE INDEX ON archived_activity (id)")


def _said(rows: Collection[uuid.UUID]) -> Mapping[uuid.UUID, bytes]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, digest FROM archived_activity WHERE id = ANY(%s)", [list(rows)])
        return {row: bytes(digest) for row, digest in cursor.fetchall()}


def _partition(month: date) -> str:
    return f"{TABLE}_{month:%Y_%m}"
