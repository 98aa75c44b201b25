"""How many calls a caller may make a minute, counted by all processes of all instances together.

A process takes calls from the shared count in blocks and spends a block by itself, so that most
calls cost no statement. Together they never grant more than the limit; what a process has taken and
not spent when the minute ends is lost, a hundredth of the limit at most.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import connection

from companies.errors import RateLimited

WINDOW_SECONDS = 60
BLOCKS = 100
MAX_CALLERS = 10_000


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left to a caller after a call, and the seconds until all of it is there again."""

    limit: int
    left: int
    resets_in: int


@dataclass(slots=True)
class _Held:
    """What this process may still spend for a caller in a window."""

    window: int
    calls: int = 0
    taken: int = 0  # by all processes, as far as this one knows


class Quota:
    """The count of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    def take(self, caller: str, *, limit: int, now: datetime) -> Allowance:
        """Count one call. Raises RateLimited when the minute's calls are used up."""
        window = int(now.timestamp()) // WINDOW_SECONDS * WINDOW_SECONDS
        resets_in = max(1, window + WINDOW_SECONDS - int(now.timestamp()))
        if self._spend(caller, window):
            return self._allowance(caller, limit, resets_in)
        if not self._used_up(caller, window, limit):
            self._refill(caller, window, limit)
            if self._spend(caller, window):
                return self._allowance(caller, limit, resets_in)
        raise RateLimited(
            f"More than {limit} calls in a minute; wait a little.", retry_after=resets_in
        )

    def _spend(self, caller: str, window: int) -> bool:
        with self._lock:
            held = self._held.get(caller)
            if held is None or held.window != window or held.calls <= 0:
                return False
            held.calls -= 1
            return True

    def _used_up(self, caller: str, window: int, limit: int) -> bool:
        """Known without asking: who is over the limit costs the database nothing more."""
        with self._lock:
            held = self._held.get(caller)
            return held is not None and held.window == window and held.taken >= limit

    def _refill(self, caller: str, window: int, limit: int) -> None:
        block = max(1, limit // BLOCKS)
        taken = _take_block(caller, datetime.fromtimestamp(window, UTC), block)
        granted = min(block, max(0, limit - (taken - block)))
        with self._lock:
            held = self._held.get(caller)
            if held is None or held.window != window:
                if len(self._held) >= MAX_CALLERS:
                    self._held = {
                        name: one for name, one in self._held.items() if one.window == window
                    }
                held = self._held[caller] = _Held(window)
            held.calls += granted
            held.taken = max(held.taken, taken)

    def _allowance(self, caller: str, limit: int, resets_in: int) -> Allowance:
        with self._lock:
            held = self._held[caller]
            return Allowance(limit, max(0, limit - held.taken) + held.calls, resets_in)


def _take_block(caller: str, window: datetime, block: int) -> int:
    """Take so many calls from the shared count; returns what all have taken, these included."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO companies_throttle (key, window_start, count) VALUES (%s, %s, %s) "
            "ON CONFLICT (key, window_start) "
            "DO UPDATE SET count = companies_throttle.count + EXCLUDED.count RETURNING count",
            [f"calls:{caller}"[:200], window, block],
        )
        return int(cursor.fetchone()[0])


_quota = Quota()


def take(caller: str, *, limit: int, now: datetime) -> Allowance:
    """Count one call of this process. Raises RateLimited."""
    return _quota.take(caller, limit=limit, now=now)
