from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from companies import live
from tests.faults.processes import Processes


@pytest.fixture
def processes(transactional_db: None, tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    try:
        yield made
    finally:
        made.end()
        print(made.logs()[-5_000:])  # shown when the test fails
        live.close()
