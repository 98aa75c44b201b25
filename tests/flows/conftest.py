"""One instance with one company for all that is tried here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import mock_llm
from tests.flows import office as offices
from tests.flows.office import Office


@pytest.fixture(scope="module")
def office() -> Iterator[Office]:
    with tempfile.TemporaryDirectory(prefix="paperclip-test-") as folder:
        with offices.instance(Path(folder)) as instance, Office(instance) as made:
            made.set_prices()
            yield made


@pytest.fixture(scope="module")
def model() -> Iterator[mock_llm.Served]:
    """A model that says what it is told to."""
    with mock_llm.serve_in_thread() as served:
        yield served
