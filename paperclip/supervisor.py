"""One parent for all processes of an instance: started, watched, started again, ended.

Not for what the processes do. Each child leads a session of its own and is tied to this process
(`paperclip.children`), so that nothing is left behind however this process ends. A single thread
does everything here, because a tied child dies with the thread that started it.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from django.conf import settings

from paperclip import children

_POLL_SECONDS = 0.25
_NOT_FOR_CHILDREN = frozenset({"PAPERCLIP_ADMIN_PASSWORD"})
_STABLE_SECONDS = 30  # a child that lived this long starts again at once
_BACK_OFF_SECONDS = (0.5, 1, 2, 5, 10, 30)
_WATCH_SECONDS = 3
STOP_SECONDS = 10


@dataclass
class Child:
    """One process (and all that it starts) under the supervisor's eyes.

    At a stop, `notice` is sent to the child's own children before the child gets SIGTERM, and
    `before_kill` is called after it, to tell those that no signal reaches. `ailing` is asked every
    now and then; a sentence as answer means that the child lives but does not work.
    """

    name: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    notice: signal.Signals | None = None
    before_kill: Callable[[], None] | None = None
    ailing: Callable[[float], str | None] | None = None
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restart_at: float | None = None
    failures: int = 0
    _rest: bytes = b""

    def lines(self, data: bytes) -> Iterator[str]:
        """Yields the whole lines of the child's output; keeps the unfinished one, bounded."""
        *whole, rest = (self._rest + data).split(b"\n")
        if len(rest) > 10_000 or not data:
            whole.append(rest)
            rest = b""
        self._rest = rest
        for line in whole:
            if line.strip():
                yield line.decode("utf-8", "replace").rstrip()


