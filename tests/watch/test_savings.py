"""Beats without work are counted, and what they would have cost is told from the agent's habit."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from agents import meters, savings
from agents.models import AgentTally
from paperclip.engine import tick
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nobody_listens(monkeypatch):
    monkeypatch.setattr("companies.live.Sender._start", lambda self: None)


@pytest.fixture
def beat(django_capture_on_commit_callbacks, now):
    """One regular beat of an agent, as the clock gives it."""

    def once(agent) -> None:
        agent.heartbeat_enabled, agent.next_beat_at = True, now - timedelta(seconds=1)
        agent.save()
        with django_capture_on_commit_callbacks(execute=True):
            tick.beats(now=now)
        meters.flush()

    return once


def habit(agent, *costs: int, **fields) -> None:
    for cost in costs:
        factories.run(agent, status="succeeded", cost_micros=cost, **fields)


def test_an_idle_beat_is_saved_and_worth_the_agents_median_run(beat, ada, now):
    habit(ada, 10_000, 30_000, 5_000_000)
    for _ in range(4):
        beat(ada)
    found = savings.of_agent(agent=ada, now=timezone.now())
    assert (found.saved, found.worth_micros) == (4, 120_000)
    assert [(one.code, one.count, one.words) for one in found.beats] == [
        ("idle", 4, "nothing to do")
    ]


def test_work_that_waits_is_saved_and_work_under_way_is_not(beat, ada, acme, now):
    habit(ada, 1_000)
    issue = factories.issue(acme, assignee=ada)
    factories.blocker(issue, by=factories.issue(acme))
    beat(ada)
    factories.run(ada, issue)
    beat(ada)
    found = savings.of_agent(agent=ada, now=timezone.now())
    assert {(one.code, one.count) for one in found.beats} == {("waiting", 1), ("under_way", 1)}
    assert (found.saved, found.worth_micros) == (1, 1_000)


def test_a_beat_with_work_saves_nothing(beat, ada, acme, now):
    factories.issue(acme, assignee=ada)
    beat(ada)
    assert savings.of_agent(agent=ada, now=timezone.now()) == savings.Savings()


def test_what_it_would_have_cost_is_unknown_without_a_priced_run(beat, ada, now):
    habit(ada, 0, unpriced_calls=1)
    beat(ada)
    found = savings.of_agent(agent=ada, now=timezone.now())
    assert (found.saved, found.worth_micros) == (1, None)


def test_a_company_sums_its_agents_each_by_its_own_habit(beat, ada, bo, spy, acme, now):
    habit(ada, 10_000)
    habit(bo, 500)
    habit(spy, 7_000_000)
    for agent in (ada, ada, bo, spy):
        beat(agent)
    found = savings.of_company(company_id=acme.pk, now=timezone.now())
    assert (found.saved, found.worth_micros) == (3, 20_500)


def test_it_tells_of_a_month_and_forgets_after_three(ada, acme, now):
    for days in (1, 40, 100):
        AgentTally.objects.create(
            company=acme, agent=ada, day=(now - timedelta(days=days)).date(), name="saved",
            reason="idle", count=1,
        )  # fmt: skip
    assert savings.of_agent(agent=ada, now=now).saved == 1
    assert savings.of_company(company_id=acme.pk, now=now).saved == 1
    tick.forget(now=now)
    assert AgentTally.objects.count() == 2


def test_a_company_is_one_question_however_many_agents_it_has(acme, now, django_assert_num_queries):
    for n in range(5):
        agent = factories.agent(acme, f"A{n}")
        habit(agent, 1_000)
        AgentTally.objects.create(
            company=acme, agent=agent, day=now.date(), name="saved", reason="idle", count=2
        )
    with django_assert_num_queries(1):
        assert savings.of_company(company_id=acme.pk, now=now).worth_micros == 10_000


def test_the_pages_show_both(client: Client, olga, beat, ada, acme, now):
    client.force_login(olga)
    habit(ada, 250_000)
    beat(ada)
    beat(ada)
    meters.count(meters.WAKES_REFUSED, "own_change", agent_id=ada.pk, times=7)
    meters.flush()
    page = client.get("/c/ACM/agents/ada/").content.decode()
    assert "2 idle wakes saved" in page
    assert "$0.50" in page
    assert "Its own doing" in page
    assert "7" in page
    panel = client.get("/c/ACM/panels/money").content.decode()
    assert "2 idle wakes saved" in panel
    assert "$0.50" in panel
