"""A run has one limit of its time; which, and who set it, stays with the run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from agents import adapters, runs
from agents.models import Agent, HeartbeatRun
from companies.activity import SYSTEM
from companies.models import Company, User
from issues.models import Issue
from tests import factories
from tests.engine.conftest import until
from tests.engine.test_sessions import carry

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def working(pia: Agent, tmp_path: Path) -> Any:
    """Lets Pia be a program that works for so many seconds and then leaves a mark."""

    def work(seconds: float, **config: Any) -> Agent:
        code = f"import time; time.sleep({seconds}); open({str(tmp_path / 'done')!r}, 'w')"
        pia.adapter_type = "process"
        pia.adapter_config = {"command": sys.executable, "args": ["-c", code], **config}
        pia.save()
        return pia

    return work


@pytest.fixture
def task(acme: Company, pia: Agent) -> Issue:
    return factories.issue(acme, "Count the boats", assignee=pia)


def test_what_ends_within_the_limit_that_was_set_is_a_success(
    during: Any, working: Any, task: Issue, tmp_path: Path
) -> None:
    run = carry(during, working(2, timeoutSec=3), task)

    assert run.status == "succeeded"
    assert (tmp_path / "done").exists()
    assert run.result["deadline"] == {"seconds": 3, "source": "configuration"}


def test_what_does_not_is_ended_at_it(
    during: Any, working: Any, task: Issue, tmp_path: Path
) -> None:
    run = carry(during, working(4, timeoutSec=3), task)

    assert (run.status, run.code) == ("timed_out", "timed_out")
    assert run.message == "The program ran longer than 3 seconds."
    assert not (tmp_path / "done").exists()
    assert run.result["deadline"] == {"seconds": 3, "source": "configuration"}


def test_without_one_that_was_set_the_default_counts(
    during: Any, working: Any, task: Issue
) -> None:
    run = carry(during, working(0), task)

    assert run.result["deadline"] == {"seconds": 3600, "source": "default"}


@pytest.mark.parametrize("kind", [adapter.type for adapter in adapters.all()])
def test_every_kind_that_can_be_given_a_limit_tells_it(kind: str) -> None:
    takes = "timeout_sec" in adapters.get(kind).Config.model_fields
    assert takes is (kind != "demo")
    assert bool(adapters.deadline(kind, {})) is takes
    assert adapters.deadline(kind, {"timeoutSec": 7}) == (
        {"seconds": 7, "source": "configuration"} if takes else {}
    )


def test_its_page_shows_what_held_then_and_not_what_is_set_now(
    during: Any, working: Any, task: Issue, olga: User
) -> None:
    run = carry(during, working(0, timeoutSec=90), task)
    by_default = carry(during, working(0), task)
    browser = Client()
    browser.force_login(olga)

    page = browser.get(f"/c/ACM/runs/{run.pk}").content.decode()
    other = browser.get(f"/c/ACM/runs/{by_default.pk}").content.decode()

    assert 'title="Set in the agent’s configuration">1m 30s</dd>' in page
    assert 'title="The default of this kind of agent">1h 00m</dd>' in other


def test_it_is_there_while_the_run_goes_on_and_when_it_was_lost(
    during: Any, working: Any, task: Issue
) -> None:
    agent = working(30, timeoutSec=60)
    run_id = runs.wake(
        agent=agent, issue=task, reason="manual", source="on_demand", actor=SYSTEM
    ).run_id
    told = HeartbeatRun.objects.filter(pk=run_id, result__deadline__seconds=60)

    async def watch(shift: Any) -> None:
        await until(told.exists)

    during(watch)  # and then the shift puts it down

    run = HeartbeatRun.objects.get(pk=run_id)
    assert run.status == "unknown"
    assert run.result["deadline"] == {"seconds": 60, "source": "configuration"}
