"""Where a run's calls to a provider pass: admitted one by one, their ends reported, and over to
another provider when the one before has failed.

The rules are in `agents/providers.py`; here they meet the event loop. Read next: `heartbeat.py`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agents import providers, runs
from agents.adapters import legs
from agents.adapters.base import AdapterError, Route, Throttled
from agents.models import RunEvent
from billing import reservations
from companies import clock
from paperclip.engine.journal import Journal

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0  # longer waits are for the schedule, not for a run that holds a place
# What a run has done cannot be begun again, so one that has acted waits rather than fails.
ACTED_PATIENCE_SECONDS = 300.0
WORTH_A_WORD_SECONDS = 1.0


class Turnstile:
    """Of one run. The callbacks are the heartbeat's: verbs in threads, work that is waited for."""

    def __init__(
        self,
        claimed: runs.Claimed,
        *,
        journal: Journal,
        insist: Callable[..., Awaitable[Any]],
        track: Callable[[asyncio.Future[None]], Any],
        settle: Callable[[], Awaitable[None]],
        acted: Callable[[], bool],
    ) -> None:
        self._claimed = claimed
        self._journal = journal
        self._insist = insist
        self._track = track
        self._settle = settle
        self._acted = acted

    def begin(self, routes: Sequence[Route]) -> None:
        """Say so when the run was claimed on a fallback, since its own provider has trouble."""
        if routes and routes[0].position > 0:
            self._say(routes[0], "provider_open")

    async def admit(self, route: Route, *, tokens: int) -> None:
        """Wait until a call of at most `tokens` may go out. Raises Throttled when that is long,
        and at once when the provider has trouble and nothing would be lost by asking another."""
        await self._settle()  # what is known of the call before counts for this one
        patience = ACTED_PATIENCE_SECONDS if self._acted() else PATIENCE_SECONDS
        waited, told = 0.0, False
        while True:
            wait: providers.Wait | None = await self._insist(
                providers.take, connection_id=uuid.UUID(route.connection_id), tokens=tokens
            )
            if wait is None:
                return
            hopeless = wait.seconds is None or waited + wait.seconds > patience
            if wait.seconds is None or hopeless or (wait.diverts and not self._acted()):
                raise Throttled(
                    wait.code, wait.message, retry_after=wait.seconds, diverts=wait.diverts
                )
            if not told and wait.seconds >= WORTH_A_WORD_SECONDS:
                told = True
                self._journal.note(RunEvent.Kind.SYSTEM, f"Waiting: {wait.message}")
            pause = wait.seconds * random.uniform(1.0, 1.1)  # noqa: S311 - spreads, nothing to guess
            await asyncio.sleep(pause)
            waited += pause

    def report(
        self, route: Route, *, taken: int, tokens: int, answered: bool, error: AdapterError | None
    ) -> None:
        """Tell what became of an admitted call; goes on beside the run, and is waited for."""
        self._track(
            asyncio.ensure_future(
                self._report(route, taken=taken, tokens=tokens, answered=answered, error=error)
            )
        )

    async def _report(
        self, route: Route, *, taken: int, tokens: int, answered: bool, error: AdapterError | None
    ) -> None:
        unasked = error is not None and not answered and error.code in legs.PASSES_ELSEWHERE
        try:
            await self._insist(
                told,
                self._claimed.run_id,
                uuid.UUID(route.connection_id),
                taken=taken,
                tokens=tokens,
                answered=answered,
                error=error,
                unasked=unasked,
            )
        except runs.Stale:
            pass  # the bucket refills by itself, and a probe without an end runs out
        except Exception:
            log.exception("run %s: a call's end was not reported", self._claimed.run_id)

    async def divert(self, route: Route, because: AdapterError) -> bool:
        """May the run go on with this connection? It is counted there from now on."""
        await self._settle()
        moved: bool = await self._insist(
            providers.move,
            run_id=self._claimed.run_id,
            epoch=self._claimed.epoch,
            connection_id=uuid.UUID(route.connection_id),
        )
        if moved:
            self._say(route, str(because.code))
        return moved

    def _say(self, route: Route, because: str) -> None:
        self._journal.note(
            RunEvent.Kind.SYSTEM,
            f"Ran on fallback: {route.name} ({route.model}) answers from here.",
            data={
                "fallback": {
                    "connectionId": route.connection_id,
                    "model": route.model,
                    "because": because,
                }
            },
        )


def told(
    run_id: uuid.UUID,
    connection_id: uuid.UUID,
    *,
    taken: int,
    tokens: int,
    answered: bool,
    error: AdapterError | None,
    unasked: bool,
) -> None:
    """The end of a call in the database: for the connection, and for the money kept for it."""
    if unasked:
        # No answer, no bill: the next grant, at the next one's price, takes its place.
        reservations.release(run_id=run_id, now=clock.now())
    providers.note(
        connection_id=connection_id, taken=taken, tokens=tokens, answered=answered, error=error
    )
