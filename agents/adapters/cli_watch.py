"""One start of a command-line agent, watched from its first line to the end of its last process.

Limits: wall clock, silence, bytes, lines, steps a minute, model turns. It is stopped by SIGINT
(upon which some still tell what they used), SIGTERM and SIGKILL, over all its processes.
Read next: `agents/adapters/proctree.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agents.adapters.base import AdapterError, Code, Event, Step, Usage
from agents.adapters.child import Channel, Child
from agents.adapters.cli_reader import Ending, Lines, Reader
from agents.adapters.proctree import POLL_SECONDS, Tree

TICK_SECONDS = 0.25
LOOK_SECONDS = 2.0  # between snapshots of the descendants
DRAIN_SECONDS = 1.0  # after the end, for output that is still on its way
LINGER_SECONDS = 30.0  # after its last word, for a program that does not end
STRAY_GRACE_SECONDS = 1.0  # for what the program left behind


@dataclass(frozen=True, slots=True)
class Bounds:
    wall_seconds: float
    idle_seconds: float
    grace_seconds: float
    bytes: int
    lines: int
    steps_per_minute: int
    turns: int | None = None
    spent_seconds: float = 0.0  # of the wall clock, before this start


@dataclass(slots=True)
class Attempt:
    """One start. Iterate `events`, then ask for the `ending`."""

    reader: Reader
    executable: str
    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    stdin: bytes
    run_id: str
    limits: Mapping[str, int]
    bounds: Bounds
    book_usage: Callable[[Usage], None]
    settle: Callable[[], None]  # asked before the usage is
    walled: bool = False  # `executable` keeps the walls around the program
    exit_code: int | None = None
    _stopped: Ending | None = None  # why we ended it
    _lines: int = 0
    _steps: deque[float] = field(default_factory=deque)  # when the last steps happened
    _out: Lines = field(default_factory=Lines)
    _err: Lines = field(default_factory=Lines)
    _times: Clock | None = None

    async def events(self) -> AsyncGenerator[Event, None]:
        """What it says and does, then what it used. Raises AdapterError when it cannot start."""
        try:
            child = Child(
                executable=self.executable,
                argv=self.argv,
                cwd=self.cwd,
                env=self.env,
                stdin=self.stdin,
                limits=self.limits,
            )
        except (OSError, ValueError) as error:
            message = f"Could not start {self.executable}: {error}"
            raise AdapterError(Code.CONFIG_INVALID, message) from error
        tree = Tree(root=child.pid, run_id=self.run_id, walled=self.walled)
        try:
            await child.listen()
            ended = False
            while not ended:
                ended, events = await self._next(child, tree)
                for event in events:
                    yield event
            for event in await self._stop(child, tree):
                yield event
        except (asyncio.CancelledError, GeneratorExit):
            # Nothing can be yielded any more, yet the provider bills what it generated.
            self._stopped = Ending(Code.CANCELLED, "The run was cancelled.")
            await self._stop(child, tree)
            for usage in self.reader.usages():
                self.book_usage(usage)
            raise
        except BaseException:
            tree.kill()
            raise
        finally:
            child.close()
        for usage in self.reader.usages():
            yield usage

    def ending(self) -> Ending:
        """How it ended: by what it said, or why we ended it."""
        return self._stopped or self.reader.ending(self.exit_code)

    # --- watching --------------------------------------------------------------------------------

    async def _next(self, child: Child, tree: Tree) -> tuple[bool, list[Event]]:
        """A piece of its output, and whether that was the end of the watch."""
        loop = asyncio.get_running_loop()
        clock = self._clock(loop.time())
        piece = await child.next(seconds=TICK_SECONDS)
        now = loop.time()
        events = self._take(piece, now)
        if piece is not None:
            clock.alive_at = now
        if self.reader.finished and clock.finished_at is None:
            clock.finished_at = now
        if now - clock.looked_at >= LOOK_SECONDS:
            clock.looked_at = now
            await asyncio.to_thread(tree.look)
        if child.returncode is not None:
            return True, events
        if clock.finished_at is not None:
            return now - clock.finished_at >= LINGER_SECONDS, events
        self._stopped = self.reader.give_up or self._limit(child, clock, now)
        return self._stopped is not None, events

    def _clock(self, now: float) -> Clock:
        if self._times is None:
            self._times = Clock(now, now, now)
        return self._times

    def _take(self, piece: tuple[Channel, str] | None, now: float) -> list[Event]:
        if piece is None:
            return []
        channel, text = piece
        before = self.reader.steps
        events: list[Event] = []
        if channel == "stdout":
            for line in self._out.feed(text):
                self._lines += 1
                events += self.reader.line(line)
        else:
            for line in self._err.feed(text):
                self._lines += 1
                events += self.reader.error_line(line)
        self._steps.extend([now] * (self.reader.steps - before))
        return events

    def _limit(self, child: Child, clock: Clock, now: float) -> Ending | None:
        bounds = self.bounds
        while self._steps and now - self._steps[0] > 60:
            self._steps.popleft()
        if now - clock.started_at + bounds.spent_seconds >= bounds.wall_seconds:
            took = f"{bounds.wall_seconds:g} seconds"
            return Ending(Code.TIMED_OUT, f"The run took longer than {took}.")
        if now - clock.alive_at >= bounds.idle_seconds:
            return Ending(Code.IDLE, f"Nothing was heard for {bounds.idle_seconds:g} seconds.")
        if child.bytes_out > bounds.bytes:
            return Ending(Code.OUTPUT_LIMIT, f"It wrote more than {bounds.bytes} bytes.")
        if self._lines > bounds.lines:
            return Ending(Code.OUTPUT_LIMIT, f"It wrote more than {bounds.lines} lines.")
        if len(self._steps) > bounds.steps_per_minute:
            return Ending(
                Code.TURN_LIMIT,
                f"It took more than {bounds.steps_per_minute} steps in a minute, as programs do "
                "that turn in a circle.",
            )
        if bounds.turns is not None and self.reader.turns > bounds.turns:
            return Ending(
                Code.TURN_LIMIT,
                f"It took {bounds.turns} turns and was not done. Raise maxTurnsPerRun, or give "
                "it a smaller piece of work.",
            )
        return None

    # --- stopping --------------------------------------------------------------------------------

    async def _stop(self, child: Child, tree: Tree) -> list[Event]:
        """End all its processes, listening to what it still has to say."""
        step = self.bounds.grace_seconds / 2
        ladder = [(signal.SIGINT, step), (signal.SIGTERM, step)]
        if child.returncode is not None:
            ladder = [(signal.SIGTERM, min(step, STRAY_GRACE_SECONDS))]
        loop = asyncio.get_running_loop()
        ending = loop.create_task(tree.end(signals=ladder))
        events: list[Event] = []
        try:
            while not ending.done():
                events += self._take(await child.next(seconds=POLL_SECONDS), loop.time())
            await ending
            until = loop.time() + DRAIN_SECONDS
            while loop.time() < until and not child.output_ended:
                events += self._take(await child.next(seconds=POLL_SECONDS), loop.time())
            while (piece := child.waiting()) is not None:
                events += self._take(piece, loop.time())
            self.exit_code = await child.wait(seconds=2.0)
        except BaseException:
            ending.cancel()
            tree.kill()  # a second cancellation: no more patience
            raise
        for line in self._out.close():
            events += self.reader.line(line)
        for line in self._err.close():
            events += self.reader.error_line(line)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self.settle)
        return events + self._broken_steps()

    def _broken_steps(self) -> list[Event]:
        """No step stays open on the page."""
        open_ = self.reader.open_steps()
        return [Step(id_, name, "end", output="Interrupted.", is_error=True) for id_, name in open_]


@dataclass(slots=True)
class Clock:
    """Moments of the event loop's clock."""

    started_at: float
    alive_at: float
    looked_at: float
    finished_at: float | None = None


