"""Which shifts of this machine are certainly gone: their end is known at once, not by the lease.

The lease decides who is alive, and lets a dead shift look alive for ten seconds, in which what it
carried blocks its agents and issues. On the same machine nobody has to wait for that. Each shift
keeps a file below DATA_DIR/shifts locked; the kernel lets go of the lock when the process has
ended, however it ended, and not before: one that is frozen keeps it. Whoever gets the lock ends the
lease of that worker, and everything takes its usual way. Where files cannot be locked, or for
another machine's shifts, the lease is all there is. Read next: `recover.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import time
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

from django.conf import settings

from agents import workers

log = logging.getLogger(__name__)

FORGOTTEN_SECONDS = 2 * 86_400.0  # longer than any shift; for what another boot has left
DRAFT_SECONDS = 60.0  # a lock is taken within that time
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAME = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.(draft|worker)\.([0-9a-f-]+)")


class Presence:
    """The lock of one worker. Without a place for it there is none, which is said in the log."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._held: int | None = None

    def begin(self) -> None:
        """Take the lock, under a name that nobody judges by; before the worker registers."""
        boot = _boot()
        if boot is None:
            return
        path = folder() / f"{uuid.uuid4()}.draft.{boot}"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._path = path
        except OSError as error:
            log.warning("no lock for this shift, its lease will do: %s", error)

    def name(self, worker_id: uuid.UUID) -> None:
        """From now on whoever gets the lock knows that this worker is gone."""
        if self._path is None:
            return
        named = self._path.with_name(f"{worker_id}.worker.{_boot()}")
        try:
            self._path = self._path.rename(named)
        except OSError as error:
            log.warning("no lock for this shift, its lease will do: %s", error)

    def end(self) -> None:
        """Nobody concludes anything from here on: what is left is the lease's."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
        if self._held is not None:
            os.close(self._held)
        self._path = self._held = None


def folder() -> Path:
    """Where the files are: readable by the owner only."""
    return Path(settings.DATA_DIR) / "shifts"


def anyone_gone() -> bool:
    """Is there a shift that has ended without a word? Cheap: a look at a few files."""
    with contextlib.closing(_gone()) as gone:
        return next(gone, None) is not None


def bury() -> list[uuid.UUID]:
    """End the leases of the workers that are certainly gone; says whose. A file stays until the
    database knows. Raises what the database raises."""
    buried = []
    for path, worker_id in _gone():
        if workers.bury(worker_id=worker_id):
            log.warning("worker %s: its process is gone", worker_id)
            buried.append(worker_id)
        path.unlink(missing_ok=True)
    return buried


def _gone() -> Generator[tuple[Path, uuid.UUID]]:
    """The files whose lock nobody holds, each locked by us while the caller looks at it, with their
    workers. What nobody can judge by is cleared away in time."""
    boot = _boot()
    for path, name, kind, where in _files():
        if where != boot:
            _forget(path, FORGOTTEN_SECONDS)
        elif kind == "draft":
            _forget(path, DRAFT_SECONDS)
        else:
            with _locked(path) as ours:
                if ours:
                    yield path, uuid.UUID(name)


def _files() -> list[tuple[Path, str, str, str]]:
    """With the worker's id, what kind of name it is, and on which boot it was made."""
    try:
        found = [(path, _NAME.fullmatch(path.name)) for path in folder().iterdir()]
    except OSError:
        return []
    return [(path, match[1], match[2], match[3]) for path, match in found if match]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    try:
        held = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(held)


def _forget(path: Path, seconds: float) -> None:
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > seconds:
            path.unlink()


def _boot() -> str | None:
    """This machine since its last start: only its own kernel knows who lives on it."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return None
