"""Every process that belongs to a run, wherever it went, and its end.

A program's children leave its process group and even its tree: shells of agents open sessions
of their own, daemons fork twice. So a run's processes are found in three ways: descendants that
were seen while their parents lived, members of the session, and carriers of the run's id in
their environment. Killing the process group alone is not enough.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field

import psutil

MARK = "PAPERCLIP_RUN_ID"
# The same for nobody's use: who looks at an ended run in their own shell may well set the other.
PROCESS_MARK = "PAPERCLIP_RUN_PROCESS"
POLL_SECONDS = 0.05
MAX_SWEEPS = 10


@dataclass(slots=True)
class Tree:
    """The processes of one run. `root` leads a session of its own. With `walled`, it and its child
    keep the walls around the others (`isolation.py`): they end with these, and who ended them
    first would kill all at once."""

    root: int
    run_id: str
    walled: bool = False
    seen: dict[int, psutil.Process] = field(default_factory=dict)

    def look(self) -> list[psutil.Process]:
        """All that are alive now, the root included when it is. Takes milliseconds: not for
        the event loop."""
        mark = f"{MARK}={self.run_id}".encode()
        own = os.getpid()
        for process in psutil.process_iter():
            if process.pid == own or process.pid in self.seen:
                continue
            if self._in_session(process.pid) or _marked(process.pid, mark):
                self.seen[process.pid] = process
        for process in list(self.seen.values()):
            try:
                for child in process.children(recursive=True):
                    self.seen.setdefault(child.pid, child)
            except psutil.Error:
                continue
        return [process for process in self.seen.values() if _alive(process)]

    def _in_session(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self.root
        except OSError:
            return False

    async def end(self, *, signals: Iterable[tuple[signal.Signals, float]]) -> None:
        """End them all: each signal in turn, with the seconds granted after it, then SIGKILL."""
        loop = asyncio.get_running_loop()
        for number, seconds in signals:
            alive = await asyncio.to_thread(self.look)
            if not alive:
                return
            hearing = [process for process in alive if not self._keeps_walls(process)]
            if not hearing:
                break
            _send(hearing, number)
            deadline = loop.time() + seconds
            while loop.time() < deadline and any(map(_alive, alive)):  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
        for _ in range(MAX_SWEEPS):  # whoever forks while being killed is found the next time
            alive = await asyncio.to_thread(self.look)
            if not alive:
                return
            _send(alive, signal.SIGKILL)
            await asyncio.sleep(POLL_SECONDS / 5)

    def _keeps_walls(self, process: psutil.Process) -> bool:
        try:
            return self.walled and self.root in (process.pid, process.ppid())
        except psutil.Error:
            return False

    def kill(self) -> None:
        """End them all at once, without waiting."""
        _send(self.look(), signal.SIGKILL)


def _marked(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return mark in environ.read().split(b"\0")
    except OSError:
        return False


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)  # checks the start time, so never a stranger
        except (psutil.Error, OSError):
            continue
