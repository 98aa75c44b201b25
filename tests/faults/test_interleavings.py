"""Every pair of a run's verbs, one held open just before its commit while the other arrives."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents import runs, workers
from agents.models import Agent, HeartbeatRun
from billing import ledger
from billing.models import CostEvent
from companies.activity import SYSTEM
from issues import work
from issues.models import Checkout
from paperclip.engine import recover
from paperclip.engine.closing import Ending, close_run
from tests import factories
from tests.billing.receipts import usage
from tests.engine.puppet import Puppet, register
from tests.races.threads import one_inside_the_other

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

VERBS = ("claim", "rescue", "finish", "cancel", "settle")


@dataclass
class Scene:
    """A run whose holder's lease is over, and another queued one of the same agent."""

    agent: Agent
    run: HeartbeatRun
    waiting: HeartbeatRun
    worker: uuid.UUID

    def verb(self, name: str) -> Callable[[], Any]:
        return {
            "claim": lambda: runs.claim(worker_id=self.worker, limit=5),
            "rescue": lambda: recover.give_up(run_id=self.run.pk, epoch=1, now=timezone.now()),
            "finish": self._finish,
            "cancel": lambda: runs.cancel(run=self.run, actor=SYSTEM),
            "settle": lambda: ledger.book(
                company_id=self.agent.company_id,
                agent_id=self.agent.pk,
                run_id=self.run.pk,
                usage=usage(100),
                key=ledger.run_key(self.run.pk, 1),
                now=timezone.now(),
            ),
        }[name]

    def _finish(self) -> bool:
        claimed = runs.Claimed(
            self.run.pk, 1, self.agent.company_id, self.agent.pk, self.run.issue_id,
            self.run.created_at, "puppet", 1,
        )  # fmt: skip
        try:
            close_run(claimed, Ending("succeeded", summary="All done.", wish="done"))
        except runs.Stale:
            return False
        return True


@pytest.fixture
def scene(acme, monkeypatch: pytest.MonkeyPatch) -> Scene:
    register(monkeypatch, Puppet())
    agent = factories.agent(acme, adapter_type="puppet", max_concurrent_runs=2)
    dead = factories.worker(lease_expires_at=timezone.now() - timedelta(seconds=60))
    run = factories.running(agent, factories.issue(acme, assignee=agent), worker=dead)
    work.begin(run=run)
    waiting = factories.run(agent, factories.issue(acme, assignee=agent))
    living = workers.register(instance="here", slot=0, pid=1, capacity=10)
    return Scene(agent, run, waiting, living)


@pytest.mark.fault("T28", "each pair of claim, rescue, finish, cancel and settle, one in the other")
@pytest.mark.parametrize(("first", "second"), list(itertools.product(VERBS, VERBS)))
def test_no_pair_of_verbs_does_harm(scene: Scene, first: str, second: str):
    answers = one_inside_the_other(scene.verb(first), scene.verb(second))
    assert not [one for one in answers if isinstance(one, Exception)], answers
    said = list(zip((first, second), answers, strict=True))
    # A verb that found the other at work has another try, as in life.
    ends = [
        name
        for name, answer in said
        if (name == "finish" and answer is True) or (name == "rescue" and answer is not None)
    ]
    run = HeartbeatRun.objects.get(pk=scene.run.pk)
    assert len(ends) <= 1
    assert ends or not {"finish", "rescue"} & {first, second}, "one of them ends the run"
    assert run.epoch == (2 if ends else 1)
    asked = [name for name, _ in said].index("cancel") if "cancel" in (first, second) else None
    if "finish" in ends:
        assert run.status == "succeeded"
    elif "rescue" in ends:
        # Asked to stop before the rescue has looked, it is cancelled and not tried again.
        expected = {"cancelled"} if asked == 0 else {"lost"}
        assert run.status in expected
    else:
        assert run.status == "running"
    taken = [claimed for name, answer in said if name == "claim" for claimed in answer]
    assert [one.run_id for one in taken].count(scene.waiting.pk) <= 1
    assert len({(one.run_id, one.epoch) for one in taken}) == len(taken)
    booked = CostEvent.objects.filter(run_id=scene.run.pk).count()
    assert booked == (1 if "settle" in (first, second) else 0)
    assert Checkout.objects.filter(run=scene.run, released_at=None).exists() == (not ends)
    retries = HeartbeatRun.objects.filter(retry_of=scene.run).count()
    assert retries == (1 if run.status == "lost" else 0)
