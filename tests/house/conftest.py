import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.house.instance import Instance


@pytest.fixture(scope="module")
def running() -> Iterator[Instance]:
    """An instance that runs throughout a module."""
    with _open_folder() as folder:
        instance = Instance(folder / "data").start()
        try:
            yield instance
        finally:
            instance.stop()


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data folder that does not exist yet."""
    with _open_folder() as folder:
        yield folder / "data"


@pytest.fixture(scope="module")
def used_dir() -> Iterator[Path]:
    """A data folder for several instances, one after the other."""
    with _open_folder() as folder:
        yield folder / "data"


@contextmanager
def _open_folder() -> Iterator[Path]:
    """A folder that others may pass through, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="paperclip-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)
