"""What a process keeps of the runs that are watched: bounded, however long they write."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from paperclip.streams import feeds

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def feed() -> feeds.RunFeed:
    return feeds.RunFeed(uuid.uuid4(), uuid.uuid4(), NOW, floor=0, last=0)


def rows(first: int, last: int, text: str = "word ") -> list[dict[str, Any]]:
    return [
        {"seq": seq, "kind": "text", "text": text, "data": None, "at": NOW}
        for seq in range(first, last + 1)
    ]


def test_a_run_that_writes_for_long_keeps_little_in_memory() -> None:
    watched = feed()
    for seq in range(1, 1_001):
        watched.add(rows(seq, seq))
    assert len(watched.frames) <= feeds.TAIL_BEFORE + 1
    assert (watched.floor, watched.last) == (1_000 - len(watched.frames), 1_000)


def test_what_came_at_once_is_there_for_everybody_who_reads_along() -> None:
    watched = feed()
    watched.add(rows(1, 50))
    watched.add(rows(51, 250))
    assert watched.floor <= 50
    chunk, seen = watched.after(50, limit_bytes=10**6)
    assert (chunk.count(b"event: text"), seen) == (200, 250)


def test_large_pieces_are_bounded_by_their_bytes() -> None:
    watched = feed()
    watched.add(rows(1, 40, "x" * 50_000))
    assert watched.size <= feeds.TAIL_BYTES
