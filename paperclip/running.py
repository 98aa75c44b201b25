"""Where the instance of this data folder answers, for commands that run beside it in a shell that
knows less than the one that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from django.conf import settings

_NAMED_BY = ("PAPERCLIP_BASE_URL", "PAPERCLIP_PORT", "PAPERCLIP_HOST")


@contextmanager
def announced(data_dir: Path, address: str) -> Iterator[None]:
    """This process runs the instance and answers at `address`, until the end."""
    path, own = _path(data_dir), psutil.Process()
    path.write_text(json.dumps({"pid": own.pid, "began": own.create_time(), "url": address}))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def base_url() -> str:
    """The address that people use: as the environment says, else that of the instance that runs
    on the data folder, else the default."""
    if any(os.environ.get(name) for name in _NAMED_BY):
        return settings.BASE_URL
    return _announced(settings.DATA_DIR) or settings.BASE_URL


def _announced(data_dir: Path) -> str:
    """Empty when nobody runs here; a file that a killed instance left says nothing."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, psutil.Error):
        said = json.loads(_path(data_dir).read_text())
        if psutil.Process(said["pid"]).create_time() == said["began"]:
            return str(said["url"])
    return ""


def _path(data_dir: Path) -> Path:
    return data_dir / "running.json"
