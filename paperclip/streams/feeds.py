"""What the viewers of one run, or of one company, share.

A feed keeps a short tail of encoded events. Each viewer keeps only a number: how far they have
read. Who falls behind the tail reads the table instead, so that a slow viewer costs us nothing and
misses nothing. There is no lock: all of this lives on one event loop.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from paperclip.streams import sse

TAIL_EVENTS = 512
# Of what was there before the latest rows. Whoever reads along needs no more than this, and each of
# hundreds of runs would keep half a thousand events for somebody who never comes.
TAIL_BEFORE = 32
TAIL_BYTES = 256 * 1024
BATCHES_KEPT = 64
MANY_NOTICES = 200
RESYNC = "resync"

ENDED = frozenset({"succeeded", "failed", "timed_out", "cancelled", "lost", "unknown"})


class Bell:
    """Wakes everybody who listened before it rang. Listen first, then look, then wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    def listen(self) -> asyncio.Event:
        return self._event


@dataclass(slots=True, eq=False)
class RunFeed:
    """The tail of one run's output. `floor` is the last seq before the tail, `last` its end."""

    run_id: uuid.UUID
    company_id: uuid.UUID
    created_at: datetime
    floor: int
    last: int
    bell: Bell = field(default_factory=Bell)
    viewers: int = 0
    ending: dict[str, Any] | None = None
    frames: deque[tuple[int, bytes]] = field(default_factory=deque)
    size: int = 0

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Take rows that follow `last`, in order of seq; each is encoded once for all viewers."""
        before = len(self.frames)
        for row in rows:
            if row["seq"] <= self.last:
                continue
            data = encode(row)
            self.frames.append((row["seq"], data))
            self.size += len(data)
            self.last = row["seq"]
        most = min(TAIL_EVENTS, TAIL_BEFORE + len(self.frames) - before)
        while len(self.frames) > most or (self.size > TAIL_BYTES and len(self.frames) > 1):
            seq, data = self.frames.popleft()
            self.size -= len(data)
            self.floor = seq

    def after(self, seen: int, limit_bytes: int = 64 * 1024) -> tuple[bytes, int]:
        """The frames after `seen` in one piece, and how far they reach."""
        parts: list[bytes] = []
        size, start = 0, max(0, len(self.frames) - (self.last - seen))
        for place in range(start, len(self.frames)):
            seq, data = self.frames[place]
            if seq <= seen:
                continue
            parts.append(data)
            size += len(data)
            seen = seq
            if size >= limit_bytes:
                break
        return b"".join(parts), seen


def encode(row: dict[str, Any]) -> bytes:
    """A run event as its viewers get it."""
    return sse.frame(
        row["kind"],
        {
            "seq": row["seq"],
            "kind": row["kind"],
            "text": row["text"],
            "data": row["data"],
            "at": row["at"],
        },
        row["seq"],
    )


@dataclass(slots=True, eq=False)
class CompanyFeed:
    """Hints of what changed in a company, in batches. Viewers re-read what they show."""

    company_id: str
    bell: Bell = field(default_factory=Bell)
    viewers: int = 0
    token: int = 0
    pending: dict[tuple[str, str | None], None] = field(default_factory=dict)
    batches: deque[tuple[int, list[tuple[str, bytes]]]] = field(
        default_factory=lambda: deque(maxlen=BATCHES_KEPT)
    )

    def note(self, topic: str, entity_id: str | None) -> None:
        self.pending[topic, entity_id] = None

    def flush(self, now_ms: int) -> None:
        """Turn what is pending into a batch. Its token grows, also across restarts."""
        if not self.pending:
            return
        notices: Iterable[tuple[str, str | None]] = self.pending
        if len(self.pending) > MANY_NOTICES:  # a flood: say which topics, not which rows
            notices = dict.fromkeys((topic, None) for topic, _ in self.pending)
        self.token = max(self.token + 1, now_ms)
        frames = [
            (topic, sse.frame(topic, {"topic": topic, "id": entity_id}, self.token))
            for topic, entity_id in notices
        ]
        self.pending = {}
        self.batches.append((self.token, frames))
        self.bell.ring()

    def after(self, seen: int, topics: frozenset[str]) -> tuple[bytes, int]:
        """The hints after `seen`; one `resync` when the viewer missed some."""
        if not self.batches or seen >= self.token:
            return b"", seen
        full = len(self.batches) == BATCHES_KEPT
        if full and seen < self.batches[0][0]:
            return resync(self.token), self.token
        parts = [
            data
            for token, frames in self.batches
            if token > seen
            for topic, data in frames
            if not topics or topic in topics or topic == RESYNC
        ]
        return b"".join(parts), self.token


def resync(token: int) -> bytes:
    """Tells a viewer to read everything anew: they may have missed hints."""
    return sse.frame(RESYNC, {"topic": RESYNC, "id": None}, token)
