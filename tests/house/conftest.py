from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.instance import Instance


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """An instance that runs throughout a module."""
    instance = Instance(tmp_path_factory.mktemp("house") / "data").start()
    try:
        yield instance
    finally:
        instance.stop()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data folder that does not exist yet."""
    return tmp_path / "data"
