"""Who wakes whom over the API: people at any time, agents with the limits of their comments."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents import meters, runs, wakes
from agents.meter_models import AgentTally
from agents.models import Agent, HeartbeatRun
from companies.activity import SYSTEM
from companies.models import Activity
from issues.models import Issue
from tests import factories
from tests.api.conftest import Caller


def wake(caller: Caller, agent: Agent, issue: Issue | None = None) -> Any:
    if issue is None:
        return caller.send("POST", f"/api/agents/{agent.id}/heartbeat/invoke")
    body = {"payload": {"issueId": str(issue.id)}}
    return caller.send("POST", f"/api/agents/{agent.id}/wakeup", body)


def end_all() -> None:
    now = timezone.now()
    queued = HeartbeatRun.objects.filter(status="queued")
    queued.update(status="succeeded", started_at=now, finished_at=now)


@pytest.mark.parametrize("about", ["an issue", "nothing"])
def test_an_agent_does_not_wake_itself(
    as_ada: Caller, as_run: Caller, ada: Agent, issue: Issue, about: str
) -> None:
    subject = issue if about == "an issue" else None

    for caller in (as_ada, as_run):
        refused = wake(caller, ada, subject)
        assert (refused.status_code, refused.json()["code"]) == (409, "own_change")

    assert not HeartbeatRun.objects.filter(status="queued").exists()


def test_a_wake_by_an_agent_is_not_a_persons(
    as_run: Caller, as_olga: Caller, bo: Agent, issue: Issue
) -> None:
    called = HeartbeatRun.objects.get(id=wake(as_run, bo, issue).json()["id"])
    assert (called.reason, called.source) == ("agent_called", "automation")

    asked = HeartbeatRun.objects.get(id=wake(as_olga, bo, issue).json()["id"])
    assert (asked.id, asked.reason) == (called.id, "manual")

    wake(as_run, bo, issue)
    asked.refresh_from_db()
    assert (asked.reason, asked.wake_count) == ("manual", 3)  # a person's word stays one


@pytest.mark.parametrize("about", ["an issue", "nothing"])
def test_agents_wake_each_other_so_many_times_an_hour_and_a_person_goes_on(
    as_ada: Caller, as_olga: Caller, bo: Agent, issue: Issue, about: str
) -> None:
    subject = issue if about == "an issue" else None

    answers = []
    for _ in range(wakes.WAKES_AN_HOUR + 2):
        answers.append(wake(as_ada, bo, subject))
        end_all()

    passed, refused = answers[: wakes.WAKES_AN_HOUR], answers[wakes.WAKES_AN_HOUR :]
    assert {one.status_code for one in passed} == {202}
    assert {(one.status_code, one.json()["code"]) for one in refused} == {(409, "wake_limit")}
    kind = "issue" if subject else "agent"
    assert Activity.objects.filter(action=f"{kind}.wakes_cut").count() == 1
    assert wake(as_olga, bo, subject).status_code == 202


def test_an_agent_hurries_no_retry(as_ada: Caller, as_olga: Caller, bo: Agent, acme: Any) -> None:
    issue = factories.issue(acme, assignee=bo)
    later = timezone.now() + timedelta(hours=1)
    waiting = runs.wake(
        agent=bo, issue=issue, reason="transient_failure_retry", source="retry", actor=SYSTEM,
        not_before=later, attempt=2,
    )  # fmt: skip

    assert wake(as_ada, bo, issue).json()["id"] == str(waiting.run_id)
    assert HeartbeatRun.objects.get(id=waiting.run_id).not_before == later

    wake(as_olga, bo, issue)
    assert HeartbeatRun.objects.get(id=waiting.run_id).not_before < later


def test_an_agent_that_works_by_its_timer_only_is_not_called(as_ada: Caller, bo: Agent) -> None:
    Agent.objects.filter(id=bo.id).update(wake_on_demand=False)

    refused = wake(as_ada, bo)

    assert (refused.status_code, refused.json()["code"]) == (409, "wake_on_demand_off")


@pytest.mark.django_db(transaction=True)
def test_refusals_are_counted_by_reason(as_ada: Caller, ada: Agent) -> None:
    wake(as_ada, ada)
    meters.flush()

    row = AgentTally.objects.get(agent_id=ada.pk)
    assert (row.name, row.reason, row.count) == ("refused", "own_change", 1)
