"""A run's life against a plain model: whatever the order of claims, leases that run out, rescues,
ends, cancellations, pauses and wakes, the rows say what a few dozen lines of Python say.

`PAPERCLIP_FUZZ=2000` looks at so many random stories; without it the same few every time.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agents import outcomes, roster, runs, workers
from agents.models import HeartbeatRun, Worker
from companies.activity import SYSTEM
from paperclip.engine import recover
from tests import factories
from tests.engine.puppet import Puppet, register

FUZZ = int(os.environ.get("PAPERCLIP_FUZZ", "0"))
PICKS = st.integers(min_value=0, max_value=10**6)
ENDS = st.sampled_from(["succeeded", "failed", "timed_out"])


@dataclass
class Known:
    """The model's idea of one run."""

    id: uuid.UUID
    agent: int
    issue: int
    status: str = "queued"
    epoch: int = 0
    attempt: int = 1
    worker: int | None = None
    acted: bool = False
    asked: bool = False  # to be cancelled
    comments: list[uuid.UUID] = field(default_factory=list)
    wakes: int = 1


class Life(RuleBasedStateMachine):
    """Two agents of two places each, three issues, three workers."""

    def __init__(self) -> None:
        super().__init__()
        self.block = transaction.atomic()
        self.block.__enter__()
        self.company = factories.company("Acme", "ACM")
        self.agents = [
            factories.agent(self.company, adapter_type="puppet", max_concurrent_runs=2)
            for _ in range(2)
        ]
        self.issues = [factories.issue(self.company, assignee=self.agents[n % 2]) for n in range(3)]
        self.workers = [self._worker() for _ in range(3)]
        self.runs: list[Known] = []
        self.paused: set[int] = set()

    def teardown(self) -> None:
        transaction.set_rollback(True)
        with contextlib.suppress(Exception):
            self.block.__exit__(None, None, None)

    @staticmethod
    def _worker() -> uuid.UUID:
        return workers.register(instance="here", slot=0, pid=1, capacity=10)

    # --- the model ---------------------------------------------------------------------------

    def _live(self, status: str) -> list[Known]:
        return [one for one in self.runs if one.status == status]

    def _queued(self, agent: int, issue: int) -> Known | None:
        for one in self._live("queued"):
            if (one.agent, one.issue) == (agent, issue):
                return one
        return None

    def _end(self, one: Known, status: str) -> None:
        one.status, one.epoch = status, one.epoch + 1

    def _alive(self, worker: int) -> bool:
        return bool(
            Worker.objects.filter(
                pk=self.workers[worker], lease_expires_at__gt=timezone.now()
            ).exists()
        )

    # --- what may happen ---------------------------------------------------------------------

    @rule(issue=st.integers(0, 2), person=st.booleans())
    def wake(self, issue: int, person: bool) -> None:
        comment = uuid.uuid4()
        agent = issue % 2
        wake = runs.wake(
            agent=self.agents[agent],
            issue=self.issues[issue],
            reason="issue_commented",
            source="automation",
            actor=SYSTEM,
            comment_ids=[comment],
        )
        waiting = self._queued(agent, issue)
        assert wake.run_id is not None
        assert wake.created == (waiting is None)
        if waiting is None:
            self.runs.append(Known(wake.run_id, agent, issue, comments=[comment]))
        else:
            assert wake.run_id == waiting.id
            waiting.comments.append(comment)
            waiting.wakes += 1

    @rule(worker=st.integers(0, 2), limit=st.integers(1, 4))
    def claim(self, worker: int, limit: int) -> None:
        batch = runs.claim(worker_id=self.workers[worker], limit=limit)
        known = {one.id: one for one in self.runs}
        assert len(batch) <= limit
        if not self._alive(worker):
            assert not batch
        for claimed in batch:
            one = known[claimed.run_id]
            assert one.status == "queued", "a terminal or running run never starts again"
            assert one.agent not in self.paused
            one.status, one.epoch, one.worker = "running", one.epoch + 1, worker
            assert claimed.epoch == one.epoch
            assert claimed.attempt == one.attempt

    @precondition(lambda self: self._live("running"))
    @rule(pick=PICKS, status=ENDS)
    def finish(self, pick: int, status: str) -> None:
        one = self._live("running")[pick % len(self._live("running"))]
        assert runs.finish(run_id=one.id, epoch=one.epoch, status=status)
        self._end(one, status)

    @precondition(lambda self: self.runs)
    @rule(pick=PICKS, back=st.integers(1, 3))
    def a_zombie_finishes(self, pick: int, back: int) -> None:
        """Whoever comes with an epoch of the past changes nothing."""
        one = self.runs[pick % len(self.runs)]
        stale = one.epoch - back
        if stale < 0:
            return
        assert not runs.finish(run_id=one.id, epoch=stale, status="succeeded")
        with pytest.raises(runs.Stale):
            runs.mark_acted(run_id=one.id, epoch=stale)

    @precondition(lambda self: self._live("running"))
    @rule(pick=PICKS)
    def act(self, pick: int) -> None:
        one = self._live("running")[pick % len(self._live("running"))]
        runs.mark_acted(run_id=one.id, epoch=one.epoch)
        one.acted = True

    @rule(worker=st.integers(0, 2))
    def a_worker_dies(self, worker: int) -> None:
        Worker.objects.filter(pk=self.workers[worker]).update(
            lease_expires_at=timezone.now() - timedelta(seconds=60)
        )
        assert not workers.beat(worker_id=self.workers[worker], running=0).alive

    @rule(worker=st.integers(0, 2))
    def a_worker_beats(self, worker: int) -> None:
        beat = workers.beat(worker_id=self.workers[worker], running=1)
        assert beat.alive == self._alive(worker)
        if beat.alive:
            owned = {(one.run_id, one.epoch, one.cancelled) for one in beat.owned}
            assert owned == {
                (one.id, one.epoch, one.asked)
                for one in self._live("running")
                if one.worker == worker
            }

    @rule(worker=st.integers(0, 2))
    def a_worker_is_followed(self, worker: int) -> None:
        """A dead process is replaced, once its runs are rescued."""
        if not self._alive(worker):
            self.rescue()
            self.workers[worker] = self._worker()

    @rule()
    def rescue(self) -> None:
        orphans = {
            one.id: one
            for one in self._live("running")
            if one.worker is not None and not self._alive(one.worker)
        }
        found = recover.sweep()
        assert {lost.run_id for lost in found} == set(orphans)
        for lost in found:
            one = orphans[lost.run_id]
            again = not one.asked and not one.acted and one.attempt < outcomes.MAX_LOST_ATTEMPTS
            expected = "cancelled" if one.asked else "lost" if again else "unknown"
            assert lost.status == expected
            assert (lost.retry is not None) == again
            self._end(one, expected)
            if lost.retry is not None:
                self._follow(one, lost.retry)

    def _follow(self, lost: Known, retry: uuid.UUID) -> None:
        waiting = self._queued(lost.agent, lost.issue)
        if waiting is None:
            self.runs.append(
                Known(
                    retry,
                    lost.agent,
                    lost.issue,
                    attempt=lost.attempt + 1,
                    comments=list(lost.comments),
                )
            )
            return
        assert retry == waiting.id
        waiting.attempt = max(waiting.attempt, lost.attempt + 1)
        waiting.comments += [one for one in lost.comments if one not in waiting.comments]
        waiting.wakes += 1

    @precondition(lambda self: self.runs)
    @rule(pick=PICKS)
    def cancel(self, pick: int) -> None:
        one = self.runs[pick % len(self.runs)]
        said = runs.cancel(run=HeartbeatRun.objects.get(pk=one.id), actor=SYSTEM)
        if one.status == "running":
            one.asked = True
        elif one.status == "queued":
            self._end(one, "cancelled")
        assert said == one.status

    @precondition(lambda self: self._live("running"))
    @rule(pick=PICKS)
    def a_shutdown_puts_a_run_down(self, pick: int) -> None:
        one = self._live("running")[pick % len(self._live("running"))]
        run = runs.held(run_id=one.id, epoch=one.epoch)
        assert run is not None
        loss = runs.loss_of(run, shutdown=True)
        lost = runs.lose(run=run, loss=loss, now=timezone.now())
        assert lost is not None
        self._end(one, lost.status)
        assert (lost.status == "cancelled") == one.asked
        if lost.retry is not None:
            assert not one.acted
            attempt, one.attempt = one.attempt, one.attempt - 1  # a shutdown counts no attempt
            self._follow(one, lost.retry)
            one.attempt = attempt

    @rule(agent=st.integers(0, 1))
    def pause_or_resume(self, agent: int) -> None:
        if agent in self.paused:
            roster.resume(agent=self.agents[agent], actor=SYSTEM)
            self.paused.discard(agent)
        else:
            roster.pause(agent=self.agents[agent], actor=SYSTEM)
            self.paused.add(agent)

    # --- what is always true -----------------------------------------------------------------

    @invariant()
    def rows_say_what_the_model_says(self) -> None:
        rows = {run.pk: run for run in HeartbeatRun.objects.filter(company=self.company)}
        assert rows.keys() == {one.id for one in self.runs}
        for one in self.runs:
            row = rows[one.id]
            assert (row.status, row.epoch, row.attempt) == (one.status, one.epoch, one.attempt)
            assert row.comment_ids == one.comments
            assert row.wake_count == one.wakes
            assert (row.acted_at is not None) == one.acted

    @invariant()
    def nobody_works_twice(self) -> None:
        running = self._live("running")
        assert len({one.issue for one in running}) == len(running)
        for agent in range(2):
            assert sum(one.agent == agent for one in running) <= 2
        queued = self._live("queued")
        assert len({(one.agent, one.issue) for one in queued}) == len(queued)


@pytest.mark.faults
@pytest.mark.fault("T27", "a run's life and the folding of wakes against a plain model")
@pytest.mark.timeout(1_200)
@pytest.mark.django_db
def test_a_runs_life_follows_the_plain_model(monkeypatch: pytest.MonkeyPatch, figures: Any) -> None:
    register(monkeypatch, Puppet())
    examples = FUZZ or 10
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=examples,
            stateful_step_count=50 if FUZZ else 30,
            deadline=None,
            derandomize=not FUZZ,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    figures.update(stories=examples, steps_each=50 if FUZZ else 30)
