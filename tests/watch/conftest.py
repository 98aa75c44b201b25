"""A meter of the test's own, and a scrape of `/metrics` as numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from agents import meters

Scrape = Callable[..., dict[tuple[str, tuple[tuple[str, str], ...]], float]]


@pytest.fixture(autouse=True)
def meter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have counted is not ours."""
    monkeypatch.setattr(meters, "_the_meter", None)


@pytest.fixture
def scrape() -> Scrape:
    """Brings the counts in and reads `/metrics`; a sample is known by its name and labels."""

    def read(**headers: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        meters.flush()
        response = Client().get("/metrics", headers=headers or None)
        assert response.status_code == 200, response.content
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(response.content.decode())
            for sample in family.samples
        }

    return read


def key(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return f"paperclip_{name}", tuple(sorted(labels.items()))
