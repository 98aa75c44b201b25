"""Which model answers a run, which session it goes on with and how long it may take, on the way to
the run's row.

A run that is soon over writes all of it with its end; one that goes on has it written meanwhile,
so that people see it. Read next: `heartbeat.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agents import runs
from paperclip.engine.hands import PASSING

log = logging.getLogger(__name__)

LATER_SECONDS = 0.5
FENCED = "fenced"


class Notes:
    """Of one run. The callbacks are the heartbeat's: verbs in threads, work that is waited for,
    the end of a run that is not ours any more."""

    def __init__(
        self,
        claimed: runs.Claimed,
        *,
        insist: Callable[..., Awaitable[Any]],
        track: Callable[[asyncio.Future[None]], Any],
        stop: Callable[[str], None],
    ) -> None:
        self.model = ""  # this and the next two are what is unwritten
        self.session: dict[str, Any] = {}
        self.result: dict[str, Any] = {}
        self._claimed = claimed
        self._insist = insist
        self._track = track
        self._stop = stop
        self._later: asyncio.TimerHandle | None = None

    def limit(self, deadline: Mapping[str, Any]) -> None:
        """Note the limit of the run's time; it is written with what comes next."""
        if deadline:
            self.result["deadline"] = dict(deadline)

    def add(self, model: str, session: Mapping[str, Any]) -> None:
        """Note what an adapter says of itself; the latest counts."""
        if not (model or session or self.result):
            return
        self.model = model or self.model
        self.session.update(session)
        if self._later is None:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(LATER_SECONDS, self._begin_to_write)

    def close(self) -> None:
        """From now on nothing is written by itself."""
        if self._later is not None:
            self._later.cancel()
            self._later = None

    async def write(self) -> None:
        """Write what is unwritten. A run that is not ours any more is stopped."""
        model, session, result = self.model, self.session, self.result
        if not (model or session or result):
            return
        self.model, self.session, self.result = "", {}, {}
        about = {"run_id": self._claimed.run_id, "epoch": self._claimed.epoch}
        known = {"model": model, "session": session, "result": result}
        try:
            await self._insist(runs.note_started, **about, **known)
        except (runs.Stale, *PASSING):
            self._stop(FENCED)
        except Exception:
            log.exception("run %s: not noted: %s", self._claimed.run_id, model)

    def _begin_to_write(self) -> None:
        self._later = None
        self._track(asyncio.ensure_future(self.write()))
