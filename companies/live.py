"""The live wire: tells other processes that something changed, never what it became.

A notice goes out after the commit, as a statement of its own on a connection of its own (inside
the writing transaction NOTIFY would serialise all commits), from one thread a process that sends
the first notice at once and folds what follows within `SPACING_SECONDS` into the next. A lost
notice costs a poll, nothing else. Listeners: `paperclip/streams/hub.py` and `engine/shift.py`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Iterable

import orjson
from django.db import connections, transaction

from companies import faultpoints

log = logging.getLogger(__name__)

WAKE_CHANNEL = "paperclip_wake"  # payload: nothing
CANCEL_CHANNEL = "paperclip_cancel"  # payload: a run's id
LIVE_CHANNEL = "paperclip_live"  # payload: a JSON list of [company, topic, entity or null]
TOPICS = frozenset(
    {"issues", "issue", "runs", "run", "agents", "agent", "activity", "costs", "inbox"}
)
SENT_AT = "sent_at"  # as the topic of no company: when the database sent the payload, in ms
SPACING_SECONDS = 0.04
IDLE_SECONDS = 30.0  # after which the thread and its connection go
MAX_PAYLOAD_BYTES = 7_000  # PostgreSQL refuses 8,000
DATABASE = "default"

Notice = tuple[str, str, str | None]


def wake() -> None:
    """After the commit: there may be a run to claim."""
    transaction.on_commit(lambda: _sender().put(WAKE_CHANNEL, ""))


def cancel(run_id: uuid.UUID) -> None:
    """After the commit: whoever carries this run should stop it."""
    transaction.on_commit(lambda: _sender().put(CANCEL_CHANNEL, str(run_id)))


def publish(company_id: uuid.UUID, topic: str, entity_id: uuid.UUID | None = None) -> None:
    """After the commit: what `topic` shows of this company has changed.

    It is one of TOPICS; the singular ones carry an entity's id.
    """
    notice = (str(company_id), topic, str(entity_id) if entity_id else None)
    transaction.on_commit(lambda: _sender().put_live(notice))


def publish_all(notices: Iterable[tuple[uuid.UUID, str, uuid.UUID | None]]) -> None:
    """Like `publish` for many (company, topic, entity) at once."""
    ready = [(str(c), topic, str(entity) if entity else None) for c, topic, entity in notices]
    if ready:
        transaction.on_commit(lambda: _sender().put_live(*ready))


def encode(notices: Iterable[Notice]) -> list[str]:
    """Pack notices into as few payloads as the size limit allows."""
    payloads: list[str] = []
    pack: list[Notice] = []
    size = 2
    for notice in notices:
        length = sum(len(part or "null") + 3 for part in notice) + 3
        if pack and size + length > MAX_PAYLOAD_BYTES:
            payloads.append(orjson.dumps(pack).decode())
            pack, size = [], 2
        pack.append(notice)
        size += length
    if pack:
        payloads.append(orjson.dumps(pack).decode())
    return payloads


def decode(payload: str) -> list[Notice]:
    """What `encode` packed; an unreadable payload is nobody's notice."""
    return [notice for notice in _notices(payload) if notice[0]]


def sent_at_ms(payload: str) -> int:
    """When the database sent a payload, by its own clock, in milliseconds since 1970; 0 when the
    payload does not tell."""
    for company, topic, moment in _notices(payload):
        if not company and topic == SENT_AT and moment and moment.isdigit():
            return int(moment)
    return 0


def _notices(payload: str) -> list[Notice]:
    try:
        return [
            (str(c), str(t), None if e is None else str(e)) for c, t, e in orjson.loads(payload)
        ]
    except (orjson.JSONDecodeError, TypeError, ValueError):
        return []


# Stamped by the one clock that all share, at the moment of sending: what was committed before a
# reader looked at that clock, they have read; all else carries a later stamp.
_SEND = f"""
SELECT pg_notify(channel, CASE WHEN channel = '{LIVE_CHANNEL}'
    THEN left(payload, -1) || ',["","{SENT_AT}","'
        || floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint || '"]]'
    ELSE payload END)
FROM unnest(%s::text[], %s::text[]) AS m (channel, payload)
"""  # noqa: S608


class Sender:
    """The thread that sends. Pending notices are sets, so a burst about one thing is one notice."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._ready = threading.Condition()
        self._plain: dict[tuple[str, str], None] = {}
        self._live: dict[Notice, None] = {}
        self._sending = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def put(self, channel: str, payload: str) -> None:
        with self._ready:
            self._plain[channel, payload] = None
            self._start()

    def put_live(self, *notices: Notice) -> None:
        with self._ready:
            self._live.update(dict.fromkeys(notices))
            self._start()

    def flush(self, timeout_seconds: float = 5.0) -> bool:
        """Wait until all that was put has been sent; for shutdown and tests."""
        deadline = time.monotonic() + timeout_seconds
        with self._ready:
            while self._plain or self._live or self._sending:
                if not self._ready.wait(max(0.0, deadline - time.monotonic())):
                    return False
        return True

    def close(self) -> None:
        """Send what is left and let go of the connection. A later notice opens it again."""
        self.flush()
        with self._ready:
            thread, self._closing = self._thread, True
            self._ready.notify_all()
        if thread is not None:
            thread.join(timeout=5)

    def _start(self) -> None:
        self._closing = False
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="live-wire", daemon=True)
            self._thread.start()
        self._ready.notify_all()

    def _run(self) -> None:
        while True:
            with self._ready:
                self._ready.wait_for(
                    lambda: self._plain or self._live or self._closing, timeout=IDLE_SECONDS
                )
                if not self._plain and not self._live:
                    self._thread = None
                    connections[DATABASE].close()
                    return
                messages = list(self._plain)
                messages += [(LIVE_CHANNEL, payload) for payload in encode(self._live)]
                self._plain, self._live, self._sending = {}, {}, True
            try:
                self._send(messages)
            finally:
                with self._ready:
                    self._sending = False
                    self._ready.notify_all()
            time.sleep(SPACING_SECONDS)

    def _send(self, messages: list[tuple[str, str]]) -> None:
        connection = connections[DATABASE]
        try:
            faultpoints.reach("notifying")
            connection.close_if_unusable_or_obsolete()
            with connection.cursor() as cursor:
                cursor.execute(_SEND, [[m[0] for m in messages], [m[1] for m in messages]])
        except Exception as error:  # listeners poll as well: a lost notice is only late
            log.warning("live wire: %s notices lost: %s", len(messages), error)
            connection.close()


_the_sender: Sender | None = None
_lock = threading.Lock()


def _sender() -> Sender:
    """The sender of this process; a fork gets its own."""
    global _the_sender
    with _lock:
        if _the_sender is None or _the_sender.pid != os.getpid():
            _the_sender = Sender()
        return _the_sender


def flush(timeout_seconds: float = 5.0) -> bool:
    """Wait until this process has sent all its notices. True when nothing is left."""
    return _sender().flush(timeout_seconds)


def close() -> None:
    """Send what is left and let go of this process's connection; for shutdown and tests."""
    _sender().close()
