from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from companies import live
from tests.faults import server
from tests.faults.processes import Processes
from tests.faults.server import OwnServer


@pytest.fixture
def processes(transactional_db: None, tmp_path: Path) -> Iterator[Processes]:
    """On the tests' own database."""
    yield from _processes(tmp_path)


@pytest.fixture
def own_server(
    tmp_path: Path, django_db_blocker: Any, django_db_setup: None
) -> Iterator[OwnServer]:
    with server.own_server(tmp_path / "own-pg", django_db_blocker) as made:
        yield made


@pytest.fixture
def beside(own_server: OwnServer, tmp_path: Path) -> Iterator[Processes]:
    """On the server that the test may kill."""
    yield from _processes(tmp_path)


def _processes(data_dir: Path) -> Iterator[Processes]:
    made = Processes(data_dir)
    try:
        yield made
    finally:
        made.end()
        print(made.logs()[-5_000:])  # shown when the test fails
        live.close()
