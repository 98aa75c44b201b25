"""Callers of every kind, each with a client that carries their proof."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agents import agent_keys
from agents.models import Agent, HeartbeatRun
from companies import operator_keys
from companies.activity import SYSTEM
from companies.models import Company, User
from issues.models import Issue
from tests import factories


class Caller(Client):
    """A client that speaks JSON and carries a token, or none."""

    def __init__(self, token: str = "", **defaults: Any) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        super().__init__(headers=headers, raise_request_exception=False, **defaults)
        self.token = token

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        kwargs: dict[str, Any] = {"headers": extra} if extra else {}
        if method in ("POST", "PATCH", "PUT", "DELETE"):
            kwargs |= {"data": body if body is not None else {}, "content_type": "application/json"}
        return self.generic_call(method, path, **kwargs)

    def generic_call(self, method: str, path: str, **kwargs: Any) -> Any:
        return getattr(super(), method.lower())(path, **kwargs)


def operator(user: User) -> Caller:
    _, token = operator_keys.create(user=user, name="laptop", now=timezone.now())
    return Caller(token)


def agent_caller(agent: Agent) -> Caller:
    _, token = agent_keys.create(agent=agent, name="laptop", actor=SYSTEM, now=timezone.now())
    return Caller(token)


def run_caller(run: HeartbeatRun) -> Caller:
    return Caller(factories.run_token(run))


@pytest.fixture
def as_olga(olga: User, acme: Company) -> Caller:
    """Acme's owner, by key."""
    return operator(olga)


@pytest.fixture
def as_otto(otto: User) -> Caller:
    return operator(otto)


@pytest.fixture
def as_vera(vera: User) -> Caller:
    return operator(vera)


@pytest.fixture
def as_oscar(oscar: User, globex: Company) -> Caller:
    """The rival's owner, by key."""
    return operator(oscar)


@pytest.fixture
def as_ada(ada: Agent) -> Caller:
    """Ada with her long-lived key."""
    return agent_caller(ada)


@pytest.fixture
def as_spy(spy: Agent) -> Caller:
    return agent_caller(spy)


@pytest.fixture
def adas_run(ada: Agent, issue: Issue) -> HeartbeatRun:
    """Ada at work on ACM-1."""
    return factories.running(ada, issue)


@pytest.fixture
def as_run(adas_run: HeartbeatRun) -> Caller:
    """Ada's run with its own token."""
    return run_caller(adas_run)


@pytest.fixture
def anonymous(db: None) -> Caller:
    return Caller()