class Supervisor:
    """Runs children until it is told to stop. Use as a context manager: leaving it ends all."""

    def __init__(self, *, cwd: Path, say: Callable[[str], None]) -> None:
        self._cwd = cwd
        self._say = say
        self._children: list[Child] = []
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._impatient = False
        self._watch_at = time.monotonic() + _WATCH_SECONDS
        self._watched: list[tuple[str, Callable[[], int | None], Callable[[], None]]] = []
        self._awaited: list[tuple[Callable[[], bool], Callable[[], None]]] = []

    def __enter__(self) -> "Supervisor":
        # select() sleeps on through a signal unless something it listens to wakes it.
        self._alarm, alarm = socket.socketpair()
        for end in (self._alarm, alarm):
            end.setblocking(False)
        self._alarm_in = alarm
        signal.set_wakeup_fd(alarm.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._alarm, selectors.EVENT_READ, None)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._end_all()
        finally:
            signal.set_wakeup_fd(-1)
            self._selector.close()
            self._alarm.close()
            self._alarm_in.close()

    def _on_signal(self, signum: int, _: object) -> None:
        # The second Ctrl-C of somebody in a hurry cuts the waiting short.
        self._impatient = self._stopping and signum == signal.SIGINT
        self._stopping = True

    def watch(self, name: str, poll: Callable[[], int | None], restart: Callable[[], None]) -> None:
        """Calls `restart` when `poll` tells that a process started elsewhere has ended."""
        self._watched.append((name, poll, restart))

    def when(self, condition: Callable[[], bool], act: Callable[[], None]) -> None:
        """Calls `act` once, as soon as `condition` holds."""
        self._awaited.append((condition, act))

    def add(self, child: Child) -> None:
        """Starts `child` and keeps it running."""
        self._children.append(child)
        self._start(child)

    def run(self) -> None:
        """Watches the children until SIGTERM, SIGINT or SIGHUP."""
        while not self._stopping:
            self._listen(_POLL_SECONDS)
            now = time.monotonic()
            self._look_outside()
            for child in self._children:
                self._look_after(child, now)
            if now >= self._watch_at:
                self._watch_at = now + _WATCH_SECONDS
                self._look_for_ailing(now)

    def _look_outside(self) -> None:
        for name, poll, restart in self._watched:
            code = poll()
            if code is not None and not self._stopping:
                self._say(f"{name} ended ({_how(code)}); starting it again")
                restart()
        for entry in list(self._awaited):
            condition, act = entry
            if condition():
                self._awaited.remove(entry)
                act()

    # --- one child --------------------------------------------------------------------------------

    def _start(self, child: Child) -> None:
        if self._stopping:
            return
        child.process = subprocess.Popen(
            child.argv,
            cwd=self._cwd,
            env={**_handed_down(), **child.env, children.SUPERVISED: "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=children.tied(),
        )
        child.started_at = time.monotonic()
        child.restart_at = None
        assert child.process.stdout is not None
        os.set_blocking(child.process.stdout.fileno(), False)
        self._selector.register(child.process.stdout, selectors.EVENT_READ, child)

    def _look_after(self, child: Child, now: float) -> None:
        if child.process is None:
            if child.restart_at is not None and now >= child.restart_at:
                self._start(child)
            return
        code = child.process.poll()
        if code is None:
            return
        self._bury(child)
        if self._stopping:
            return
        if now - child.started_at >= _STABLE_SECONDS:
            child.failures = 0
        pause = _BACK_OFF_SECONDS[min(child.failures, len(_BACK_OFF_SECONDS) - 1)]
        child.failures += 1
        child.restart_at = now + pause
        self._say(f"{child.name} ended ({_how(code)}); starting it again in {pause:g} s")

    def _bury(self, child: Child) -> None:
        """Ends whatever a dead child left in its session and lets go of its output."""
        process = child.process
        assert process is not None
        assert process.stdout is not None
        kill_session(process.pid)
        self._drain(child)
        with contextlib.suppress(KeyError):
            self._selector.unregister(process.stdout)
        process.stdout.close()
        child.process = None

    def _look_for_ailing(self, now: float) -> None:
        for child in self._children:
            if child.process is None or child.ailing is None:
                continue
            complaint = child.ailing(now - child.started_at)
            if complaint:
                self._say(f"{child.name} {complaint}; starting it again")
                kill_tree(child.process.pid)

    # --- output -----------------------------------------------------------------------------------

    def _listen(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._alarm.recv(4096)
            elif not self._drain(key.data, rounds=1):
                with contextlib.suppress(KeyError):
                    self._selector.unregister(key.fileobj)

    def _drain(self, child: Child, rounds: int = 100) -> bool:
        """Prints what a child has written; returns False at the end of its output."""
        assert child.process is not None
        assert child.process.stdout is not None
        for _ in range(rounds):
            try:
                data = os.read(child.process.stdout.fileno(), 65_536)
            except BlockingIOError:
                return True
            for line in child.lines(data):
                print_line(child.name, line)
            if not data:
                return False
        return True

    # --- the end ----------------------------------------------------------------------------------

    def _end_all(self) -> None:
        """Asks all children to end, waits for `STOP_SECONDS` at most, then ends them."""
        self._stopping = True
        alive = [child for child in self._children if child.process is not None]
        for child in alive:
            assert child.process is not None
            if child.notice is not None:
                _signal_children(child.process.pid, child.notice)
            # Only the parent of a qcluster: a signal to all of it makes that parent hang for ever.
            if child.process.poll() is None:
                child.process.terminate()
        for child in alive:
            if child.before_kill is not None:
                child.before_kill()
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline and not self._impatient:
            if all(child.process is None or child.process.poll() is not None for child in alive):
                break
            self._listen(0.05)
        for child in alive:
            assert child.process is not None
            kill_tree(child.process.pid)
            child.process.wait()
            self._bury(child)


def _handed_down() -> dict[str, str]:
    """The environment without what only the start needs: whoever runs as our user can read it."""
    return {name: value for name, value in os.environ.items() if name not in _NOT_FOR_CHILDREN}


def print_line(name: str, line: str) -> None:
    """Prints a line of a child's output, unless the terminal is gone."""
    shown = _as_json(name, line) if settings.LOG_FORMAT == "json" else f"{name:<9}│ {line}"
    with contextlib.suppress(OSError, ValueError):
        print(shown, file=sys.stderr, flush=True)  # noqa: T201


def _as_json(name: str, line: str) -> str:
    """A line of ours with the process that wrote it; whatever else a child says, wrapped."""
    known: object = None
    if line.startswith("{"):
        with contextlib.suppress(ValueError):
            known = json.loads(line)
    said = known if isinstance(known, dict) and "event" in known else {"event": line}
    return json.dumps({**said, "process": name}, ensure_ascii=False)


def _how(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def kill_tree(pid: int) -> None:
    """Kills a process, all its descendants and its session: also those in sessions of their own."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(pid)
        # Stopped first, so that nothing is started between the look and the blow.
        top.suspend()
        family = [top, *top.children(recursive=True)]
    _kill(family)
    kill_session(pid)


def kill_session(sid: int) -> None:
    """Kills every process of the session `sid`; they stay its members when their parent is gone."""
    for _ in range(5):
        members = list(_session(sid))
        if not members:
            return
        _kill(members)
        psutil.wait_procs(members, timeout=1)


def _signal_children(pid: int, signum: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children():
            with contextlib.suppress(psutil.Error):
                process.send_signal(signum)


def _session(sid: int) -> Iterator[psutil.Process]:
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) == sid:
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def kill_strays(mark: str, value: str) -> int:
    """Kills processes of an earlier life, known by `mark`=`value` in their environment.

    Where the system does not tell children of their parent's end, a killed supervisor leaves them.
    Returns how many there were.
    """
    strays = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(mark) == value:
                strays.append(process)
    _kill(strays)
    psutil.wait_procs(strays, timeout=5)
    return len(strays)
