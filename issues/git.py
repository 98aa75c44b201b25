"""Git as a program of its own: an argument list, a time limit, a cap on its output, and an
environment made from nothing.

A repository that an agent has written to is hostile: its configuration may name programs that Git
starts by itself. What can be switched off on the command line (hooks, file system monitors,
external diffs, signatures, transports) is switched off here. Knows no models; what to ask of a
repository is in `repository.py`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from agents.adapters.child import LAUNCHER

ASK_SECONDS = 20.0
CHANGE_SECONDS = 120.0
OUTPUT_BYTES = 2 * 1024 * 1024
ERROR_BYTES = 8 * 1024
CHUNK_BYTES = 64 * 1024

_SAFE = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.attributesFile": "/dev/null",
    "core.sshCommand": "false",
    "credential.helper": "",
    "gc.auto": "0",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "safe.directory": "*",
    "submodule.recurse": "false",
}


class GitError(Exception):
    """Git did not do it; the message is what it said, in one line."""


@dataclass(frozen=True, slots=True)
class Output:
    """What Git printed; `cut` when there was more than the cap."""

    data: bytes
    cut: bool = False

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    @property
    def line(self) -> str:
        return self.text.strip()


def ask(folder: str, *arguments: str, git_dir: str = "", cap: int = OUTPUT_BYTES) -> Output:
    """Ask something of the repository at `folder`, or of the work tree there whose own Git folder
    is `git_dir`. Raises GitError."""
    where = ["-C", folder]
    if git_dir:  # what the `.git` of the work tree says now is nobody's business
        where += [f"--git-dir={git_dir}", f"--work-tree={folder}"]
    return _run([*where, *arguments], seconds=ASK_SECONDS, cap=cap)


def change(folder: str, *arguments: str) -> Output:
    """Change something; Git ends when the process that asked ends. Raises GitError."""
    return _run(["-C", folder, *arguments], seconds=CHANGE_SECONDS, cap=ERROR_BYTES, bound=True)


def _run(arguments: Sequence[str], *, seconds: float, cap: int, bound: bool = False) -> Output:
    settings = [part for name, value in _SAFE.items() for part in ("-c", f"{name}={value}")]
    command = ["git", "--no-pager", *settings, *arguments]
    if bound:
        start = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), "{}"]
        command = [*start, _program(), *command]
    try:
        process = subprocess.Popen(
            command,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise GitError(f"Git could not be started: {error}") from error
    try:
        output, said, cut = _read(process, seconds=seconds, cap=cap)
    finally:
        _end(process)
    if process.returncode and not cut:
        lines = said.decode("utf-8", "replace").strip().splitlines()
        raise GitError((lines[-1] if lines else f"exit code {process.returncode}")[:500])
    return Output(output, cut)


def _read(
    process: subprocess.Popen[bytes], *, seconds: float, cap: int
) -> tuple[bytes, bytes, bool]:
    """Both outputs up to their caps, and whether standard output was cut."""
    assert process.stdout is not None
    assert process.stderr is not None
    kept: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for each in kept:
            selector.register(each, selectors.EVENT_READ, each)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise GitError(f"Git took longer than {seconds:g} seconds.")
            for key, _ in ready:
                pipe: IO[bytes] = key.data
                chunk = os.read(key.fd, CHUNK_BYTES)
                if not chunk:
                    selector.unregister(pipe)
                elif pipe is process.stderr:
                    kept[pipe] = (kept[pipe] + chunk)[-ERROR_BYTES:]
                else:
                    kept[process.stdout] += chunk
                    if len(kept[process.stdout]) > cap:
                        return bytes(kept[process.stdout][:cap]), b"", True
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise GitError(f"Git took longer than {seconds:g} seconds.") from None
    return bytes(kept[process.stdout]), bytes(kept[process.stderr]), False


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _environment() -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH") or os.defpath,
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "GIT_NO_LAZY_FETCH": "1",
    }


def _program() -> str:
    for folder in os.get_exec_path():
        path = os.path.join(folder, "git")
        if os.access(path, os.X_OK):
            return path
    raise GitError("Git is not installed on this machine.")
