"""Races need commits of their own; notices of other tests must not linger."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from companies import live


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    yield
    live.close()
