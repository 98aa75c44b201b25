"""Server-sent events, read incrementally from bytes.

For streams of language models, whose servers differ in every detail the standard leaves open.
Not for browsers (that is the live wire's work). Read next: `agents/adapters/chat.py`.

Source: WHATWG HTML, "Server-sent events", 9.2.6 Interpreting an event stream.
"""

from __future__ import annotations

from dataclasses import dataclass

BOM = b"\xef\xbb\xbf"


class TooLarge(Exception):
    """An event, or the stream as a whole, is larger than allowed."""


@dataclass(frozen=True, slots=True)
class Event:
    data: str
    name: str = ""
    id: str = ""


class Parser:
    """Bytes in, complete events out, the same ones however the bytes are cut.

    Lines are split as bytes and decoded whole, so a character cut in two by the network is no
    matter, and neither are U+2028, U+0085 and vertical tabs inside the text: only CR, LF and
    CRLF end a line. Comments and events without data yield nothing. Sizes are in bytes.
    """

    def __init__(
        self, *, max_event_bytes: int = 8 * 1024**2, max_total_bytes: int = 128 * 1024**2
    ) -> None:
        self._max_event = max_event_bytes
        self._max_total = max_total_bytes
        self._total = 0
        self._tail: list[bytes] = []  # pieces of the line that is not complete yet
        self._size = 0  # of that line and of the event it belongs to
        self._skip_lf = False  # the last byte was a CR: a LF now belongs to it
        self._first_line = True
        self._data: list[str] = []
        self._name = ""
        self._id = ""

    def feed(self, chunk: bytes) -> list[Event]:
        """The events completed by `chunk`. Raises TooLarge."""
        self._total += len(chunk)
        if self._total > self._max_total:
            raise TooLarge(f"the stream is larger than {self._max_total} bytes")
        if not chunk:
            return []
        chunk = self._unify_line_ends(chunk)
        if b"\n" not in chunk:
            self._keep(chunk)
            return []
        lines = b"".join([*self._tail, chunk]).split(b"\n")
        self._tail = []
        events: list[Event] = []
        for line in lines[:-1]:
            self._line(line, events)
        self._size = sum(len(part) for part in self._data)
        self._keep(lines[-1])
        return events

    def close(self) -> list[Event]:
        """What the end of the stream completes: servers forget the last blank line."""
        events: list[Event] = []
        last = b"".join(self._tail)
        self._tail = []
        if last:
            self._line(last, events)
        self._dispatch(events)
        return events

    def _unify_line_ends(self, chunk: bytes) -> bytes:
        if self._skip_lf and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._skip_lf = False
            if not chunk:
                return chunk
        self._skip_lf = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max_event:
            raise TooLarge(f"an event is larger than {self._max_event} bytes")
        if part:
            self._tail.append(part)

    def _line(self, line: bytes, events: list[Event]) -> None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(BOM)
        if not line:
            self._dispatch(events)
            return
        if line.startswith(b":"):
            return
        field, _, raw = line.partition(b":")
        value = raw.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"data":
            self._data.append(value)
            if len(self._data) > 1 and sum(map(len, self._data)) > self._max_event:
                raise TooLarge(f"an event is larger than {self._max_event} bytes")
        elif field == b"event":
            self._name = value
        elif field == b"id" and "\0" not in value:
            self._id = value

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            events.append(Event("\n".join(self._data), self._name, self._id))
        self._data = []
        self._name = ""
