"""What one run says, between the adapter that says it and the rows that keep it.

Text of the same channel is merged, secrets are taken out (by value, also across chunk borders),
sequence numbers are given. Bounded: a run that talks faster than the database writes is made to
wait, and past its limit the rest is left out with one word about it. The writer of the shift
takes the rows of all journals in one go (`shift.py`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agents import output
from agents.adapters.base import Event, Note, Step, Text
from agents.models import RunEvent

Kind = RunEvent.Kind
FIRST_SEQ = 2  # the first event is the claim's
PENDING_CHARS = 1_000_000  # not yet written; beyond it the run waits
PENDING_ENTRIES = 2_000
TAKEN_ROWS = 200  # of one run at once, so that a talkative one leaves room for the others
SHORTEST_SECRET = 6  # a shorter value would take half the log with it
HIDDEN = "[redacted]"
# Deeper than any honest value, and short of where encoders and the stack give up.
MAX_DEPTH = 40
TOO_DEEP = "[nested too deep]"


class Redactor:
    """Takes known secrets out of texts. `feed` remembers what may be the start of one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        wanted = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        self._secrets = sorted(wanted, key=len, reverse=True)
        self._longest = len(self._secrets[0]) if self._secrets else 0
        self._initials = frozenset(secret[0] for secret in self._secrets)
        self._tails: dict[str, str] = {}

    def whole(self, text: str) -> str:
        """A complete text without secrets."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return text

    def data(self, value: Any, *, depth: int = MAX_DEPTH) -> Any:
        """A JSON value without secrets in its strings, cut where it is nested `depth` deep."""
        if isinstance(value, str):
            return self.whole(value)
        if not isinstance(value, Mapping | list | tuple):
            return value
        if depth <= 0:
            return TOO_DEEP
        if isinstance(value, Mapping):
            return {self.whole(str(k)): self.data(v, depth=depth - 1) for k, v in value.items()}
        return [self.data(item, depth=depth - 1) for item in value]

    def feed(self, channel: str, text: str) -> str:
        """The next part of a channel's text; what may begin a secret is kept for the next call."""
        if not self._secrets:
            return text
        text = self.whole(self._tails.pop(channel, "") + text)
        cut = self._start_of_secret(text)
        if cut < len(text):
            self._tails[channel] = text[cut:]
        return text[:cut]

    def rest(self) -> list[tuple[str, str]]:
        """At the end: what was kept, by channel. It did not become a secret."""
        rest, self._tails = list(self._tails.items()), {}
        return rest

    def _start_of_secret(self, text: str) -> int:
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[at] in self._initials:
                ending = text[at:]
                if any(secret.startswith(ending) for secret in self._secrets):
                    return at
        return len(text)


