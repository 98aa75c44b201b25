"""The actors of this folder."""

from __future__ import annotations

import pytest

from agents.models import Agent
from companies.activity import Actor
from companies.models import User


@pytest.fixture
def by_olga(olga: User) -> Actor:
    return Actor("user", olga.id, "Olga")


@pytest.fixture
def by_ada(ada: Agent) -> Actor:
    return Actor("agent", ada.id, "Ada")


@pytest.fixture
def by_bo(bo: Agent) -> Actor:
    return Actor("agent", bo.id, "Bo")
