"""What one user does, and how many do it when: 0 → N → 0."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from paperclip.load import provider as providers
from paperclip.load.driver import Driver, Seen
from paperclip.load.provider import Provider

PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Stage:
    """`users` come one after the other, stay, and leave again."""

    name: str
    users: int
    ramp_seconds: float
    hold_seconds: float

    @property
    def allowed(self) -> float:
        """Tasks a second when the product takes no time at all."""
        return self.users / (providers.MODEL_SECONDS + PAUSE_SECONDS)


@dataclass(slots=True)
class Outcome:
    """What happened while all users of a stage were there. Durations in seconds."""

    stage: Stage
    seconds: float = 0.0  # how long all users were there
    responses: list[float] = field(default_factory=list)  # asked to done
    first_delays: list[float] = field(default_factory=list)  # first token: sent to seen
    done_delays: list[float] = field(default_factory=list)  # end: sent to seen
    failures: list[str] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        return len(self.responses) / self.seconds if self.seconds else 0.0


async def play(
    stage: Stage,
    *,
    driver: Driver,
    provider: Provider,
    say: Callable[[str], None],
    stop: asyncio.Event,
) -> Outcome:
    """Lets the users of `stage` come, work and go; only the time between counts. `stop` sends them
    home early."""
    outcome = Outcome(stage)
    began = time.monotonic()
    full = began + stage.ramp_seconds
    over = full + stage.hold_seconds
    last = full  # when the last task that counts was done

    async def one(number: int) -> None:
        nonlocal last
        share = stage.ramp_seconds * number / max(1, stage.users)
        await asyncio.sleep(share)
        turn = 0
        while time.monotonic() < over + share and not stop.is_set():
            task = f"{stage.users}-{number}-{turn}"
            prompt = f"What do we know about topic {turn}? {providers.mark(task)}"
            seen = await driver.task(user=number, prompt=prompt)
            turn += 1
            if full <= seen.done_at < over:
                last = max(last, seen.done_at)
                _count(outcome, seen, provider, task)
            provider.sent.pop(task, None)
            await asyncio.sleep(PAUSE_SECONDS)

    async def tell() -> None:
        while True:
            await asyncio.sleep(5)
            done, bad = len(outcome.responses), len(outcome.failures)
            passed = time.monotonic() - began
            say(f"{stage.name}: {passed:3.0f} s, {done} tasks done, {bad} failed")

    teller = asyncio.create_task(tell())
    try:
        await asyncio.gather(*(one(number) for number in range(stage.users)))
    finally:
        teller.cancel()
    outcome.seconds = last - full if stop.is_set() else stage.hold_seconds
    return outcome


def _count(outcome: Outcome, seen: Seen, provider: Provider, task: str) -> None:
    sent = provider.sent.get(task)
    if seen.failure or sent is None or seen.first_token_at is None:
        outcome.failures.append(seen.failure or "the provider was never asked")
        return
    outcome.responses.append(seen.done_at - seen.asked_at)
    outcome.first_delays.append(seen.first_token_at - sent.first_token_at)
    outcome.done_delays.append(seen.done_at - sent.done_at)
