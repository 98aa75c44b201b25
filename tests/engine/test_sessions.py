"""A session that one run leaves is what the next one on the same issue goes on with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agents import runs
from agents.adapters import base
from agents.models import Agent, HeartbeatRun
from companies import activity, clock
from issues.models import Issue
from tests import factories
from tests.engine.conftest import ask, until
from tests.engine.puppet import fail, finish

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


def test_after_a_passing_failure_the_next_run_goes_on_from_there(during, puppet, pia, task) -> None:
    later = {**KEPT, "usage": {"input": 2300, "output": 50}, "runs": 2}
    begun = base.Started(session_id="ses_1")
    puppet.play = finish(begun, session_id="ses_1", status="todo", result={"session": KEPT})
    carry(during, pia, task)
    puppet.play = fail(base.Code.TURN_LIMIT, begun, detail={"session": later})
    carry(during, pia, task)
    Issue.objects.filter(pk=task.pk).update(status="todo")
    puppet.play = finish(begun)
    carry(during, pia, task)

    assert [dict(brief.session) for brief in puppet.briefs] == [{}, KEPT, later]


@pytest.mark.parametrize("how", ["cancelled", "lost"])
def test_a_session_is_never_with_two_runs_at_once(during, puppet, pia, task, how) -> None:
    """One that is being stopped keeps its issue, and so the session, until its program is gone; one
    that was given up may still be at it, and the next run leaves it its session."""
    puppet.play = finish(
        base.Started(session_id="ses_1"),
        session_id="ses_1",
        status="in_progress",
        result={"session": KEPT},
    )
    carry(during, pia, task)
    Agent.objects.filter(pk=pia.pk).update(max_concurrent_runs=5)
    at_it: list[str] = []
    shared: list[str] = []
    begun = asyncio.Event()
    next_came = asyncio.Event()
    may_end = asyncio.Event() if how == "cancelled" else next_came

    async def dawdle(brief: base.Brief) -> Any:
        session = str(brief.session.get("id", ""))
        if session in at_it:
            shared.append(brief.run_id)
        at_it.append(session)
        try:
            yield base.Started(session_id=session or "ses_2")
            if begun.is_set():
                next_came.set()
                yield base.Done(summary="Done.", session_id="ses_2")
                return
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:  # a program that is slow to end
                await asyncio.wait_for(may_end.wait(), 30)
        finally:
            at_it.remove(session)

    puppet.play = dawdle
    wakes = {"issue": task, "reason": "manual", "source": "on_demand", "actor": activity.SYSTEM}
    first = runs.wake(agent=pia, **wakes)

    async def watch(shift: Any) -> None:
        await asyncio.wait_for(begun.wait(), 30)
        going = await ask(HeartbeatRun.objects.get, pk=first.run_id)
        if how == "cancelled":
            await ask(runs.cancel, run=going, actor=activity.SYSTEM)
        else:
            gone = HeartbeatRun.objects.filter(pk=going.pk)
            changes = {"status": "lost", "epoch": going.epoch + 1, "finished_at": clock.now()}
            await ask(gone.update, **changes)
        await ask(runs.wake, agent=pia, **wakes)
        if how == "cancelled":
            may_end.set()
        await asyncio.wait_for(next_came.wait(), 30)

    during(watch)

    assert next_came.is_set()
    assert shared == []
    assert [brief.session.get("id") for brief in puppet.briefs] == [None, "ses_1", None]
