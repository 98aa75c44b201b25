"""A cursor that hands a statement to the server in one call.

psycopg's own cursor is made for every case: pipelines, asyncio, results that come in pieces. What a
request asks is simpler, a statement with parameters and a few rows back, and the way through that
generality cost more processor time than the statement itself. So the usual statement goes straight
to libpq's blocking calls (which let other threads run meanwhile), by the same adapters, with its
rows read at once. Everything else (scripts, COPY, DDL, `executemany`) goes to psycopg's cursor.

What is prepared outlives a ROLLBACK, as it does in the server; psycopg drops it all, and then a
refused request made the next ones be parsed and planned anew.
"""

from __future__ import annotations

import functools
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
from django.db.backends import utils
from django.db.backends.postgresql.base import ServerBindingCursor
from psycopg import generators, pq
from psycopg.adapt import PyFormat, Transformer

Connection = psycopg.Connection[Any]
Row = tuple[Any, ...]

MOST_PREPARED = 128  # statements of one connection; each holds its plan in the server
LONGEST = 20_000  # characters; longer ones are written for many rows and seldom come again
_MOST_SEEN = 1_000

_OK = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.EMPTY_QUERY)
_TUPLES = pq.ExecStatus.TUPLES_OK
_IDLE = pq.TransactionStatus.IDLE
_GOOD = pq.ConnStatus.OK
_LOST_STATEMENT = "26000"  # the server does not know it (any more)
_CHANGED_RESULT = "0A000"  # a table has changed since, and so would the columns

_PLACE = re.compile(r"%(?:(%)|(s)|\(([^()]+)\)s|)", re.S)
# Statements without parameters are whole scripts as often as not; these are what transactions say.
_PLAIN = ("SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK TO SAVEPOINT")
# After these psycopg gives up what is prepared: the same name may be another thing now.
_UPSETTING = re.compile(r"\s*(?:DROP|ALTER|ROLLBACK|DISCARD|DEALLOCATE)\b", re.I)


class Cursor:
    """Runs statements on a connection of one thread; all rows of a result are read at once."""

    arraysize = 1

    def __init__(self, connection: Connection, statements: Statements) -> None:
        self.connection = connection
        self.rowcount = -1
        self._statements = statements
        self._result: pq.abc.PGresult | None = None
        self._rows: list[Row] = []
        self._place = 0
        self._other: Any = None

    def __iter__(self) -> Iterator[Row]:
        while (row := self.fetchone()) is not None:
            yield row

    def __getattr__(self, name: str) -> Any:
        """What only psycopg's cursor can do (`copy`, `statusmessage`, …)."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._slow(), name)

    @property
    def description(self) -> list[Any] | None:
        if self._other is not None:
            return self._other.description
        result = self._result
        if result is None or result.status != _TUPLES:
            return None
        slow = self._slow()
        slow.pgresult = result
        return [psycopg.Column(slow, place) for place in range(result.nfields)]

    def execute(self, query: Any, params: Any = None) -> Cursor:
        """Run one statement. Raises psycopg's errors."""
        self._rows, self._place, self._result, self._other = [], 0, None, None
        result = self._statements.run(query, params) if isinstance(query, str) else None
        if result is None:
            return self._execute_slowly(query, params)
        self._result = result
        if result.status == _TUPLES:
            self.rowcount = result.ntuples
            self._rows = self._statements.rows(result)
        else:
            rows = result.command_tuples
            self.rowcount = -1 if rows is None else rows
        return self

    def _execute_slowly(self, query: Any, params: Any) -> Cursor:
        slow = self._other = self._slow()
        try:
            slow.execute(query, params)
        finally:
            if not isinstance(query, str) or _UPSETTING.match(query):
                self._statements.forget()
        self.rowcount = slow.rowcount
        if slow.pgresult is not None and slow.pgresult.status == _TUPLES:
            self._rows = slow.fetchall()
        return self

    def _slow(self) -> Any:
        if self._other is not None:
            return self._other
        return ServerBindingCursor(self.connection)  # type: ignore[call-arg]

    def executemany(self, query: Any, params: Any) -> None:
        slow = self._slow()
        slow.executemany(query, params)
        self._rows, self._place, self.rowcount = [], 0, slow.rowcount

    def fetchone(self) -> Row | None:
        try:
            row = self._rows[self._place]
        except IndexError:
            return None
        self._place += 1
        return row

    def fetchmany(self, size: int | None = None) -> list[Row]:
        begin = self._place
        self._place = min(len(self._rows), begin + (size or self.arraysize))
        return self._rows[begin : self._place]

    def fetchall(self) -> list[Row]:
        begin, self._place = self._place, len(self._rows)
        return self._rows[begin:] if begin else self._rows

    def close(self) -> None:
        """Let go of the result."""
        self._rows, self._result, self._other = [], None, None


