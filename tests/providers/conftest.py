"""Connections to a mock provider, and agents that use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.utils import timezone

from agents import connections, roster
from agents.adapters import outbound
from agents.connection_models import ProviderConnection
from agents.models import Agent
from companies import secrets
from companies.activity import SYSTEM
from companies.models import Company
from tests.engine.conftest import data_dir, during  # noqa: F401 - fixtures
from tests.mock_llm import Served, serve_in_thread


@pytest.fixture(scope="session")
def _server() -> Iterator[Served]:
    with serve_in_thread() as served:
        yield served


@pytest.fixture
def mock_llm(_server: Served) -> Served:
    """The mock provider; its list of requests begins empty."""
    _server.state.requests.clear()
    _server.state.tries.clear()
    return _server


@pytest.fixture(autouse=True)
def _loopback_allowed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = outbound.policy()
    outbound.configure(allow=["loopback"])
    # Repeats of one call come at once.
    monkeypatch.setattr("agents.adapters.line.jitter", lambda attempt: 0.0)
    yield
    outbound.configure(allow=before.allow)


@pytest.fixture
def connect(acme: Company) -> Callable[..., ProviderConnection]:
    """A connection of acme: `connect("Main", base_url=…, requests_per_minute=…)`."""

    def make(name: str = "Main", *, kind: str = "openai", **given: Any) -> ProviderConnection:
        given.setdefault("base_url", "http://127.0.0.1:9/v1")
        company = given.pop("company", acme)
        secret = given.get("key_secret")
        if secret and secret not in secrets.names(company.pk):
            secrets.put(
                company=company, name=secret, value="sk-test-0001", actor=SYSTEM, now=timezone.now()
            )
        return connections.create(
            company=company, kind=kind, name=name, actor=SYSTEM, now=timezone.now(), **given
        )

    return make


@pytest.fixture
def hire(acme: Company) -> Callable[..., Agent]:
    """An agent on a connection: `hire(main, spare, …)`; each asks for the model `mock`."""

    def make(
        row: ProviderConnection, *spare: ProviderConnection, name: str = "Pia", **fields: Any
    ) -> Agent:
        config = {
            "connectionId": str(row.pk),
            "model": "mock-1",
            "fallbacks": [{"connectionId": str(s.pk), "model": "mock-2"} for s in spare],
            **fields.pop("config", {}),
        }
        return roster.hire(
            company=acme,
            actor=SYSTEM,
            name=name,
            adapter_type=row.kind,
            adapter_config=config,
            on_finish="done",
            **fields,
        )

    return make
