"""Mistakes that have cost others money: a refusal taken for a success, a limit that fails open."""

from __future__ import annotations

from typing import Any

import pytest

from agents.adapters import base
from agents.models import Agent, HeartbeatRun
from billing.models import CostEvent
from issues.models import Issue
from paperclip.engine import calls, tick
from tests import factories
from tests.engine.conftest import data_dir, during, pia, puppet  # noqa: F401 - fixtures
from tests.engine.puppet import Puppet, finish
from tests.engine.test_budget import asking, carried, limit, set_price  # noqa: F401
from tests.engine.test_cli_agent import claude, task  # noqa: F401
from tests.engine.test_sessions import carry

pytestmark = pytest.mark.django_db(transaction=True)


def says(agent: Agent, what: str) -> None:
    agent.adapter_config["env"]["FAKE_DO"] = what
    agent.save()


def test_a_program_that_tells_of_a_429_and_exits_with_0_has_failed(
    during: Any,  # noqa: F811
    claude: Agent,  # noqa: F811
    task: Issue,  # noqa: F811
) -> None:
    says(claude, "excuse 429 Too many requests")
    run = carry(during, claude, task)
    assert (run.status, run.code) == ("failed", "rate_limited")
    assert run.summary == ""
    task.refresh_from_db()
    assert task.status != "done"
    (retry,) = HeartbeatRun.objects.filter(status="queued")
    assert (retry.attempt, retry.not_before > run.finished_at) == (2, True)


def test_a_spent_quota_that_is_told_with_exit_code_0_holds_the_agent(
    during: Any,  # noqa: F811
    claude: Agent,  # noqa: F811
    task: Issue,  # noqa: F811
) -> None:
    says(claude, "excuse 402 Your credit balance is too low")
    run = carry(during, claude, task)
    assert (run.status, run.code) == ("failed", "quota_exhausted")
    assert not HeartbeatRun.objects.filter(status="queued").exists()


def test_an_expired_token_is_a_failure_and_nothing_follows(
    during: Any,  # noqa: F811
    claude: Agent,  # noqa: F811
    task: Issue,  # noqa: F811
    now: Any,
) -> None:
    says(claude, "excuse 401 Invalid authentication credentials")
    run = carry(during, claude, task)
    assert (run.status, run.code) == ("failed", "auth_failed")
    assert not HeartbeatRun.objects.filter(status="queued").exists()
    claude.refresh_from_db()
    assert claude.error_code == "auth_failed"
    tick.minute(now=now)
    assert HeartbeatRun.objects.count() == 1, "no sweep takes it for unfinished work"


@pytest.mark.parametrize("status", ["in_review", "blocked", "backlog"])
def test_a_standing_issue_is_woken_by_nothing_for_a_day(acme, ada, now, status) -> None:
    from datetime import timedelta

    factories.issue(acme, assignee=ada, status=status)
    Agent.objects.filter(pk=ada.pk).update(heartbeat_enabled=True, next_beat_at=now)
    for hour in range(25):
        tick.minute(now=now + timedelta(hours=hour))
    assert not HeartbeatRun.objects.exists()


def test_a_cost_that_cannot_be_booked_ends_the_run_before_the_next_call(
    carried: Any,  # noqa: F811
    puppet: Puppet,  # noqa: F811
    acme: Any,
    pia: Agent,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the books are closed")

    monkeypatch.setattr("paperclip.engine.heartbeat.book", broken)
    set_price(acme)
    limit(acme, 1_000)
    puppet.play = asking((100, 40), (100, 40), (100, 40))
    run = carried()
    assert (run.status, run.code) == ("failed", "internal_error")
    assert "could not be booked" in run.message
    assert not CostEvent.objects.exists()
    assert not HeartbeatRun.objects.filter(status="queued").exists(), "and it is not tried again"
    pia.refresh_from_db()
    assert pia.error_code == "internal_error"


def test_so_does_a_program_that_tells_what_it_used_at_its_end(
    carried: Any,  # noqa: F811
    puppet: Puppet,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the books are closed")

    monkeypatch.setattr("paperclip.engine.heartbeat.book", broken)
    puppet.uses_tools = False
    puppet.play = finish(base.Usage(1, "p", "m", input_tokens=9, cost_micros=100))
    assert carried().status == "failed"


def test_a_limit_that_cannot_be_asked_lets_nobody_through(
    carried: Any,  # noqa: F811
    puppet: Puppet,  # noqa: F811
    acme: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("the limits are unknown")

    monkeypatch.setattr(calls.budgets, "check_call", broken)
    puppet.play = asking((100, 40))
    run = carried()
    assert run.status == "failed"
    assert puppet.briefs == [], "the model was never called"