class Statements:
    """How one connection runs its statements, and which of them its server has prepared.

    A statement is prepared when it comes for the `threshold`-th time; None: never.
    """

    def __init__(self, connection: Connection, threshold: int | None) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._threshold = threshold
        self._adapt = Transformer(connection)
        self._seen: dict[Any, int] = {}
        self._names: OrderedDict[Any, bytes] = OrderedDict()
        self._made = 0

    def rows(self, result: pq.abc.PGresult) -> list[Row]:
        """The rows of a result, as psycopg's adapters read them."""
        self._adapt.set_pgresult(result)
        try:
            return self._adapt.load_rows(0, result.ntuples, tuple)
        finally:
            self._adapt.set_pgresult(None)

    def run(self, query: str, params: Any) -> pq.abc.PGresult | None:
        """The result of a statement; None when it is one for psycopg's cursor, and was not run."""
        if params is None:
            return self._command(query.encode()) if query.startswith(_PLAIN) else None
        if len(query) > LONGEST:
            return None
        text, names, formats = _compiled(query)
        values = _values(params, names, len(formats))
        if values is None:
            return None
        if not values and b";" in text:
            return None  # a script
        return self._run(query, text, values, formats)

    def _run(
        self, query: str, text: bytes, values: Sequence[Any], formats: list[PyFormat]
    ) -> pq.abc.PGresult:
        connection, adapt = self._connection, self._adapt
        dumped = adapt.dump_sequence(values, formats)
        types, dumped_as = adapt.types or (), adapt.formats
        with connection.lock:
            self._begin()
            name = self._prepared((query, types), text)
            if name is None:
                call = (text, dumped, types, dumped_as)
                result = self._wait("params", call)
            else:
                result = self._wait("prepared", (name, dumped, dumped_as))
        self._check(result, (query, types))
        return result

    def _begin(self) -> None:
        """Open the transaction that Django has asked for, as late as psycopg does."""
        if not self._connection.autocommit and self._pgconn.transaction_status == _IDLE:
            self._check(self._wait("", (b"BEGIN",)))

    def _command(self, text: bytes) -> pq.abc.PGresult:
        with self._connection.lock:
            self._begin()
            result = self._wait("", (text,))
        self._check(result)
        return result

    def end(self, how: bytes) -> None:
        """COMMIT or ROLLBACK, when a transaction is open."""
        with self._connection.lock:
            if self._pgconn.transaction_status == _IDLE:
                return
            result = self._wait("", (how,))
        self._check(result)

    def _prepared(self, key: Any, text: bytes) -> bytes | None:
        """The name of a prepared statement; None when it has not come often enough."""
        name = self._names.get(key)
        if name is not None:
            self._names.move_to_end(key)
            return name
        if self._threshold is None:
            return None
        times = self._seen.get(key, 0)
        if times < self._threshold:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen[key] = times + 1
            return None
        self._seen.pop(key, None)
        self._made += 1
        name = b"paperclip_%d" % self._made
        self._check(self._wait("prepare", (name, text, key[1])))
        self._names[key] = name
        if len(self._names) > MOST_PREPARED:
            _, oldest = self._names.popitem(last=False)
            self._check(self._wait("", (b"DEALLOCATE " + oldest,)))
        return name

    def forget(self) -> None:
        """Give up what is prepared."""
        names = list(self._names.values())
        self._names.clear()
        self._seen.clear()
        pgconn = self._pgconn
        # Within a transaction a name that is gone already would spoil it; none is used again.
        if names and pgconn.status == _GOOD and pgconn.transaction_status == _IDLE:
            with self._connection.lock:
                self._wait("", (b"; ".join(b"DEALLOCATE " + name for name in names),))

    def _wait(self, kind: str, call: tuple[Any, ...]) -> pq.abc.PGresult:
        """Let the server do something. In the main thread by psycopg's loop, which lets signals
        through; elsewhere in one call."""
        pgconn = self._pgconn
        if pgconn.status != _GOOD:
            raise psycopg.OperationalError("the connection is closed")
        if threading.current_thread() is threading.main_thread():
            getattr(pgconn, _SENDING[kind])(*call)
            return self._connection.wait(generators.execute(pgconn))[-1]
        result: pq.abc.PGresult = getattr(pgconn, _ASKING[kind])(*call)
        return result

    def _check(self, result: pq.abc.PGresult, key: Any = None) -> None:
        if result.status in _OK:
            return
        if not result.error_field(pq.DiagnosticField.SQLSTATE):
            # libpq's own word, not the server's: the connection is gone, also when its status does
            # not say so yet (after an immediate shutdown it does not).
            raise psycopg.OperationalError(result.get_error_message())
        error = psycopg.errors.error_from_result(result)
        if error.sqlstate in (_LOST_STATEMENT, _CHANGED_RESULT):
            self._names.pop(key, None)
        raise error


