"""A whole instance for a test: `manage.py up` in a process of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
from django.db import connection
from psycopg.conninfo import make_conninfo

from paperclip import postgres

ROOT = Path(__file__).resolve().parents[2]
# A minute on a machine that is ours; more where others use it at the same time.
START_SECONDS = 60 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(data_dir: Path, port: int, **extra: str) -> dict[str, str]:
    """The environment of an instance that shares nothing with the tests' own database."""
    ours = ("PAPERCLIP_", "DATABASE_", "DJANGO_", "SECRET_KEY", "REDIS_URL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {
        "PAPERCLIP_DATA_DIR": str(data_dir),
        "PAPERCLIP_PORT": str(port),
        "PAPERCLIP_DEMO": "0",
        "PYTHONUNBUFFERED": "1",
        **extra,
    }


def database_address() -> str:
    """Where the tests' own database is, for code that connects by itself."""
    known = connection.settings_dict
    return make_conninfo(
        host=known["HOST"],
        port=known["PORT"] or None,
        user=known["USER"],
        password=known["PASSWORD"] or None,
        dbname=known["NAME"],
    )


def manage(*args: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [sys.executable, ROOT / "manage.py", *args],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


class Instance:
    """A running `manage.py up`."""

    def __init__(self, data_dir: Path, port: int | None = None, **extra: str) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        self.env = environment(data_dir, self.port, **extra)
        self.log = data_dir.with_name(f"{data_dir.name}.out")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Instance":
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, ROOT / "manage.py", "up"],
                env=self.env,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ready = wait_for(
            lambda: "is ready at" in self.output() or self.pid_gone(), seconds=START_SECONDS
        )
        if not ready:
            self.process.kill()  # all others end with it
        assert ready, self.output()
        assert not self.pid_gone(), self.output()
        return self

    def pid_gone(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def output(self) -> str:
        return self.log.read_text()

    def stop(self, signum: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signum)
        return self.process.wait(20)

    def status(self, path: str = "/sign-in") -> int:
        """The status that a page answers with, 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as page:
                return int(page.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def serves(self) -> bool:
        return self.status() == 200

    def family(self) -> list[psutil.Process]:
        """Every process of this instance except `up` itself, however it is related."""
        found = []
        for process in psutil.process_iter():
            try:
                ours = process.environ().get("PAPERCLIP_UP") == str(self.data_dir)
                # The database server runs as somebody else; its socket's folder tells whose it is.
                ours = ours or str(postgres.socket_dir(self.data_dir / "pg")) in process.cmdline()
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def named(self, part: str) -> list[psutil.Process]:
        """The processes of this instance with `part` in their command line, oldest first."""
        found = []
        for process in self.family():
            try:
                if part in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return sorted(found, key=lambda process: process.create_time())