@dataclass(slots=True)
class _Entry:
    kind: str
    channel: str
    parts: list[str]
    data: dict[str, Any] | None
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class Journal:
    """One run's output on its way. Everything but `taken` is called in the event loop only."""

    def __init__(self, *, run_id: uuid.UUID, epoch: int, limit_chars: int) -> None:
        self.run_id = run_id
        self.epoch = epoch
        self.stale = False  # its rows were refused: the run has changed hands
        self._redactor = Redactor(())
        self._entries: deque[_Entry] = deque()
        self._chars = 0
        self._left = limit_chars
        self._cut = False
        self._seq = FIRST_SEQ
        self._ready: deque[output.Row] = deque()
        self._out = 0  # rows in the writer's hands
        self._closed = False
        self._room = asyncio.Event()
        self._room.set()
        self._settled = asyncio.Event()

    def hide(self, secrets: Iterable[str]) -> None:
        """From now on these values never reach a row."""
        self._redactor = Redactor(secrets)

    def redact(self, text: str) -> str:
        return self._redactor.whole(text)

    def redact_data(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {self.redact(str(k)): self._redactor.data(v) for k, v in value.items()}

    async def say(self, event: Event) -> None:
        """Note an adapter's event; waits while too much is unwritten."""
        if isinstance(event, Text):
            if event.text:
                self._text(event)
        elif isinstance(event, Step):
            self._step(event)
        elif isinstance(event, Note):
            self.note(Kind.SYSTEM, event.text)
        await self._room.wait()

    def note(self, kind: str, text: str = "", data: Mapping[str, Any] | None = None) -> None:
        """Note something of our own; never waits."""
        self._add(_Entry(kind, kind, [text], dict(data) if data is not None else None))

    async def settle(self) -> None:
        """Wait until everything said so far is written, or nothing can be written any more."""
        self._closed = True
        self._settled.clear()
        if not self._busy():
            return
        await self._settled.wait()

    # --- the writer's side -------------------------------------------------------------------

    def take(self) -> list[output.Row]:
        """Rows to write now. They count as unwritten until `written` or `refused`."""
        while self._entries and len(self._ready) < TAKEN_ROWS:
            self._to_rows(self._entries.popleft())
        if self._closed and not self._entries:
            for channel, text in self._redactor.rest():
                self._rows_of(_Entry(*_kind_of(channel), [text], _channel_data(channel)), text)
        rows = [self._ready.popleft() for _ in range(min(TAKEN_ROWS, len(self._ready)))]
        self._out += len(rows)
        self._make_room()
        if not self._busy():
            self._settled.set()
        return rows

    def written(self, count: int) -> None:
        self._out = max(0, self._out - count)
        if not self._busy():
            self._settled.set()

    def refuse(self) -> None:
        """Nothing of this run may be written any more."""
        self.stale = True
        self._entries.clear()
        self._ready.clear()
        self._redactor.rest()
        self._chars = self._out = 0
        self._room.set()
        self._settled.set()

    def _busy(self) -> bool:
        unsaid = self._closed and bool(self._redactor._tails)
        return bool(self._entries or self._ready or self._out or unsaid)

    # --- inside ------------------------------------------------------------------------------

    def _text(self, event: Text) -> None:
        text = event.text
        if len(text) > self._left:
            text = text[: self._left]
            self._left = 0
            if text:
                self._append(event.channel, text)
            self._say_cut()
            return
        self._left -= len(text)
        self._append(event.channel, text)

    def _append(self, channel: str, text: str) -> None:
        last = self._entries[-1] if self._entries else None
        if last is not None and last.channel == channel:
            last.parts.append(text)
            self._count(len(text))
            return
        kind, name = _kind_of(channel)
        self._add(_Entry(kind, name, [text], _channel_data(channel)))

    def _step(self, event: Step) -> None:
        data: dict[str, Any] = {"id": event.id, "name": event.name, "phase": event.phase}
        if event.input is not None:
            data["input"] = dict(event.input)
        if event.phase == "end":
            data["isError"] = event.is_error
            data["durationMs"] = event.duration_ms
        size = len(event.output)
        shown = event.output[: self._left]
        self._left = max(0, self._left - size)
        self._add(_Entry(Kind.STEP, Kind.STEP, [shown], data))
        if size > len(shown):
            self._say_cut()

    def _say_cut(self) -> None:
        if not self._cut:
            self._cut = True
            self.note(Kind.SYSTEM, "The output limit of a run is reached; the rest is left out.")

    def _add(self, entry: _Entry) -> None:
        if self.stale:
            return
        self._entries.append(entry)
        self._count(sum(map(len, entry.parts)))

    def _count(self, chars: int) -> None:
        self._chars += chars
        if self._chars > PENDING_CHARS or len(self._entries) > PENDING_ENTRIES:
            self._room.clear()

    def _make_room(self) -> None:
        if not self._entries:
            self._chars = 0
        if self._chars <= PENDING_CHARS and len(self._entries) <= PENDING_ENTRIES:
            self._room.set()

    def _to_rows(self, entry: _Entry) -> None:
        text = "".join(entry.parts)
        self._chars -= len(text)
        if entry.kind in (Kind.TEXT, Kind.OUT, Kind.ERR):
            text = self._redactor.feed(entry.channel, text)
            if not text:
                return
        else:
            text = self._redactor.whole(text)
            entry.data = self._redactor.data(entry.data)
        self._rows_of(entry, text)

    def _rows_of(self, entry: _Entry, text: str) -> None:
        data = output.to_json(entry.data) if entry.data is not None else None
        if data is not None and len(data) > 4 * output.PIECE_CHARS:
            data = output.to_json({**_short(entry.data), "cut": True})
        for piece in output.pieces(output.clean(text)):
            self._ready.append(
                output.Row(
                    run_id=self.run_id,
                    epoch=self.epoch,
                    seq=self._seq,
                    kind=str(entry.kind),
                    text=piece,
                    data=data,
                    at=entry.at,
                )
            )
            self._seq += 1


def _kind_of(channel: str) -> tuple[str, str]:
    if channel in ("stdout", "stderr"):
        return channel, channel
    return Kind.TEXT, channel


def _channel_data(channel: str) -> dict[str, Any] | None:
    return None if channel in ("stdout", "stderr") else {"channel": channel}


def _short(data: Mapping[str, Any] | None) -> dict[str, Any]:
    """The small parts of a step whose input is huge."""
    return {key: value for key, value in (data or {}).items() if key != "input"}
