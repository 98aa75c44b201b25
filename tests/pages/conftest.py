"""Signed-in browsers without JavaScript, and a company with something of everything in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from django.test import Client

from agents.models import Agent, HeartbeatRun, RunEvent
from companies.models import Company, User
from issues.models import Issue
from tests import factories

Sign = Callable[[User], Client]


@pytest.fixture
def sign_in() -> Sign:
    """A browser in which somebody is signed in."""

    def signed(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return signed


@pytest.fixture
def olgas(olga: User, acme: Company, sign_in: Sign) -> Client:
    """The owner's browser."""
    return sign_in(olga)


@pytest.fixture
def veras(vera: User, sign_in: Sign) -> Client:
    """The viewer's browser."""
    return sign_in(vera)


@pytest.fixture
def oscars(oscar: User, globex: Company, sign_in: Sign) -> Client:
    """The browser of a stranger to acme."""
    return sign_in(oscar)


def event(run: HeartbeatRun, seq: int, kind: str, text: str = "", **data: object) -> RunEvent:
    """One piece of a run's output."""
    return RunEvent.objects.create(
        run_id=run.id,
        company_id=run.company_id,
        run_created_at=run.created_at,
        seq=seq,
        epoch=run.epoch,
        kind=kind,
        text=text,
        data=data or None,
        at=run.created_at,
    )


@dataclass(frozen=True, slots=True)
class Scene:
    """Acme at work: one issue that runs, one that asks, one that failed."""

    ada: Agent
    bo: Agent
    running: Issue
    asking: Issue
    failed: Issue
    live_run: HeartbeatRun
    failed_run: HeartbeatRun
    question: str


@pytest.fixture
def scene(acme: Company, ada: Agent, bo: Agent) -> Scene:
    running = factories.issue(acme, "Forge the first anvil", status="in_progress", assignee=ada)
    asking = factories.issue(acme, "Choose a shape", status="in_review", assignee=bo)
    failed = factories.issue(acme, "Paint it", assignee=bo)
    live_run = factories.running(ada, running)
    event(live_run, 1, "step", id="1", name="search_ore", phase="start", input={"where": "hill"})
    failed_run = factories.run(
        bo, failed, status="failed", code="rate_limited", message="HTTP 429: slow down"
    )
    event(failed_run, 1, "stdout", "first line\nsecond line\n")
    asked = factories.interaction(asking, asked_by=bo)
    factories.project(acme)
    factories.goal(acme)
    factories.comment(running, "Use the **good** iron.", author=ada)
    return Scene(ada, bo, running, asking, failed, live_run, failed_run, str(asked.id))
