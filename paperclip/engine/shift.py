"""The resident loop: one process that carries hundreds of heartbeats at once.

A shift registers as a worker, claims queued runs in batches, carries each as a task of its event
loop, writes the output of all of them in one statement every 100 ms, and renews its lease. It is
started by `station.py`.

How it ends. Asked to drain, it claims nothing more, waits `grace` seconds, puts the remaining
runs down under a new epoch and retires its worker. When the lease cannot be renewed in time it
stops everything at once and writes nothing. Who asks, and what comes after: `station.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections.abc import Callable

from django.conf import settings

from agents import adapters, meters, runs, workers
from companies import clock, live
from paperclip.engine import bell, heartbeat, lease, presence, recover, spool, strays, tick
from paperclip.engine.hands import LONGEST_CALL_SECONDS, Hands, about, traceback_of
from paperclip.engine.heartbeat import Heartbeat
from paperclip.engine.journal import Journal
from paperclip.engine.writer import Writer

log = logging.getLogger(__name__)

HANDS = 4  # threads for domain verbs
CAPACITY = 250
CLAIM_BATCH = 50
AHEAD = 32  # claimed runs that may stand before the hands: more is for other shifts to take
LOOKS = 8  # claims in a row before the loop takes a breath
POLL_SECONDS = 1.0  # the net below LISTEN
ROUND_SECONDS = 2.0  # between looks for lost runs and due timers
STOP_SECONDS = 6.0  # for adapters to clean up (process trees take that long)
LONGEST_SECONDS = 20 * 3_600.0
WATCH_SECONDS = 0.5

DRAINED, FENCED, SURPLUS = "drained", "fenced", "surplus"


class Shift:
    """One life of a worker, from its registration to its end."""

    def __init__(
        self,
        *,
        instance: str,
        slot: int | None = None,
        capacity: int = CAPACITY,
        grace_seconds: float = 6.0,
        window_seconds: float | None = None,
        on_stuck: Callable[[], None] | None = None,
        should_end: Callable[[], bool] = lambda: False,
    ) -> None:
        self.instance = instance
        self.slot = slot
        self.capacity = capacity
        self.grace_seconds = grace_seconds
        self.window_seconds = window_seconds
        self.worker_id = uuid.UUID(int=0)
        self.running: dict[uuid.UUID, tuple[Heartbeat, asyncio.Task[None]]] = {}
        self.lease = lease.Lease()
        self._presence = presence.Presence()
        self.claimed_total = 0
        self._waiting = 0  # runs before the hands, to be opened or closed
        self._should_end = should_end
        self._guard = lease.Guard(self.lease, self._nobody_acts, on_stuck)
        self._work = asyncio.Event()
        self._gone = asyncio.Event()
        self._end = asyncio.Event()
        self._ending = ""
        self._place = runs.START
        self._unknown: set[uuid.UUID] = set()
        # What is over here, and when, and perhaps not in the database; and what was given up while
        # the answer to its claim may still come.
        self._carried: dict[uuid.UUID, float] = {}
        self._given_up: set[uuid.UUID] = set()
        self._hands = Hands(HANDS, "hands")
        self._gate = Hands(1, "gate")  # claims wait for no running run
        self._pen = Hands(1, "pen")  # output never queues behind verbs
        self._writer = Writer(
            self._pen, self.lease, journals=self._journals, on_stale=self._stop_stale
        )
        self._pulse = Hands(1, "pulse")  # and beats behind nothing
        self._broom = Hands(1, "broom")  # who is lost waits for nobody who is well
        self._all_hands = (self._hands, self._gate, self._pen, self._pulse, self._broom)
        self._bell = bell.Bell(lock_name=self._lock_name(), on_slot_lost=self.drain)

    # --- a life ------------------------------------------------------------------------------

    async def work(self) -> str:
        """Work until the end; says how it came: drained, fenced or surplus (slot taken)."""
        helpers: list[asyncio.Task[None]] = []
        try:
            if not await self._bell.open():
                return SURPLUS
            await self._register()
            self._guard.start()
            helpers = [
                asyncio.create_task(part(), name=part.__name__.strip("_"))
                for part in (
                    self._listen,
                    self._claim,
                    self._writer.write,
                    self._beat,
                    self._round,
                    self._watch,
                )
            ]
            for helper in helpers:
                helper.add_done_callback(self._helper_ended)
            await self._end.wait()
            if self._ending == DRAINED:
                await self._put_down()
            if self._ending == FENCED:
                await self._stop_all(heartbeat.FENCED)
            return self._ending
        finally:
            self._guard.stop()
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await self._leave()

    def drain(self) -> None:
        """End in good order. May be called from anywhere in the event loop, more than once."""
        if not self._ending:
            log.info("draining, %s runs going on", len(self.running))
            self._ending = DRAINED
        self._end.set()

    def hurry(self) -> None:
        """End in good order, without the grace."""
        self.grace_seconds = 0
        self.drain()

    def fence(self, why: str) -> None:
        """Stop everything at once: the runs may belong to somebody else any moment."""
        if self._ending != FENCED:
            log.error("%s: stopping %s runs", why, len(self.running))
            self._ending = FENCED
            meters.count(meters.LEASE_LOSSES)
            self.lease.end()
            for beat, _ in list(self.running.values()):
                beat.stop(heartbeat.FENCED)
            for hands in self._all_hands:
                hands.cut()  # nothing that is still on its way may count, or be waited for
        self._end.set()

    async def _register(self) -> None:
        asked_at = time.monotonic()
        self.worker_id = await asyncio.wait_for(
            self._pulse.call(self._enter), timeout=bell.OPEN_SECONDS
        )
        self.lease.renewed(asked_at=asked_at)
        log.info("worker %s of %s begins", self.worker_id, self.instance)

    def _enter(self) -> uuid.UUID:
        self._presence.begin()
        worker_id = workers.register(
            instance=self.instance, slot=self.slot or 0, pid=os.getpid(), capacity=self.capacity
        )
        self._presence.name(worker_id)
        return worker_id

    async def _put_down(self) -> None:
        """The end in good order: wait for what ends by itself, then put the rest down."""
        await self._wait_for_runs(self.grace_seconds, until_fenced=True)
        await self._stop_all(heartbeat.SHUTDOWN)

    async def _stop_all(self, why: str) -> None:
        for beat, _ in list(self.running.values()):
            beat.stop(why)
        await self._wait_for_runs(STOP_SECONDS)
        left = [task for _, task in self.running.values()]
        if left:
            log.warning("%s runs did not stop in time; their lease will end them", len(left))
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1)

    async def _wait_for_runs(self, seconds: float, *, until_fenced: bool = False) -> None:
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            if until_fenced and self._ending == FENCED:
                return
            tasks = [task for _, task in self.running.values()]
            left = min(0.2, max(0.01, deadline - time.monotonic()))
            await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _leave(self) -> None:
        if self._ending == DRAINED and self.lease.good:
            try:
                await asyncio.wait_for(
                    self._pulse.call(workers.retire, worker_id=self.worker_id), timeout=3
                )
            except Exception as error:
                log.warning("not retired, the lease will end: %s", error)
        await self._bell.close()
        with contextlib.suppress(Exception):
            await adapters.aclose()
        await asyncio.gather(*(asyncio.to_thread(hands.close) for hands in self._all_hands))
        self._presence.end()
        log.info("worker %s has ended: %s", self.worker_id, self._ending or "surplus")

    def _helper_ended(self, helper: asyncio.Task[None]) -> None:
        if not helper.cancelled() and helper.exception() is not None:
            log.error("a part of the shift failed", exc_info=helper.exception())
            self.fence(f"{helper.get_name()} has failed")

    # --- hearing -----------------------------------------------------------------------------

    async def _listen(self) -> None:
        await self._bell.listen(self._hear, self._work.set)

    def _hear(self, channel: str, payload: str) -> None:
        if channel == live.WAKE_CHANNEL:
            self._work.set()
        elif channel == live.CANCEL_CHANNEL:
            with contextlib.suppress(ValueError):
                self._cancel(uuid.UUID(payload))
        elif channel == bell.DRAIN_CHANNEL and payload == self.instance:
            self.drain()

    def _cancel(self, run_id: uuid.UUID) -> None:
        if run_id in self.running:
            self.running[run_id][0].stop(heartbeat.CANCEL)

    def _lock_name(self) -> str | None:
        return None if self.slot is None else f"paperclip.shift:{self.instance}:{self.slot}"

    async def _watch(self) -> None:
        """Does the outside want the end? Is the window over and nothing going on?"""
        parent = os.getppid()
        began = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self._should_end() or os.getppid() != parent:
                self.drain()
                return
            if presence.anyone_gone():
                self._gone.set()
            for hands in self._all_hands:
                if hands.cut(older_than=LONGEST_CALL_SECONDS):
                    log.warning("a call had no answer for %s s", LONGEST_CALL_SECONDS)
            age = time.monotonic() - began
            if self.window_seconds is not None and (
                (age > self.window_seconds and not self.running) or age > LONGEST_SECONDS
            ):
                self.drain()
                return

    # --- claiming ----------------------------------------------------------------------------

    async def _claim(self) -> None:
        failing = False
        while not self._ending:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(about(POLL_SECONDS)):
                    await self._work.wait()
            self._work.clear()
            try:
                await self._claim_all()
                failing = False
            except Exception as error:
                if not failing:
                    log.warning(
                        "cannot claim: %s", str(error).strip(), exc_info=traceback_of(error)
                    )
                failing = True
                await asyncio.sleep(about(1.0))

    async def _claim_all(self) -> None:
        for _ in range(LOOKS):
            free = self._room()
            if free <= 0 or self._ending or not self.lease.good:
                return
            batch = await self._gate.call(
                runs.claim,
                worker_id=self.worker_id,
                limit=min(free, CLAIM_BATCH),
                place=self._place,
                most_of_kind=dict.fromkeys(adapters.programs(), settings.CLI_RUNS),
            )
            self._place = batch.place
            for claimed in batch:
                if claimed.run_id not in self._given_up:
                    self._start(claimed)
            if batch and len(batch) == min(free, CLAIM_BATCH):
                continue
            if not batch.more:
                return
            if not batch:
                await asyncio.sleep(about(0.02))
        self._work.set()

    def _room(self) -> int:
        """How many runs may be claimed. Runs at their adapters cost little and may be many; those
        that wait for a hand, to be opened or closed, would only start later here than elsewhere,
        and be lost in heaps with this process. None while the hands have enough before them: a
        claim of one costs the database as much as one of many."""
        ahead = AHEAD - self._waiting
        return 0 if ahead < AHEAD // 2 else min(self.capacity - len(self.running), ahead)

    def _heed(self, acting: bool) -> None:
        """The adapter of a run has begun its part, or that is over."""
        self._waiting += -1 if acting else 1
        if acting:
            self._look_for_work()

    def _look_for_work(self) -> None:
        """There may be room for other runs."""
        if self._room() > 0:
            self._work.set()

    def _start(self, claimed: runs.Claimed) -> None:
        journal = Journal(
            run_id=claimed.run_id, epoch=claimed.epoch, limit_chars=settings.OUTPUT_LIMIT_CHARS
        )
        beat = Heartbeat(
            claimed,
            hands=self._hands,
            journal=journal,
            trusted=lambda: self.lease.good,
            on_acting=self._heed,
        )
        task = asyncio.create_task(beat.carry(), name=f"run {claimed.run_id}")
        self.running[claimed.run_id] = (beat, task)
        self.claimed_total += 1
        self._waiting += 1
        task.add_done_callback(lambda _: self._ended(claimed.run_id))
        if self._ending:  # it was claimed while the end began
            beat.stop(heartbeat.FENCED if self._ending == FENCED else heartbeat.SHUTDOWN)

    def _ended(self, run_id: uuid.UUID) -> None:
        self.running.pop(run_id, None)
        self._carried[run_id] = time.monotonic()
        self._waiting -= 1
        self._look_for_work()

    def _journals(self) -> dict[uuid.UUID, Journal]:
        return {run_id: beat.journal for run_id, (beat, _) in self.running.items()}

    def _nobody_acts(self) -> bool:
        """May be asked by another thread. A receipt on its way to the books is no act."""
        return not any(beat.acting for beat, _ in list(self.running.values()))

    def _stop_stale(self, run_id: uuid.UUID) -> None:
        if run_id in self.running:
            self.running[run_id][0].stop(heartbeat.FENCED)

    # --- living ------------------------------------------------------------------------------

    async def _beat(self) -> None:
        failing = False
        while True:
            asked_at = time.monotonic()
            try:
                beat = await asyncio.wait_for(
                    self._pulse.call(
                        workers.beat, worker_id=self.worker_id, running=len(self.running)
                    ),
                    timeout=max(0.1, min(4.0, self.lease.left)),
                )
            except Exception as error:
                if not failing:
                    log.warning("no beat: %s", str(error).strip() or "no answer in time")
                failing = True
                pause = 0.5
                self._pulse.cut()  # the next one asks on a connection of its own
            else:
                if not beat.alive:
                    self.fence("the lease has run out")
                    return
                failing, pause = False, workers.BEAT_SECONDS
                self.lease.renewed(asked_at=asked_at)
                if beat.at is not None:
                    clock.agree(beat.at)
                self._compare(beat, asked_at)
            await asyncio.sleep(max(0.0, min(pause, self.lease.left)))
            if not self.lease.good:
                self.fence("the lease could not be renewed in time")
                return

    def _compare(self, beat: workers.Beat, asked_at: float) -> None:
        """Bring what this shift carries and what the database says it owns together."""
        if beat.draining:
            self.drain()
        owned = {one.run_id: one for one in beat.owned}
        for run_id, (mine, _) in list(self.running.items()):
            one = owned.get(run_id)
            if one is not None and one.epoch == mine.claimed.epoch and one.cancelled:
                mine.stop(heartbeat.CANCEL)
        strange = {run_id for run_id in owned if run_id not in self.running}
        # Seen twice: claimed in a transaction whose answer never came. Nobody else will end it.
        for run_id in strange & self._unknown:
            one = owned[run_id]
            log.warning("run %s: owned but not carried, giving it up", run_id)
            self._given_up.add(run_id)
            task = asyncio.create_task(self._give_up(one, begun=run_id in self._carried))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._unknown = strange
        self._given_up &= owned.keys()
        # An answer knows nothing of what was claimed and ended while it was on its way.
        self._carried = {
            run_id: at for run_id, at in self._carried.items() if run_id in owned or at >= asked_at
        }

    async def _give_up(self, one: workers.Owned, *, begun: bool) -> None:
        await self._hands.call(
            recover.give_up, run_id=one.run_id, epoch=one.epoch, now=clock.now(), begun=begun
        )

    async def _round(self) -> None:
        """Every few seconds, and when another shift is gone: lost runs, due timers, issues left
        behind."""
        failing = False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(about(ROUND_SECONDS)):
                    await self._gone.wait()
            self._gone.clear()
            if self._ending:
                return
            try:
                await self._broom.call(presence.bury)
                await self._broom.call(spool.book_all)
                await self._broom.call(recover.sweep)
                await self._broom.call(tick.beats)
                await self._broom.call(recover.tidy)
                await self._broom.call(strays.end)
                failing = False
            except Exception as error:
                if not failing:
                    log.warning(
                        "the round failed: %s", str(error).strip(), exc_info=traceback_of(error)
                    )
                failing = True
