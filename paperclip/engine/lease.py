"""How a shift stays alive: it renews its worker's lease and stops itself in time when it cannot.

The database decides who is alive, by its own clock. The shift goes by its monotonic clock and is
stricter: it stops `MARGIN_SECONDS` before the database could give its runs to somebody else. A
thread of its own sees to that when the event loop is stuck: it ends the process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

import psutil

from agents import workers

log = logging.getLogger(__name__)

MARGIN_SECONDS = 2.0
LOOK_SECONDS = 0.25
LAST_WORDS_SECONDS = 1.0  # for a loop that notices late, before the process is ended
EXIT_CODE = 75  # EX_TEMPFAIL: start me again


class Lease:
    """Until when this process may believe that its runs are its own."""

    def __init__(self) -> None:
        self._trusted_until = 0.0
        self._begun = False

    def renewed(self, *, asked_at: float) -> None:
        """A renewal was granted that was asked for at `asked_at` (monotonic seconds).

        Trust that has ended stays ended: what runs had to say meanwhile was refused, and they
        would go on as if it had been written.
        """
        if self._begun and not self.good:
            return
        self._begun = True
        self._trusted_until = asked_at + workers.LEASE_SECONDS - MARGIN_SECONDS

    def end(self) -> None:
        """It is over as of now; whoever is still at work has its last words."""
        self._trusted_until = min(self._trusted_until, time.monotonic())

    @property
    def good(self) -> bool:
        return time.monotonic() < self._trusted_until

    @property
    def left(self) -> float:
        return self._trusted_until - time.monotonic()


class Guard(threading.Thread):
    """Ends the process when its lease has passed and the event loop has not stopped the runs.

    `idle()` tells that nothing is running any more. `on_stuck` is the end; tests put something
    gentler there.
    """

    def __init__(
        self, lease: Lease, idle: Callable[[], bool], on_stuck: Callable[[], None] | None = None
    ) -> None:
        super().__init__(name="lease-guard", daemon=True)
        self._lease = lease
        self._idle = idle
        self._on_stuck = on_stuck or end_process
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if self._lease.left < -LAST_WORDS_SECONDS and not self._idle():
                log.critical("the event loop is stuck and the lease has run out: ending")
                self._on_stuck()
                return

    def stop(self) -> None:
        self._over.set()


def end_process() -> None:
    """End this process and everything it started, now."""
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.Error:
            continue
    os._exit(EXIT_CODE)
