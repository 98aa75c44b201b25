"""A session that one run leaves is what the next one on the same issue goes on with."""

from __future__ import annotations

from typing import Any

import pytest

from agents import runs
from agents.adapters import base
from agents.models import Agent, HeartbeatRun
from companies import activity
from issues.models import Issue
from tests import factories
from tests.engine.conftest import until
from tests.engine.puppet import finish

pytestmark = pytest.mark.django_db(transaction=True)

KEPT = {"id": "ses_1", "cwd": "/boats", "usage": {"input": 1150, "output": 25}, "runs": 1}


def carry(during: Any, agent: Agent, issue: Issue) -> HeartbeatRun:
    wake = runs.wake(
        agent=agent, issue=issue, reason="manual", source="on_demand", actor=activity.SYSTEM
    )
    run = HeartbeatRun.objects.get(pk=wake.run_id)

    async def watch(shift: Any) -> None:
        over = HeartbeatRun.objects.exclude(status__in=HeartbeatRun.LIVE).filter(pk=run.pk)
        await until(lambda: over.exists())

    during(watch)
    run.refresh_from_db()
    return run


@pytest.fixture
def task(acme: Any, pia: Agent) -> Issue:
    return factories.issue(acme, assignee_agent=pia, status="todo")


def test_the_next_run_gets_all_that_the_last_one_kept(during, puppet, pia, task) -> None:
    puppet.play = finish(
        base.Started(model="model-of-the-run", session_id="ses_1"),
        session_id="ses_1",
        status="in_progress",
        result={"session": KEPT},
    )

    first = carry(during, pia, task)
    carry(during, pia, task)

    assert first.session == KEPT
    assert first.model == "model-of-the-run"
    assert [dict(brief.session) for brief in puppet.briefs] == [{}, KEPT]
