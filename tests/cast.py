"""The cast as fixtures: see `tests/factories.py` for who is who."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.utils import timezone

from agents.models import Agent
from companies.models import Company, Membership, User
from issues.models import Issue
from tests import factories


@pytest.fixture
def now() -> datetime:
    """The moment at which a test's story begins."""
    return timezone.now().astimezone(UTC)


@pytest.fixture
def olga(db: None) -> User:
    """Owner of acme."""
    return factories.user("Olga")


@pytest.fixture
def oscar(db: None) -> User:
    """The outsider: owner of globex, a stranger to acme."""
    return factories.user("Oscar")


@pytest.fixture
def acme(olga: User) -> Company:
    return factories.company("Acme", "ACM", owner=olga)


@pytest.fixture
def globex(oscar: User) -> Company:
    """Acme's rival."""
    return factories.company("Globex", "GLO", owner=oscar)


@pytest.fixture
def vera(acme: Company) -> User:
    """May look at acme, and no more."""
    user = factories.user("Vera")
    factories.member(acme, user, Membership.Role.VIEWER)
    return user


@pytest.fixture
def otto(acme: Company) -> User:
    """An operator of acme who does not own it."""
    user = factories.user("Otto")
    factories.member(acme, user, Membership.Role.OPERATOR)
    return user


@pytest.fixture
def ada(acme: Company) -> Agent:
    return factories.agent(acme, "Ada", title="Chief executive", role="ceo")


@pytest.fixture
def bo(acme: Company) -> Agent:
    return factories.agent(acme, "Bo", title="Engineer", role="engineer")


@pytest.fixture
def spy(globex: Company) -> Agent:
    """An agent of the rival."""
    return factories.agent(globex, "Spy")


@pytest.fixture
def issue(acme: Company, ada: Agent) -> Issue:
    """ACM-1, to do, assigned to Ada."""
    return factories.issue(acme, assignee=ada)
