"""Server-sent events as bytes (HTML standard, section 9.2)."""

from __future__ import annotations

from typing import Any

from companies import wire

KEEP_ALIVE = b": keep-alive\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


def position(id: int) -> bytes:
    """Tells where a stream stands, without an event: who reconnects names it."""
    return b"id: %d\n\n" % id


def frame(event: str, data: Any, id: int | str | None = None) -> bytes:
    """One event. JSON has no line breaks of its own, so one data line is enough."""
    head = f"id: {id}\nevent: {event}\ndata: " if id is not None else f"event: {event}\ndata: "
    return head.encode() + wire.dumps(data) + b"\n\n"
