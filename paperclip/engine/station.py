"""Where a shift lives: in a worker of a django-q2 cluster, or in the foreground as a process of
its own. One after another, until the end: a fenced shift is followed by a new one.

How it learns of the end. By `schedule.request_drain` (a notice, and a flag in its worker's row);
by SIGTERM; and by the cluster around it: django-q2 waits without limit for a running task when
its parent gets SIGTERM, so the shift looks twice a second at the cluster's own stop event and at
whether its parent is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import uvloop
from django.conf import settings
from django.db import connections

from agents import meters
from companies import live
from paperclip import garbage, tracing
from paperclip.engine import schedule
from paperclip.engine.hands import about, traceback_of
from paperclip.engine.shift import FENCED, SURPLUS, Shift

log = logging.getLogger(__name__)

WINDOW_SECONDS = 3_600.0  # then the shift ends at the next idle moment, for a fresh process


async def serve(
    *,
    instance: str,
    slots: int | None = None,
    capacity: int | None = None,
    window_seconds: float | None = None,
    should_end: Callable[[], bool] = lambda: False,
) -> str:
    """Carry shifts until the end: a fenced one is followed by a new worker with a fresh lease.

    With `slots` at most that many processes of the instance do so; a surplus one returns at once.
    """
    loop = asyncio.get_running_loop()
    current: list[Shift] = []
    over = asyncio.Event()

    def on_signal() -> None:
        for shift in current:
            if over.is_set():
                shift.hurry()
            else:
                shift.drain()
        over.set()

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, on_signal)
    meters.report(instance=instance, kind="shift", source=dict)
    failures = 0
    try:
        while True:
            for slot in range(slots) if slots is not None else (None,):
                shift = Shift(
                    instance=instance,
                    slot=slot,
                    capacity=capacity or settings.SHIFT_CAPACITY,
                    grace_seconds=settings.GRACE_SECONDS,
                    window_seconds=window_seconds,
                    should_end=should_end,
                )
                current[:] = [shift]
                try:
                    ending = await shift.work()
                    failures = 0
                except Exception as error:
                    if failures == 0:  # said once, however long the database is away
                        log.warning("no shift: %s", error, exc_info=traceback_of(error))
                    ending = FENCED
                    failures += 1
                if ending != SURPLUS:
                    break
            if ending != FENCED or over.is_set() or should_end():
                return ending
            pause = about(min(10.0, 0.5 * 2 ** min(failures, 5)))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), pause)
    finally:
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signum)


def in_cluster() -> None:
    """A shift inside a django-q2 worker, for a window of time.

    Returns at once when the cluster is stopping or the instance's shifts are all at work.
    """
    stopping = cluster_is_stopping(sys._getframe())
    if stopping():
        return
    was = signal.getsignal(signal.SIGTERM)
    try:
        _run(
            serve(
                instance=schedule.instance(),
                slots=settings.SHIFTS,
                window_seconds=about(WINDOW_SECONDS),
                should_end=stopping,
            )
        )
    finally:
        signal.signal(signal.SIGTERM, was)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        meters.close()
        tracing.close()
        connections.close_all()


def in_foreground(*, capacity: int | None = None) -> None:
    """A shift of its own, until SIGTERM or SIGINT. A second signal ends the grace."""
    _run(serve(instance=schedule.instance(), capacity=capacity))
    meters.close()
    tracing.close()
    live.flush()


def _run(main: Any) -> None:
    garbage.keep_what_is_there()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def cluster_is_stopping(frame: Any) -> Callable[[], bool]:
    """How a task learns that its django-q2 cluster is being stopped.

    django-q2 tells its workers only by an end of the queue, behind the running task. The worker
    was forked inside `Sentinel.guard`, whose frames are still below ours and hold the event that
    SIGTERM of the parent sets. Its value is read without its lock, which a killed reader would
    take along. Where workers are not forked nothing is found, and the notice remains.
    """
    for local in _frames(frame):
        sentinel = local.get("self")
        if type(sentinel).__name__ == "Sentinel":
            flag = getattr(getattr(sentinel, "stop_event", None), "_flag", None)
            if flag is not None:
                return functools.partial(_is_set, flag)
    return lambda: False


def _is_set(flag: Any) -> bool:
    return bool(flag.get_value() > 0)


def _frames(frame: Any) -> Iterator[dict[str, Any]]:
    while frame is not None:
        yield frame.f_locals
        frame = frame.f_back
