"""What would happen without the engine's guards: each test takes one away and shows the damage,
beside the same scene with the guard in its place. So the tests that rely on a guard are known to
be able to fail. They are named with each.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from agents import claims, gate, output, roster, runs, wakes, workers
from agents.models import Agent, HeartbeatRun, RunEvent
from companies import live
from companies.activity import SYSTEM
from tests import factories
from tests.races.threads import together

guarded = pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])


def without(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, *guards: str) -> None:
    """Take the guards out of a statement; it is an error when they are not in it."""
    statement = getattr(module, name)
    for guard in guards:
        assert guard in statement, f"{name} has no {guard!r}"
        statement = statement.replace(guard, "")
    monkeypatch.setattr(module, name, statement)


def worker(instance: str = "here") -> uuid.UUID:
    return workers.register(instance=instance, slot=0, pid=1, capacity=10)


def while_it_lasts(first: Callable[[], Any], second: Callable[[], Any]) -> Any:
    """The answer of `second`, called beside a transaction in which `first` has been called."""
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                first()
                holding.set()
                done.wait(20)
        finally:
            holding.set()

    def act() -> Any:
        holding.wait(20)
        try:
            return second()
        finally:
            done.set()

    answer = together(hold, act)[1]
    live.close()
    return answer


@pytest.mark.django_db
@guarded
def test_without_the_epoch_a_former_holder_ends_a_run_again(guarded, ada, issue, monkeypatch):
    """Relied on by races/test_claims: an end is an end whoever is faster."""
    if not guarded:
        without(monkeypatch, runs, "_FINISH", " AND epoch = %(epoch)s")
    run = factories.running(ada, issue)
    assert runs.finish(run_id=run.pk, epoch=1, status="lost", code="process_lost")
    again = runs.finish(run_id=run.pk, epoch=1, status="succeeded")
    run.refresh_from_db()
    assert (again, run.status) == ((False, "lost") if guarded else (True, "succeeded"))


@pytest.mark.django_db
@guarded
def test_without_the_epoch_a_former_holder_writes_output(guarded, ada, issue, monkeypatch):
    """Relied on by test_output: rows of a run that has changed hands are discarded."""
    if not guarded:
        without(monkeypatch, output, "_WRITE", " AND r.epoch = o.epoch")
    run = factories.running(ada, issue, epoch=2)
    owners = output.write([output.Row(run.pk, 1, 7, "text", "late", None, timezone.now())])
    assert (run.pk in owners, RunEvent.objects.count()) == ((False, 0) if guarded else (True, 1))


@pytest.mark.django_db
@guarded
def test_without_on_conflict_output_is_not_written_twice_but_refused(
    guarded, ada, issue, monkeypatch
):
    """Relied on by test_output: a row that is there already stays as it is."""
    if not guarded:
        without(monkeypatch, output, "_WRITE", "ON CONFLICT DO NOTHING")
    run = factories.running(ada, issue)
    rows = [output.Row(run.pk, run.epoch, 7, "text", "once", None, timezone.now())]
    output.write(rows)
    if guarded:
        output.write(rows)
        assert RunEvent.objects.count() == 1
    else:
        with pytest.raises(IntegrityError):
            output.write(rows)


@pytest.mark.django_db
@guarded
def test_without_on_conflict_a_second_wish_is_lost(guarded, ada, issue, monkeypatch):
    """Relied on by test_wakes: wakes about one issue fold into one run."""
    if not guarded:
        start = wakes._INSERT.index("ON CONFLICT")
        without(monkeypatch, wakes, "_INSERT", wakes._INSERT[start : wakes._INSERT.index("RETURN")])

    def wake() -> runs.Wake:
        return runs.wake(
            agent=ada, issue=issue, reason="issue_commented", source="automation", actor=SYSTEM
        )

    wake()
    if guarded:
        wake()
        assert HeartbeatRun.objects.get().wake_count == 2
    else:
        with pytest.raises(IntegrityError):
            wake()


@pytest.mark.django_db
@guarded
def test_without_its_memory_a_later_key_makes_a_second_run(guarded, ada, issue, monkeypatch):
    """Relied on by test_wakes: the key of a wish that folded is recognised as well."""
    if not guarded:
        monkeypatch.setattr(wakes, "_REMEMBER", "SELECT %(run_id)s::uuid, %(keys)s::text[]")

    def wake(key: str) -> runs.Wake:
        return runs.wake(
            agent=ada,
            issue=issue,
            reason="issue_commented",
            source="automation",
            actor=SYSTEM,
            idempotency_key=key,
        )

    wake("first")
    wake("later")
    HeartbeatRun.objects.update(status="running", started_at=timezone.now())
    assert wake("later").created is not guarded


@pytest.mark.django_db(transaction=True)
@guarded
def test_without_skip_locked_a_claim_waits_for_one_busy_agent(guarded, ada, bo, acme, monkeypatch):
    """Relied on by races/test_claims: a claim does not wait for a busy row."""
    monkeypatch.setattr(claims, "PATIENCE_SECONDS", 0.3)
    if not guarded:
        without(monkeypatch, gate, "LOOK", " SKIP LOCKED")
    for agent in (ada, bo):
        factories.run(agent, factories.issue(acme, assignee=agent))
    here = worker()
    batch = while_it_lasts(
        lambda: Agent.objects.select_for_update().get(pk=ada.pk),
        lambda: runs.claim(worker_id=here, limit=10),
    )
    assert [claimed.agent_id for claimed in batch] == ([bo.pk] if guarded else [])


@pytest.mark.django_db(transaction=True)
@guarded
def test_without_the_agents_lock_a_claim_slips_past_a_pause(guarded, ada, issue, monkeypatch):
    """Relied on by races/test_claims: a pause that races with claims never leaks."""
    if not guarded:
        without(monkeypatch, gate, "LOOK", "FOR NO KEY UPDATE OF a SKIP LOCKED")
    factories.run(ada, issue)
    here = worker()
    batch = while_it_lasts(
        lambda: roster.pause(agent=Agent.objects.get(pk=ada.pk), actor=SYSTEM),
        lambda: runs.claim(worker_id=here, limit=10),
    )
    assert ada.holds.count() == 1
    assert len(batch) == (0 if guarded else 1)


@pytest.mark.django_db(transaction=True)
@guarded
def test_without_the_companys_lock_two_claims_share_one_place(guarded, ada, bo, acme, monkeypatch):
    """Relied on by races/test_claims: claimers at the same moment share the last free place."""
    if not guarded:
        without(monkeypatch, gate, "LOOK", "FOR NO KEY UPDATE OF c SKIP LOCKED")
    acme.max_concurrent_agents = 1
    acme.save()
    for agent in (ada, bo):
        factories.run(agent, factories.issue(acme, assignee=agent))
    here, there = worker(), worker("there")
    while_it_lasts(
        lambda: runs.claim(worker_id=here, limit=1),
        lambda: runs.claim(worker_id=there, limit=1),
    )
    assert HeartbeatRun.objects.filter(status="running").count() == (1 if guarded else 2)


@pytest.mark.django_db(transaction=True)
@guarded
def test_without_the_turn_an_instance_carries_too_many_of_a_heavy_kind(
    guarded, acme, globex, monkeypatch
):
    """Relied on by races/test_claims: an instance never has more of a kind than it can bear."""
    monkeypatch.setattr(claims, "PATIENCE_SECONDS", 0.3)
    if not guarded:
        lock = "pg_advisory_xact_lock(hashtextextended('paperclip.claim:' || instance, 0))"
        assert lock in gate.TURN
        monkeypatch.setattr(gate, "TURN", gate.TURN.replace(lock, "instance"))
    heavy = [factories.agent(company, adapter_type="claude_local") for company in (acme, globex)]
    here, colleague = worker(), worker()

    def claim(agent: Agent, worker_id: uuid.UUID) -> None:
        factories.run(agent, factories.issue(agent.company, assignee=agent))
        runs.claim(worker_id=worker_id, limit=1, most_of_kind={"claude_local": 1})

    while_it_lasts(lambda: claim(heavy[0], here), lambda: claim(heavy[1], colleague))
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM agents_heartbeatrun WHERE status = 'running'")
        assert cursor.fetchone()[0] == (1 if guarded else 2)
