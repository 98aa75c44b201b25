"""Real processes of the product on the test database, ended with the test whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings
from django.db import connection, connections
from psycopg.conninfo import make_conninfo


def environment(data_dir: Path, **more: str) -> dict[str, str]:
    """The environment of a process that works on the test database."""
    given = connection.settings_dict
    dsn = make_conninfo(
        dbname=given["NAME"],
        user=given["USER"] or None,
        password=given["PASSWORD"] or None,
        host=given["HOST"] or None,
        port=given["PORT"] or None,
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PAPERCLIP_", "DATABASE_"))}
    return {
        **kept,
        "DJANGO_SETTINGS_MODULE": "paperclip.settings",
        "DATABASE_URL": dsn,
        "PAPERCLIP_DATA_DIR": str(data_dir),
        "SECRET_KEY": settings.SECRET_KEY,
        **more,
    }


class Processes:
    """Starts `manage.py` commands and ends all of them, with everything they started."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.alive: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, **env: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-W", "ignore", "manage.py", *command]
        return self.launch(argv, name=command[0], **env)

    def launch(
        self,
        argv: list[str],
        *,
        name: str,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        **env: str,
    ) -> subprocess.Popen[bytes]:
        """What it says on stderr (and on stdout, unless that is asked for) goes to its log."""
        log = self.log_of(name, len(self.alive)).open("wb")
        with log:
            process = subprocess.Popen(
                argv,
                cwd=settings.BASE_DIR,
                env=environment(self.data_dir, **env),
                stdin=stdin,
                stdout=log if stdout is None else stdout,
                stderr=log,
                start_new_session=True,
            )
        self.alive.append(process)
        return process

    def log_of(self, name: str, number: int) -> Path:
        """The log of the process that was started as this number."""
        return self.data_dir / f"{name}-{number}.log"

    def shift(self, **env: str) -> subprocess.Popen[bytes]:
        """A shift in the foreground that knows the quick adapter."""
        return self.start("shift", **{"DJANGO_SETTINGS_MODULE": "tests.faults.settings", **env})

    def cluster(self, shifts: int = 1, **env: str) -> subprocess.Popen[bytes]:
        """A django-q2 cluster of so many shifts, tied together as `manage.py up` ties it."""
        return self.start(
            "qcluster",
            "--skip-checks",
            **{
                "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
                "Q_CLUSTER_NAME": "dispatch",
                "PAPERCLIP_SHIFTS": str(shifts),
                "PAPERCLIP_INSTANCE": "here",
                "PAPERCLIP_SUPERVISED": "1",
                **env,
            },
        )

    def logs(self) -> str:
        return "\n".join(p.read_text("utf-8", "replace") for p in self.data_dir.glob("*.log"))

    def end(self) -> None:
        for process in self.alive:
            for one in family(process.pid):
                with contextlib.suppress(psutil.Error):
                    one.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        # Members of a session outlive a parent that was killed.
        for session in {process.pid for process in self.alive}:
            for pid in psutil.pids():
                with contextlib.suppress(OSError):
                    if os.getsid(pid) == session:
                        os.kill(pid, signal.SIGKILL)


def family(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def until(condition: Callable[[], Any], seconds: float, *, what: str, look: float = 0.05) -> float:
    """Wait for a condition; returns how many seconds it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(look)
    return time.monotonic() - began


def kill(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait(10)


def reconnect() -> None:
    connections.close_all()
