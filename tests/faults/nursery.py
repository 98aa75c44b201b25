"""Shifts by the dozen: forked from one warm process, as django-q2 forks its workers.

`python -m tests.faults.nursery` reads one JSON object a line (the environment of a shift) and
answers with the pid of the shift that it has forked; they end with it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from typing import Any, Self

from tests.faults.processes import Processes


class Nursery:
    """The test's side. Use as a context manager: leaving it ends all shifts."""

    def __init__(self, processes: Processes, **env: str) -> None:
        self._process = processes.launch(
            [sys.executable, "-W", "ignore", "-m", "tests.faults.nursery"],
            name="nursery",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **{"DJANGO_SETTINGS_MODULE": "tests.faults.settings", **env},
        )
        self._gone: dict[int, int] = {}

    def __enter__(self) -> Self:
        assert self._ask({"warm": "up"}) == {"ready": True}
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def shift(self, **env: str) -> int:
        """The pid of a new shift."""
        return int(self._ask({"shift": env})["pid"])

    def ended(self, pid: int) -> bool:
        return pid in self._reap()

    def signal_of(self, pid: int) -> int:
        """By which signal a shift has ended; 0: by itself."""
        return self._reap()[pid]

    def _reap(self) -> dict[int, int]:
        answer = self._ask({"reap": True})["gone"]
        self._gone.update({int(pid): signum for pid, signum in answer.items()})
        return self._gone

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], 60)
        line = self._process.stdout.readline() if ready else b""
        assert line, "the nursery does not answer"
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    import django

    django.setup()
    from companies import faultpoints
    from paperclip.engine import station

    importlib.import_module("paperclip.engine.tasks")
    children: set[int] = set()
    for line in sys.stdin.buffer:
        question = json.loads(line)
        answer: dict[str, Any] = {"ready": True}
        if "shift" in question:
            pid = os.fork()
            if pid == 0:
                os.setpgid(0, 0)
                os.dup2(2, 1)
                os.close(0)
                os.environ.update(question["shift"])
                faultpoints._plan = faultpoints._from_environment()
                try:
                    station.in_foreground()
                finally:
                    os._exit(0)
            children.add(pid)
            answer = {"pid": pid}
        elif "reap" in question:
            gone = {}
            for pid in list(children):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    children.discard(pid)
                    gone[pid] = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            answer = {"gone": gone}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
