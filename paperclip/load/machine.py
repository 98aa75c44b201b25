"""What an instance on this machine uses: memory by kind of process, database connections."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import psutil
import psycopg

_EVERY_SECONDS = 2.0
KINDS = {
    "paperclip-web": "web",
    "paperclip-tasks": "tasks",
    "paperclip-shifts": "shifts",
}


@dataclass(slots=True)
class Use:
    """The most that was seen. Memory in bytes, shared pages counted once."""

    memory: dict[str, int] = field(default_factory=dict)  # by kind; "database" apart
    connections: int = 0
    connection_limit: int = 0

    @property
    def own_memory(self) -> int:
        """All our processes, PostgreSQL apart."""
        return sum(size for kind, size in self.memory.items() if kind != "database")


class Watch:
    """Looks at an instance every two seconds, from `start` to `stop`, in a thread of its own."""

    def __init__(self, *, data_dir: Path, dsn: str) -> None:
        self._data_dir = data_dir
        self._dsn = dsn
        self._ended = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self.use = Use()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> Use:
        self._ended.set()
        self._thread.join()
        return self.use

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            sizes = memory(self._data_dir)
            if sum(sizes.values()) > sum(self.use.memory.values()):
                self.use.memory = sizes
            with contextlib.suppress(psycopg.Error):
                used, self.use.connection_limit = connections(self._dsn)
                self.use.connections = max(self.use.connections, used)


def memory(data_dir: Path) -> dict[str, int]:
    """Bytes by kind of process of the instance on `data_dir`; empty when none runs here."""
    sizes: dict[str, int] = {}
    try:
        parent = psutil.Process(int((data_dir / "up.lock").read_text()))
        family = [parent, *parent.children(recursive=True)]
    except (OSError, ValueError, psutil.Error):
        return sizes
    for process in family:
        with contextlib.suppress(psutil.Error, OSError):
            kind = _kind(process, parent)
            sizes[kind] = sizes.get(kind, 0) + process.memory_full_info().pss
    return sizes


def _kind(process: psutil.Process, parent: psutil.Process) -> str:
    if process.name().startswith("postgres"):
        return "database"
    if process.pid == parent.pid:
        return "parent"
    return KINDS.get(process.environ().get("PAPERCLIP_PROCESS", ""), "other")


def connections(dsn: str) -> tuple[int, int]:
    """Connections to the database now, and how many it takes."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FILTER (WHERE backend_type = 'client backend'),"
            " current_setting('max_connections')::int FROM pg_stat_activity"
        ).fetchone()
    assert row is not None
    return row[0] - 1, row[1]  # the one that asks is not the instance's


def circumstances() -> str:
    """One line: when, how many cores, how much memory, how busy."""
    load = ", ".join(f"{value:.1f}" for value in psutil.getloadavg())
    memory_gib = psutil.virtual_memory().total / 2**30
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return f"{when} · {psutil.cpu_count()} cores, {memory_gib:.0f} GiB · load {load}"
