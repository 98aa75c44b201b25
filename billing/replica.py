"""Reports from a read replica, where there is one (DATABASE_REPLICA_URL).

Reports and dashboards ask with `reading`: what they read comes from the replica, unless it has not
yet replayed what this session has written, lags more than `MAX_LAG_SECONDS` behind, or does not
answer; then it comes from the primary, as everything else does. A session's last write is a
position in the write-ahead log, kept in a cookie that is worth nothing to anybody else. The API
asks with `answering`.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

log = logging.getLogger(__name__)

T = TypeVar("T")
ALIAS = "replica"
COOKIE = "paperclip_written"
COOKIE_SECONDS = 300  # a replica that is further behind is too far behind anyway
MAX_LAG_SECONDS = 5.0
LOOK_SECONDS = 1.0  # how long a look at the replica is good for
REST_SECONDS = 5.0  # how long a replica that does not answer is left alone
SAFE = ("GET", "HEAD", "OPTIONS")

_LSN = re.compile(r"[0-9A-F]{1,8}/[0-9A-F]{1,8}")
_reading: ContextVar[bool] = ContextVar("reading_from_the_replica", default=False)


@dataclass(frozen=True, slots=True)
class Look:
    """Where the replica was at a moment: log position and seconds behind, None when it is away."""

    position: int
    lag_seconds: float | None
    at: float
    is_level: bool = False  # it has replayed all that the primary had written then


@dataclass(frozen=True, slots=True)
class Read:
    """An answer's source, for the page: `behind_seconds` is None when it is the primary."""

    behind_seconds: float | None = None
    why: str = ""


class Router:
    """Django's database router: reads inside `reading` go to the replica, all else does not."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return alias()  # also for what a row of the replica's refers to, looked up later

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "default"

    def allow_relation(self, one: Any, other: Any, **hints: Any) -> bool:
        return True  # it is one database

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db != ALIAS


def alias() -> str:
    """Where a statement by hand goes that a report makes."""
    return ALIAS if _reading.get() else "default"


def reading(request: HttpRequest, work: Callable[[], T]) -> tuple[T, Read]:
    """What `work` returns, read from the replica where that is right, and where it came from.

    `work` only reads, and reads to its end: a queryset that is looked at later is the primary's.
    It is called again when the replica fails on the way.
    """
    return _read(_source(request), work)


def answering(request: HttpRequest, work: Callable[[], T]) -> T:
    """The same for a program, which may not keep the cookie: without it nobody knows what the
    caller has written, so the replica is read only when it has all that the primary has."""
    if request.COOKIES.get(COOKIE) or ALIAS not in connections.databases:
        return reading(request, work)[0]
    source = _source(request)
    if source.behind_seconds is not None and not _look().is_level:
        source = Read(why="the replica may not have your last change yet")
    return _read(source, work)[0]


def _read(source: Read, work: Callable[[], T]) -> tuple[T, Read]:
    if source.behind_seconds is None:
        return work(), source
    token = _reading.set(True)
    try:
        return work(), source
    except (DatabaseError, InterfaceError) as error:
        # It went away, or the query stood in the way of what it had to replay.
        log.warning("replica: %s", str(error).splitlines()[0] if str(error) else type(error))
        _forget(failed=True)
    finally:
        _reading.reset(token)
    return work(), Read(why="the replica failed")


def middleware(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Any:
    """After a request that may have written, the session remembers how far the log was."""

    def remember(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if ALIAS in connections.databases and request.method not in SAFE:
            position = _text("default", "SELECT pg_current_wal_insert_lsn()::text")
            response.set_cookie(
                COOKIE,
                position,
                max_age=COOKIE_SECONDS,
                httponly=True,
                samesite="Lax",
                secure=request.is_secure(),
            )
        return response

    return remember


def look() -> Look | None:
    """How far the replica is, at most `LOOK_SECONDS` old; None when there is none."""
    if ALIAS not in connections.databases:
        return None
    with _lock:
        known = _known.get(ALIAS)
    now = time.monotonic()
    rest = LOOK_SECONDS if known and known.lag_seconds is not None else REST_SECONDS
    if known is not None and now - known.at < rest:
        return known
    return _look()


# --- inside ------------------------------------------------------------------------------------

_known: dict[str, Look] = {}
_lock = threading.Lock()

# Without anything left to replay it is not behind, however long ago that was.
_WHERE = """
SELECT pg_last_wal_replay_lsn()::text,
       CASE WHEN pg_last_wal_replay_lsn() >= %s::pg_lsn THEN 0 ELSE
       EXTRACT(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()) END
"""


def _source(request: HttpRequest) -> Read:
    if ALIAS not in connections.databases:
        return Read()
    if connections["default"].in_atomic_block:
        return Read(why="inside a transaction")
    seen = look()
    if seen is None:
        return Read()
    if seen.lag_seconds is None:
        return Read(why="the replica does not answer")
    written = request.COOKIES.get(COOKIE, "")
    if written:
        needed = number(written)
        if needed is not None and seen.position < needed:
            seen = _look()
        if needed is None or seen.position < needed:
            return Read(why="the replica does not have your last change yet")
    if seen.lag_seconds is None or seen.lag_seconds > MAX_LAG_SECONDS:
        return Read(why="the replica is too far behind")
    return Read(behind_seconds=seen.lag_seconds)


def number(position: str) -> int | None:
    """A position in the log as a number; None for what is not one."""
    if not _LSN.fullmatch(position):
        return None
    high, low = position.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def _look() -> Look:
    seen = Look(0, None, time.monotonic())
    try:
        said = "SELECT pg_current_wal_flush_lsn() || ' ' || pg_current_wal_insert_lsn()"
        written, newest = _text("default", said).split()
        with connections[ALIAS].cursor() as cursor:
            cursor.execute(_WHERE, [written])
            position, lag = cursor.fetchone()
        found = number(position or "")
        if found is not None:  # else it is no standby
            seconds = None if lag is None else max(0.0, float(lag))
            is_level = found >= (number(newest) or 0)
            seen = Look(found, seconds, time.monotonic(), is_level)
    except (DatabaseError, InterfaceError) as error:
        log.warning("replica: %s", str(error).splitlines()[0] if str(error) else type(error))
        connections[ALIAS].close()
    with _lock:
        _known[ALIAS] = seen
    return seen


def _forget(*, failed: bool) -> None:
    if failed:
        connections[ALIAS].close()
    with _lock:
        _known[ALIAS] = Look(0, None, time.monotonic())


def _text(using: str, statement: str) -> str:
    with connections[using].cursor() as cursor:
        cursor.execute(statement)
        return str(cursor.fetchone()[0])
