"""Money tests end with a proof: whatever happened, the books agree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from billing import audit


@pytest.fixture(autouse=True)
def books_agree(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test that used the database, ledger, totals and runs say the same."""
    if not {"acme", "db", "transactional_db"} & set(request.fixturenames):
        yield
        return
    request.getfixturevalue("db" if "db" in request.fixturenames else "transactional_db")
    yield
    assert audit.drifts() == []
