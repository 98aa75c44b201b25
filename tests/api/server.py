"""The real web server on the tests' database, for clients that nobody here wrote."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.house.instance import ROOT, database_address, free_port

START_SECONDS = 60


@contextlib.contextmanager
def serving(data_dir: Path) -> Iterator[str]:
    """Granian with the ASGI application; yields its address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    log = (data_dir / "web.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "granian", "paperclip.asgi:application", "--interface", "asgi",
         "--loop", "uvloop", "--no-ws", "--host", "127.0.0.1", "--port", str(port),
         "--workers-kill-timeout", "2s", "--log-level", "warning"],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "paperclip.settings",
            "DATABASE_URL": database_address(),
            "PAPERCLIP_PORT": str(port),
            "PAPERCLIP_DATA_DIR": str(data_dir),
        },
        stdout=log,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        _wait(address, process)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
        log.close()


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "the web server ended"
        with contextlib.suppress(urllib.error.URLError, OSError):
            with urllib.request.urlopen(f"{address}/api/health", timeout=2):
                return
        time.sleep(0.1)
    raise AssertionError("the web server did not start")