# --- asking something short ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer of a short-lived program; `code` None means that it did not end in time."""

    code: int | None
    stdout: str
    stderr: str


async def probe(
    executable: str, arguments: Sequence[str], *, env: Mapping[str, str], cwd: str, seconds: float
) -> Asked:
    """Run a short command; no process of it outlives the call. Raises nothing of its own."""
    mark = f"probe-{uuid.uuid4()}"
    said: dict[Channel, list[str]] = {"stdout": [], "stderr": []}
    try:
        child = Child(
            executable=executable,
            argv=[executable, *arguments],
            cwd=cwd,
            env={**env, "PAPERCLIP_RUN_ID": mark},
            stdin=b"",
            limits={"CORE": 0},
        )
    except (OSError, ValueError) as error:
        return Asked(None, "", str(error))
    tree = Tree(root=child.pid, run_id=mark)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    try:
        await child.listen()
        while loop.time() < deadline and not (child.returncode is not None and child.output_ended):
            piece = await child.next(seconds=POLL_SECONDS)
            if piece is not None:
                said[piece[0]].append(piece[1])
            if child.bytes_out > 1024**2:
                break
        while (piece := child.waiting()) is not None:
            said[piece[0]].append(piece[1])
        code = child.returncode
    finally:
        await tree.end(signals=())
        await child.wait(seconds=2.0)
        child.close()
    return Asked(code, "".join(said["stdout"]), "".join(said["stderr"]))
