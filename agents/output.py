"""What runs say, as rows: cleaned, written for many runs in one statement, read by sequence.

Not here: how the rows of a run come to be (`engine/journal.py`), who is told (`engine/shift.py`).
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from django.db import connection

from agents.adapters.lenient import storable as clean
from agents.models import HeartbeatRun, RunEvent

PIECE_CHARS = 32_768  # the longest text of one row
PAGE = 500  # rows of one read, at most
_MAX_DEPTH = 20


@dataclass(slots=True)
class Row:
    """One event of a run, ready to be written."""

    run_id: uuid.UUID
    epoch: int
    seq: int
    kind: str
    text: str
    data: str | None  # JSON
    at: datetime


def clean_data(value: Any, depth: int = 0) -> Any:
    """A JSON value with all its strings cleaned; what is nested absurdly deep is left out."""
    if isinstance(value, str):
        return clean(value)
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {clean(str(k)): clean_data(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [clean_data(item, depth + 1) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or (isinstance(value, int) and abs(value) < 2**63):
        return value
    return clean(str(value))


def to_json(value: Mapping[str, Any]) -> str:
    """A mapping as JSON that jsonb accepts."""
    return orjson.dumps(clean_data(value)).decode()


def pieces(text: str) -> list[str]:
    """`text` in parts that fit a row."""
    if len(text) <= PIECE_CHARS:
        return [text]
    return [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]


_WRITE = """
WITH owner AS MATERIALIZED (
    SELECT r.id, r.company_id, r.created_at, r.epoch
    FROM unnest(%(ids)s::uuid[], %(epochs)s::int[]) AS o (id, epoch)
    JOIN agents_heartbeatrun r ON r.id = o.id AND r.epoch = o.epoch
), written AS (
    INSERT INTO agents_runevent
        (run_id, company_id, run_created_at, seq, epoch, kind, text, data, at)
    SELECT owner.id, owner.company_id, owner.created_at, e.seq, owner.epoch, e.kind, e.text,
           e.data::jsonb, e.at
    FROM unnest(%(run_ids)s::uuid[], %(seqs)s::int[], %(kinds)s::text[], %(texts)s::text[],
                %(datas)s::text[], %(ats)s::timestamptz[]) AS e (run_id, seq, kind, text, data, at)
    JOIN owner ON owner.id = e.run_id
    ON CONFLICT DO NOTHING
), lively AS (
    UPDATE agents_heartbeatrun r SET output_at = clock_timestamp()
    FROM owner WHERE r.id = owner.id AND r.epoch = owner.epoch
      AND r.output_at < clock_timestamp() - interval '5 seconds'
)
SELECT id, company_id FROM owner
"""


def write(rows: Sequence[Row]) -> dict[uuid.UUID, uuid.UUID]:
    """Write rows of many runs in one statement; returns the runs that still are the writer's,
    each with its company. Rows of the other runs are discarded: their epoch has passed.

    Safe to repeat: a row that is there already stays as it is.
    """
    if not rows:
        return {}
    owners = {row.run_id: row.epoch for row in rows}
    with connection.cursor() as cursor:
        cursor.execute(
            _WRITE,
            {
                "ids": list(owners),
                "epochs": list(owners.values()),
                "run_ids": [row.run_id for row in rows],
                "seqs": [row.seq for row in rows],
                "kinds": [row.kind for row in rows],
                "texts": [row.text for row in rows],
                "datas": [row.data for row in rows],
                "ats": [row.at for row in rows],
            },
        )
        return dict(cursor.fetchall())


def read(run: HeartbeatRun, *, after_seq: int = 0, limit: int = PAGE) -> list[RunEvent]:
    """Events of a run behind `after_seq`, in order, `limit` (500) at most."""
    return list(
        RunEvent.objects.filter(
            run_id=run.pk, run_created_at=run.created_at, seq__gt=after_seq
        ).order_by("seq")[: max(0, min(limit, PAGE))]
    )


def tail(run: HeartbeatRun, *, limit: int = PAGE) -> list[RunEvent]:
    """The last events of a run, in order."""
    newest = RunEvent.objects.filter(run_id=run.pk, run_created_at=run.created_at).order_by("-seq")
    return list(newest[: max(0, min(limit, PAGE))])[::-1]


def log(run: HeartbeatRun, *, offset: int = 0, limit_bytes: int = 65_536) -> tuple[str, int, bool]:
    """Plain text of a run from byte `offset` of its UTF-8 on: the text, the next offset, and
    whether this was all that there is so far.

    Cut at character borders; `limit_bytes` is four at least.
    """
    parts: list[bytes] = []
    at, after, wanted = 0, 0, offset + max(4, limit_bytes)
    more = True
    while more and at < wanted:
        page = read(run, after_seq=after)
        more = len(page) == PAGE
        for event in page:
            line = as_text(event).encode()
            if at + len(line) > offset:
                parts.append(line[max(0, offset - at) : max(0, wanted - at)])
            at += len(line)
            after = event.seq
    text = b"".join(parts).decode("utf-8", "ignore")
    following = offset + len(text.encode())
    return text, following, not more and following >= at


def as_text(event: RunEvent) -> str:
    """One event as lines of a plain log."""
    data = event.data or {}
    if event.kind == RunEvent.Kind.STEP:
        if data.get("phase") == "start":
            given = json.dumps(data.get("input"), ensure_ascii=False) if data.get("input") else ""
            return f"\n> {data.get('name', '')} {given}\n"
        return f"{event.text}\n" if event.text else ""
    if event.kind == RunEvent.Kind.STATUS:
        code = f" ({data['code']})" if data.get("code") else ""
        return f"\n[{data.get('status', '')}{code}] {event.text}\n"
    if event.kind == RunEvent.Kind.USAGE:
        return ""
    return f"\n{event.text}\n" if event.kind == RunEvent.Kind.SYSTEM else event.text


def last_lines(events: Iterable[RunEvent], count: int = 5) -> list[str]:
    """The last non-empty lines among some events, for a failure's message."""
    text = "".join(as_text(event) for event in events)
    return [line for line in text.splitlines() if line.strip()][-count:]