_SENDING = {
    "": "send_query",
    "params": "send_query_params",
    "prepare": "send_prepare",
    "prepared": "send_query_prepared",
}
_ASKING = {
    "": "exec_",
    "params": "exec_params",
    "prepare": "prepare",
    "prepared": "exec_prepared",
}


def _values(params: Any, names: tuple[str, ...] | None, count: int) -> Sequence[Any] | None:
    """The parameters in the order of the statement; None when they do not fit it."""
    if names is None:
        fits = isinstance(params, (list, tuple)) and len(params) == count
        return params if fits else None
    if not isinstance(params, Mapping):
        return None
    try:
        return [params[name] for name in names]
    except KeyError:
        return None


@functools.lru_cache(maxsize=1024)
def _compiled(query: str) -> tuple[bytes, tuple[str, ...] | None, list[PyFormat]]:
    """A statement as the server reads it (`$1`), the names of its parameters in that order (None:
    they go by place) and their formats. What is no usual placeholder gives one parameter too many,
    so that nothing fits and psycopg says what is wrong."""
    names: dict[str, int] = {}
    places = strange = 0

    def place(match: re.Match[str]) -> str:
        nonlocal places, strange
        percent, by_place, name = match.groups()
        if percent:
            return "%"
        if by_place:
            places += 1
            return f"${places}"
        if name:
            return f"${names.setdefault(name, len(names) + 1)}"
        strange += 1
        return "%"

    text = _PLACE.sub(place, query).encode()
    if strange or (places and names):
        return text, None, [PyFormat.AUTO] * 100_000
    count = len(names) or places
    return text, tuple(names) if names else None, [PyFormat.AUTO] * count


class CursorWrapper(utils.CursorWrapper):
    """Django's wrapper; rows that are read already are given without another look for errors."""

    cursor: Cursor

    def fetchone(self) -> Row | None:
        return self.cursor.fetchone()

    def fetchmany(self, size: int | None = None) -> list[Row]:
        return self.cursor.fetchmany(size)

    def fetchall(self) -> list[Row]:
        return self.cursor.fetchall()
