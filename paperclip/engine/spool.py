"""Receipts that could not be booked, because the database was away, as files until it is back.

A run that loses its database loses its lease, too, and ends; what its last model call cost was
spent all the same. Its receipt becomes a file of one JSON line below DATA_DIR/spool, readable by
its owner only and on the disk before anybody goes on. The shifts and the minute's round of this
instance book what lies there: a booking is known by its run and call, so that twice is once, and a
process that is killed in between leaves the file to the next one.

A file that cannot be booked is moved to `aside` and said once; it never holds up the others. What
was set aside is for people: corrected and moved back it is tried again.
Read next: `Heartbeat._book_in_time` in `heartbeat.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from django.conf import settings

from agents import meters
from agents.adapters.base import Usage
from billing import ledger, reservations
from companies import clock, faultpoints
from companies.errors import NotFound
from issues.briefing import Briefing
from paperclip.engine.hands import PASSING

log = logging.getLogger(__name__)

VERSION = 1
PATTERN = "*.jsonl"
MAX_BYTES = 64 * 1024  # of a receipt; a larger file is none of ours
FAILURES = 3  # of the database in a row: it is away, and the rest is not even tried


def folder() -> Path:
    return Path(settings.DATA_DIR) / "spool"


def aside() -> Path:
    return folder() / "aside"


def keep(facts: Briefing, usage: Usage, at: datetime) -> None:
    """`put`; if even that fails, the log has the receipt."""
    try:
        put(facts, usage, at=at)
    except OSError:
        log.exception("run %s: cost lost: %r", facts.run_id, usage)


def put(facts: Briefing, usage: Usage, *, at: datetime) -> None:
    """Keep the receipt of a call that was answered at `at`; on the disk when this returns. The same
    receipt again takes the place of the first. Raises OSError."""
    receipt = {
        "v": VERSION,
        "at": at,
        "company_id": facts.company_id,
        "agent_id": facts.agent_id,
        "run_id": facts.run_id,
        "issue_id": facts.issue_id,
        "project_id": facts.project_id,
        "goal_id": facts.goal_id,
        "billing_code": facts.billing_code,
        "usage": asdict(usage),
    }
    path = folder() / f"{facts.run_id}-{usage.call}.jsonl"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
        file.write(orjson.dumps(receipt) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync(path.parent)
    meters.count(meters.RECEIPTS_SPOOLED, "kept")
    faultpoints.reach("spooled", facts.run_id)


def waiting() -> list[Path]:
    """The receipts that wait to be booked, by name."""
    return sorted(folder().glob(PATTERN))


def set_aside() -> list[Path]:
    """The receipts that could not be booked, which are for people."""
    return sorted(aside().glob(PATTERN))


def book_all() -> int:
    """Book what waits and is in nobody else's hands; returns how many receipts were booked. What
    the database was away for stays. Raises what the database then raises."""
    booked = 0
    failures: list[Exception] = []
    for path in waiting():
        try:
            with _taken(path) as line:
                if line is not None:
                    _book(line)
                    faultpoints.reach("unspooled", path.name)
                    path.unlink(missing_ok=True)
                    booked += 1
        except PASSING as error:
            failures.append(error)
            if len(failures) >= FAILURES:
                break
        except Exception as error:
            _put_aside(path, error)
    if booked:
        log.warning("%s receipts were booked that had waited for the database", booked)
        meters.count(meters.RECEIPTS_SPOOLED, "booked", times=booked)
    if failures:
        raise failures[0]
    return booked


@contextlib.contextmanager
def _taken(path: Path) -> Iterator[bytes | None]:
    """The receipt, which nobody else takes meanwhile; None when somebody has it, or had it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield None
        return
    with os.fdopen(descriptor, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield file.read(MAX_BYTES + 1) if os.fstat(descriptor).st_nlink else None


def _book(line: bytes) -> None:
    """Raises Refusal, and ValueError, KeyError or TypeError for what is no receipt."""
    said: dict[str, Any] = orjson.loads(line)
    if said["v"] != VERSION:
        raise ValueError(f"a receipt of version {said['v']!r}")
    usage, run_id = Usage(**said["usage"]), uuid.UUID(said["run_id"])
    at = datetime.fromisoformat(said["at"])
    # As in time, it belongs to the period that it was granted in.
    granted = reservations.call_of(run_id)
    try:
        ledger.book(
            company_id=uuid.UUID(said["company_id"]),
            agent_id=uuid.UUID(said["agent_id"]),
            run_id=run_id,
            issue_id=_id(said["issue_id"]),
            project_id=_id(said["project_id"]),
            goal_id=_id(said["goal_id"]),
            billing_code=said["billing_code"],
            usage=usage,
            key=ledger.run_key(run_id, usage.call),
            occurred_at=min(at, granted.granted_at) if granted else at,
            follows_work=granted is None,
            now=clock.now(),
        )
    except NotFound:
        log.info("run %s: its receipt was booked and archived long ago", run_id)


def _id(text: str | None) -> uuid.UUID | None:
    return uuid.UUID(text) if text else None


def _put_aside(path: Path, error: Exception) -> None:
    log.error("%s cannot be booked and is set aside: %s", path, error, exc_info=error)
    meters.count(meters.RECEIPTS_SPOOLED, "aside")
    try:
        aside().mkdir(mode=0o700, exist_ok=True)
        path.replace(aside() / path.name)
    except FileNotFoundError:
        return  # somebody else was faster
    except OSError:
        log.exception("%s cannot be moved", path)


def _sync(path: Path) -> None:
    """What the folder says of its files, on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
