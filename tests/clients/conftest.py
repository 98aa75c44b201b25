"""Where the real clients are: installed by `make clients` beside this file, or elsewhere."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.api.conftest import as_ada, as_olga  # noqa: F401

NODE = 20
HERE = Path(__file__).parent


def modules() -> Path:
    return Path(os.environ.get("PAPERCLIP_CLIENTS", HERE)) / "node_modules"


def installed(package: str) -> Path:
    """The package's folder; the test is skipped where it is not installed."""
    folder = modules() / package
    if not folder.exists():
        pytest.skip(f"{package} is not installed: make clients")
    if _node() < NODE:
        pytest.skip(f"{package} needs Node {NODE} or newer")
    return folder


@functools.cache
def _node() -> int:
    """The major version of Node, 0 where there is none."""
    if shutil.which("node") is None:
        return 0
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    major = said.strip().removeprefix("v").partition(".")[0]
    return int(major) if major.isdigit() else 0
