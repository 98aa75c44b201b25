"""What would happen without the guards: each test takes one away and shows the damage, so that the
tests that rely on it are known to be able to fail."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from agents import claims, gate, output, runs, wakes, workers
from agents.models import Agent, HeartbeatRun, RunEvent
from companies.activity import SYSTEM
from tests import factories
from tests.races.threads import together

pytestmark = [
    pytest.mark.faults,
    pytest.mark.fault("SENTINEL", "a guard is taken away, and the damage is seen"),
]


def without(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, guard: str) -> None:
    """Take `guard` out of a statement; it must have been there."""
    statement = getattr(module, name)
    assert guard in statement
    monkeypatch.setattr(module, name, statement.replace(guard, ""))


@pytest.mark.django_db
def test_without_the_epoch_a_zombie_ends_the_run_of_another(monkeypatch, ada, issue):
    run = factories.running(ada, issue, epoch=3)
    assert not runs.finish(run_id=run.pk, epoch=1, status="failed")
    without(monkeypatch, runs, "_FINISH", " AND epoch = %(epoch)s")
    assert runs.finish(run_id=run.pk, epoch=1, status="failed")


@pytest.mark.django_db
def test_without_the_epoch_a_zombies_output_is_kept(monkeypatch, ada, issue, now):
    run = factories.running(ada, issue, epoch=3)
    row = output.Row(run.pk, 1, 2, "text", "of a former life", None, now)
    assert output.write([row]) == {}
    without(monkeypatch, output, "_WRITE", " AND r.epoch = o.epoch")
    output.write([row])
    assert RunEvent.objects.filter(run_id=run.pk, text="of a former life").exists()


@pytest.mark.django_db(transaction=True)
def test_without_the_on_conflict_a_second_wish_is_an_error(monkeypatch, ada, issue):
    def wake() -> runs.Wake:
        return runs.wake(
            agent=ada, issue=issue, reason="issue_commented", source="automation", actor=SYSTEM
        )

    first = wake()
    assert wake().run_id == first.run_id
    at = wakes._INSERT.index("ON CONFLICT")
    bare = wakes._INSERT[:at] + wakes._INSERT[wakes._INSERT.index("RETURNING") :]
    monkeypatch.setattr(wakes, "_INSERT", bare)
    with pytest.raises(IntegrityError, match="one_queued_run_an_agent_and_issue"):
        wake()


@pytest.mark.django_db(transaction=True)
def test_without_the_agents_lock_a_pause_leaks(monkeypatch, acme):
    """The claim has counted, the agent is paused, the claim starts its run all the same."""
    ada = factories.agent(acme)
    factories.run(ada)
    worker = workers.register(instance="here", slot=0, pid=1, capacity=10)
    without(monkeypatch, gate, "LOOK", " FOR NO KEY UPDATE OF a SKIP LOCKED")
    counted, paused = threading.Event(), threading.Event()
    look = claims.faultpoints.reach

    def reach(place: str, what: object = "") -> None:
        look(place, what)
        if place == "claiming":
            counted.set()
            paused.wait(10)

    monkeypatch.setattr(claims.faultpoints, "reach", reach)

    def pause() -> int:
        counted.wait(10)
        try:
            with transaction.atomic():
                with connection.cursor() as cursor:
                    cursor.execute("SET LOCAL lock_timeout = '2s'")
                factories.hold(Agent.objects.select_for_update(no_key=True).get(pk=ada.pk))
            return HeartbeatRun.objects.filter(agent=ada, status="running").count()
        finally:
            paused.set()

    seen, _ = together(pause, lambda: runs.claim(worker_id=worker, limit=5))
    assert seen == 0, "who paused it saw nothing running"
    assert HeartbeatRun.objects.filter(agent=ada, status="running").count() == 1
