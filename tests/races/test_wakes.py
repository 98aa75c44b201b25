"""Wakes from everywhere at once: folded, never lost, never doubled."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import timedelta

import pytest

from agents import runs, workers
from agents.models import HeartbeatRun
from companies.activity import SYSTEM
from paperclip.engine import recover, tick
from tests import factories
from tests.engine import puppet as puppets
from tests.races.threads import many, together

pytestmark = pytest.mark.django_db(transaction=True)


def wake(agent, issue, **fields) -> runs.Wake:
    return runs.wake(
        **{
            "agent": agent,
            "issue": issue,
            "reason": "issue_commented",
            "source": "automation",
            "actor": SYSTEM,
            **fields,
        }
    )


@pytest.mark.fault("T27", "eight people comment while the agent runs")
def test_no_wish_is_lost_while_runs_start_and_end(ada, issue):
    """Eight people comment while the agent runs again and again."""
    worker_id = workers.register(instance="here", slot=0, pid=1, capacity=10)
    comments = [uuid.uuid4() for _ in range(160)]
    over = threading.Event()
    most_queued: list[int] = []

    def talk(n: int) -> None:
        for comment in comments[n * 20 : (n + 1) * 20]:
            wake(ada, issue, comment_ids=[comment])
            time.sleep(0.001)

    def work() -> None:
        while not over.is_set() or HeartbeatRun.objects.filter(status="queued").exists():
            for claimed in runs.claim(worker_id=worker_id, limit=5):
                runs.finish(run_id=claimed.run_id, epoch=claimed.epoch, status="succeeded")
            most_queued.append(HeartbeatRun.objects.filter(status="queued").count())

    def all_talk() -> None:
        try:
            many(8, talk)
        finally:
            over.set()

    together(all_talk, work)
    delivered = [
        c for ids in HeartbeatRun.objects.values_list("comment_ids", flat=True) for c in ids
    ]
    assert sorted(delivered) == sorted(comments)
    assert max(most_queued) <= 1
    assert sum(HeartbeatRun.objects.values_list("wake_count", flat=True)) == 160


def test_the_first_wish_of_many_at_once_makes_the_one_run(ada, acme):
    for _ in range(10):
        issue = factories.issue(acme, assignee=ada)
        wakes = many(8, lambda _, issue=issue: wake(ada, issue))
        assert sum(one.created for one in wakes) == 1
        assert len({one.run_id for one in wakes}) == 1


def test_one_idempotency_key_is_one_run(ada, acme):
    for round_ in range(10):
        issue = factories.issue(acme, assignee=ada)
        wakes = many(
            6, lambda _, issue=issue, key=f"k{round_}": wake(ada, issue, idempotency_key=key)
        )
        assert len({one.run_id for one in wakes}) == 1


def test_one_key_that_folds_is_one_wish(ada, acme):
    """The run is there already and has a key; the same later key comes six times at once."""
    for round_ in range(10):
        issue = factories.issue(acme, assignee=ada)
        made = wake(ada, issue, idempotency_key=f"first{round_}")
        wakes = many(
            6, lambda _, issue=issue, key=f"later{round_}": wake(ada, issue, idempotency_key=key)
        )
        assert {one.run_id for one in wakes} == {made.run_id}
        assert HeartbeatRun.objects.get(pk=made.run_id).wake_count == 2


def test_many_clocks_make_one_run_a_slot(acme, now):
    agents = [factories.agent(acme, heartbeat_enabled=True, next_beat_at=now) for _ in range(20)]
    for agent in agents:
        factories.issue(acme, assignee=agent)
    made = many(6, lambda _: tick.beats(now=now))
    assert sum(made) == 20
    assert HeartbeatRun.objects.count() == 20


@pytest.mark.fault("T20", "five rescuers at once, no leader")
def test_many_rescuers_rescue_each_run_once(acme, now, monkeypatch):
    puppets.register(monkeypatch, puppets.Puppet())
    dead = factories.worker(lease_expires_at=now - timedelta(seconds=1))
    for _ in range(20):
        agent = factories.agent(acme, adapter_type="puppet")
        factories.running(agent, factories.issue(acme, assignee=agent), worker=dead)
    rescued = [lost.run_id for part in many(5, lambda _: recover.sweep()) for lost in part]
    assert len(rescued) == len(set(rescued)) == 20
    assert HeartbeatRun.objects.filter(status="queued", attempt=2).count() == 20
