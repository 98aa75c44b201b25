"""Where the real clients are: `npm install` of package.json beside this file, or elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.api.conftest import as_ada, as_olga  # noqa: F401

HERE = Path(__file__).parent


def modules() -> Path:
    return Path(os.environ.get("PAPERCLIP_CLIENTS", HERE)) / "node_modules"


def installed(package: str) -> Path:
    """The package's folder; the test is skipped where it is not installed."""
    folder = modules() / package
    if shutil.which("node") is None or not folder.exists():
        pytest.skip(f"{package} is not installed: npm install in tests/clients")
    return folder
