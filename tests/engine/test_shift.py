"""The resident loop: how it hears, how it lives, how it ends."""

from __future__ import annotations

import asyncio
import inspect
import time
import uuid
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from agents import output, runs, workers
from agents.adapters import base
from agents.models import HeartbeatRun, RunEvent, Worker
from companies import activity
from paperclip.engine import bell, heartbeat, lease, recover, schedule, shift, station
from paperclip.engine.hands import Hands
from paperclip.engine.shift import Shift
from tests import factories
from tests.engine.conftest import ask, until
from tests.engine.puppet import finish, wait_for_ever

pytestmark = pytest.mark.django_db(transaction=True)

Status = HeartbeatRun.Status


def queue(agent: Any, **fields: Any) -> HeartbeatRun:
    """A queued run that nobody was told of."""
    return factories.run(agent, factories.issue(agent.company, assignee=agent), **fields)


def statuses() -> list[str]:
    return list(HeartbeatRun.objects.order_by("created_at", "id").values_list("status", flat=True))


def is_(run: HeartbeatRun, status: str) -> Any:
    return lambda: HeartbeatRun.objects.filter(pk=run.pk, status=status).exists()


def short_lease(monkeypatch: Any, seconds: float) -> None:
    monkeypatch.setattr(workers, "LEASE_SECONDS", seconds)
    monkeypatch.setattr(workers, "BEAT_SECONDS", seconds / 5)
    monkeypatch.setattr(lease, "MARGIN_SECONDS", seconds / 5)
    monkeypatch.setattr(lease, "LAST_WORDS_SECONDS", seconds / 10)


# --- hearing ---------------------------------------------------------------------------------


def test_work_that_nobody_announced_is_found_by_looking(during, pia):
    run = queue(pia)

    async def watch(_: Shift) -> None:
        await until(is_(run, "succeeded"))

    assert during(watch) == "drained"


def test_a_wake_is_heard_without_waiting_for_the_next_look(during, pia, acme, monkeypatch):
    monkeypatch.setattr(shift, "POLL_SECONDS", 60)
    issue = factories.issue(acme, assignee=pia)

    async def watch(_: Shift) -> None:
        await until(lambda: Worker.objects.exists())
        await asyncio.sleep(0.5)
        await ask(
            runs.wake,
            agent=pia,
            issue=issue,
            reason="issue_assigned",
            source="assignment",
            actor=activity.SYSTEM,
        )
        await until(lambda: statuses() == ["succeeded"], 10)

    during(watch)


def test_it_hears_again_after_its_connection_was_cut(during, pia, monkeypatch):
    run = queue(pia)

    def cut() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE query LIKE 'LISTEN%%' AND datname = current_database()"
            )
            return cursor.fetchone()[0] == 1

    async def watch(one: Shift) -> None:
        await until(is_(run, "succeeded"))
        await until(cut)
        monkeypatch.setattr(shift, "POLL_SECONDS", 60)
        await until(lambda: one._bell._connection is not None and not one._bell._connection.closed)
        await asyncio.sleep(2)
        again = await ask(queue, pia)
        with_notice = lambda: runs.wake(  # noqa: E731
            agent=pia,
            issue=again.issue,
            reason="manual",
            source="on_demand",
            actor=activity.SYSTEM,
        )
        await ask(with_notice)
        await until(is_(again, "succeeded"))

    assert during(watch, slot=0) == "drained"


def test_a_cancellation_whose_notice_was_lost_is_seen_at_the_next_beat(
    during, puppet, pia, monkeypatch
):
    short_lease(monkeypatch, 2)
    puppet.play = wait_for_ever()
    run = queue(pia)

    async def watch(_: Shift) -> None:
        await until(is_(run, "running"))
        await until(lambda: HeartbeatRun.objects.update(cancel_requested_at=timezone.now()) == 1)
        await until(is_(run, "cancelled"))

    during(watch)


# --- carrying --------------------------------------------------------------------------------


def test_no_more_runs_than_its_capacity(during, puppet, acme):
    puppet.play = wait_for_ever()
    for _ in range(5):
        queue(factories.agent(acme, adapter_type="puppet"))

    async def watch(one: Shift) -> None:
        await until(lambda: statuses().count("running") == 2)
        await asyncio.sleep(2.5)
        assert len(one.running) == 2

    during(watch, capacity=2)


def test_it_claims_no_more_than_its_hands_can_open_soon(during, puppet, acme, monkeypatch):
    """What stands before the hands is bounded; what is at an adapter is not."""
    puppet.play = wait_for_ever()
    monkeypatch.setattr(shift, "AHEAD", 3)
    ahead: list[int] = []
    opened = shift.Shift._start

    def start(one: Shift, claimed: runs.Claimed) -> None:
        opened(one, claimed)
        ahead.append(sum(not beat.acting for beat, _ in one.running.values()))

    monkeypatch.setattr(shift.Shift, "_start", start)
    agent = factories.agent(acme, adapter_type="puppet", max_concurrent_runs=20)
    for _ in range(15):
        queue(agent)

    async def watch(_: Shift) -> None:
        await until(lambda: statuses().count("running") == 15)

    during(watch)
    assert len(ahead) == 15
    assert max(ahead) <= 3


def test_while_its_hands_have_enough_to_do_it_claims_several_at_once(
    during, puppet, acme, monkeypatch
):
    """A claim of one costs the database as much as one of many."""
    asked: list[int] = []
    claim = runs.claim

    def asking(**wanted: Any) -> runs.Batch:
        asked.append(wanted["limit"])
        return claim(**wanted)

    agent = factories.agent(acme, adapter_type="puppet", max_concurrent_runs=100)
    for _ in range(60):
        queue(agent)

    async def watch(_: Shift) -> None:
        await until(lambda: statuses() == ["succeeded"] * 60, 30)

    monkeypatch.setattr(shift, "AHEAD", 16)
    monkeypatch.setattr(runs, "claim", asking)
    during(watch)
    assert min(asked) >= 8


def test_a_place_that_becomes_free_is_filled_at_once(during, pia, monkeypatch):
    monkeypatch.setattr(shift, "POLL_SECONDS", 60)
    for _ in range(5):
        queue(pia)

    async def watch(_: Shift) -> None:
        await until(lambda: statuses() == ["succeeded"] * 5, 10)

    during(watch, capacity=1)


def test_hostile_output_is_kept_and_breaks_nothing(during, puppet, pia):
    async def play(brief: base.Brief):
        yield base.Text("nul \x00 and \ud800 lone\n", "stdout")
        yield base.Text("x" * 10_000_000 + "\n", "stdout")
        for number in range(100_000):
            yield base.Text(f"line {number}\n", "stdout")
        yield base.Done()

    puppet.play = play
    run = queue(pia)

    async def watch(_: Shift) -> None:
        await until(is_(run, "succeeded"), 60)

    during(watch)
    texts = RunEvent.objects.filter(run_id=run.pk, kind="stdout").order_by("seq")
    lengths = [len(t) for t in texts.values_list("text", flat=True)]
    whole = "".join(texts.values_list("text", flat=True))
    assert whole.startswith("nul � and � lone\nxxx")
    assert whole.endswith("line 99999\n")
    assert whole.count("\n") == 100_002
    assert max(lengths) <= output.PIECE_CHARS


def test_a_run_whose_output_was_refused_does_not_end_well(during, puppet, pia, monkeypatch):
    """It would stand there as done, without what it said."""
    short_lease(monkeypatch, 2)
    goes_on = asyncio.Event()

    async def play(brief: base.Brief):
        yield base.Text("hello\n", "stdout")
        await goes_on.wait()
        yield base.Done()

    puppet.play = play
    run = queue(pia)

    async def watch(one: Shift) -> None:
        await until(lambda: run.pk in one.running)
        puppet.play = finish  # whoever repeats it
        one.running[run.pk][0].journal.refuse()
        goes_on.set()
        await until(is_(run, "lost"))

    during(watch)
    assert HeartbeatRun.objects.get(retry_of=run).attempt == 2


def test_who_has_lost_a_run_stops_it_and_writes_no_more(during, puppet, pia):
    async def play(brief: base.Brief):
        for number in range(1_000):
            yield base.Text(f"{number} ")
            await asyncio.sleep(0.05)

    puppet.play = play
    run = queue(pia)

    async def watch(one: Shift) -> None:
        await until(lambda: RunEvent.objects.filter(run_id=run.pk, kind="text").exists())
        await until(lambda: HeartbeatRun.objects.update(epoch=7) == 1)
        await until(lambda: not one.running)

    during(watch)
    run.refresh_from_db()
    assert (run.status, run.epoch) == ("running", 7)
    assert set(RunEvent.objects.filter(run_id=run.pk).values_list("epoch", flat=True)) == {1}


@pytest.mark.parametrize("safe", [True, False])
def test_a_claim_whose_answer_was_lost_is_given_up_and_counts_no_attempt(
    during, puppet, pia, monkeypatch, safe: bool
):
    """Nothing was begun, so that it may also be repeated where repeating is not safe."""
    short_lease(monkeypatch, 2)
    puppet.retry_safe = safe
    run = factories.run(pia)
    monkeypatch.setattr(Shift, "_start", lambda self, claimed: None)

    async def watch(_: Shift) -> None:
        await until(is_(run, "lost"))

    during(watch)
    assert HeartbeatRun.objects.get(retry_of=run).attempt == 1


def test_a_claim_that_is_answered_after_it_was_given_up_starts_nothing(
    during, puppet, pia, monkeypatch
):
    """It is repeated as what was never begun, so it must not begin."""
    short_lease(monkeypatch, 2)
    played = []

    async def play(brief: base.Brief):
        played.append(brief.run_id)
        yield base.Done()

    puppet.play = play
    claim = runs.claim

    async def watch(one: Shift) -> None:
        def late(**asked: Any) -> Any:
            batch = claim(**asked)
            one._given_up.update(claimed.run_id for claimed in batch if claimed.attempt == 1)
            monkeypatch.setattr(runs, "claim", claim)
            return batch

        monkeypatch.setattr(runs, "claim", late)
        run = await ask(queue, pia)
        await until(is_(run, "lost"))
        again = await ask(HeartbeatRun.objects.get, retry_of=run)
        await until(is_(again, "succeeded"))
        assert played == [str(again.pk)]

    during(watch)


def test_an_answer_forgets_nothing_that_ended_while_it_was_on_its_way():
    """It was begun and its end may not have been written: repeating it may not be safe."""
    one, ended = Shift(instance="here"), uuid.uuid4()
    asked_at = time.monotonic()
    one._ended(ended)

    one._compare(workers.Beat(alive=True), asked_at)
    assert ended in one._carried
    one._compare(workers.Beat(alive=True), time.monotonic())
    assert ended not in one._carried


def test_a_run_whose_end_was_not_written_is_given_up_and_counts(during, puppet, pia, monkeypatch):
    short_lease(monkeypatch, 2)
    run = factories.run(pia)

    async def carry(_: heartbeat.Heartbeat) -> None:
        pass

    monkeypatch.setattr(heartbeat.Heartbeat, "carry", carry)

    async def watch(_: Shift) -> None:
        await until(is_(run, "lost"))

    during(watch)
    assert HeartbeatRun.objects.get(retry_of=run).attempt == 2


# --- living ----------------------------------------------------------------------------------


def test_when_the_database_says_it_is_dead_it_stops_and_writes_nothing(
    during, puppet, pia, monkeypatch
):
    short_lease(monkeypatch, 2)
    puppet.play = wait_for_ever(base.Text("working"))
    run = queue(pia)

    async def watch(one: Shift) -> None:
        await until(lambda: RunEvent.objects.filter(run_id=run.pk, kind="text").exists())
        await until(
            lambda: Worker.objects.update(lease_expires_at=timezone.now() - timedelta(1)) == 1
        )
        await until(lambda: not one.running)

    assert during(watch) == "fenced"
    run.refresh_from_db()
    assert (run.status, run.epoch) == ("running", 1)
    assert puppet.cleaned == [str(run.pk)]
    assert [lost.run_id for lost in recover.sweep()] == [run.pk]


def test_an_adapter_that_cleans_up_after_a_fence_is_not_disturbed(during, puppet, pia):
    """It may have a child to wait for, who would be nobody's otherwise."""
    waited: list[str] = []

    async def play(brief: base.Brief) -> AsyncGenerator[base.Event, None]:
        yield base.Text("working")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.3)
            waited.append(brief.run_id)

    puppet.play = play
    run = queue(pia)

    async def watch(one: Shift) -> None:
        await until(is_(run, "running"))
        await until(lambda: RunEvent.objects.filter(run_id=run.pk, kind="text").exists())
        one.fence("for a test")
        await until(lambda: not one.running)

    assert during(watch) == "fenced"
    assert waited == [str(run.pk)]


def test_when_it_cannot_renew_it_stops_before_the_lease_can_run_out(
    during, puppet, pia, monkeypatch
):
    short_lease(monkeypatch, 4)
    puppet.play = wait_for_ever(base.Text("working"))
    run = queue(pia)
    stopped: list[Any] = []

    def away(**_: Any) -> None:
        raise OperationalError("away")

    async def watch(one: Shift) -> None:
        await until(is_(run, "running"))
        monkeypatch.setattr(workers, "beat", away)
        await until(lambda: not one.running)
        stopped.append(await ask(Worker.objects.values_list("lease_expires_at").get))
        stopped.append(timezone.now())

    assert during(watch) == "fenced"
    (expires,), at = stopped
    assert at < expires


def test_a_short_absence_of_the_database_goes_by_unnoticed(during, puppet, pia, monkeypatch):
    short_lease(monkeypatch, 5)
    beat, write = workers.beat, output.write
    calls = {"beat": 0, "write": 0}

    def shaky_beat(**given: Any) -> Any:
        calls["beat"] += 1
        if calls["beat"] % 2:
            raise OperationalError("away")
        return beat(**given)

    def shaky_write(rows: Any) -> Any:
        calls["write"] += 1
        if calls["write"] % 2:
            raise OperationalError("away")
        return write(rows)

    monkeypatch.setattr(workers, "beat", shaky_beat)
    monkeypatch.setattr(output, "write", shaky_write)

    async def play(brief: base.Brief):
        for number in range(60):
            yield base.Text(f"{number} ")
            await asyncio.sleep(0.05)
        yield base.Done()

    puppet.play = play
    run = queue(pia)

    async def watch(_: Shift) -> None:
        await until(is_(run, "succeeded"))

    assert during(watch) == "drained"
    texts = RunEvent.objects.filter(run_id=run.pk, kind="text").order_by("seq")
    assert "".join(texts.values_list("text", flat=True)) == "".join(f"{n} " for n in range(60))


def test_a_stuck_loop_is_ended_from_outside(during, puppet, pia, monkeypatch):
    short_lease(monkeypatch, 1.5)
    ended: list[float] = []

    async def play(brief: base.Brief):
        yield base.Text("working")
        time.sleep(3)  # the whole loop is stuck
        yield base.Done()

    puppet.play = play
    run = queue(pia)

    async def watch(one: Shift) -> None:
        await until(lambda: bool(ended))
        await until(lambda: not one.running)

    assert during(watch, on_stuck=lambda: ended.append(time.monotonic())) == "fenced"
    run.refresh_from_db()
    assert run.status == "running"  # nothing was written after the lease


# --- ending ----------------------------------------------------------------------------------


def test_a_notice_to_its_instance_makes_it_end(during):
    async def watch(one: Shift) -> None:
        await until(lambda: Worker.objects.exists())
        await ask(schedule.request_drain, "somebody else")
        await asyncio.sleep(0.2)
        assert not one._ending
        await ask(schedule.request_drain, "here")
        await until(lambda: bool(one._ending), 2)

    assert during(watch) == "drained"
    assert Worker.objects.get().lease_expires_at <= timezone.now()


def test_a_flag_in_its_row_makes_it_end(during, monkeypatch):
    short_lease(monkeypatch, 2)

    async def watch(one: Shift) -> None:
        await until(lambda: Worker.objects.update(draining=True) == 1)
        await until(lambda: bool(one._ending), 5)

    assert during(watch) == "drained"


def test_the_world_around_it_makes_it_end(during):
    wanted: list[bool] = []

    async def watch(one: Shift) -> None:
        await until(lambda: Worker.objects.exists())
        wanted.append(True)
        await until(lambda: bool(one._ending), 3)

    assert during(watch, should_end=lambda: bool(wanted)) == "drained"


def test_when_its_window_is_over_it_ends_as_soon_as_nothing_runs(during, puppet, pia):
    release: list[bool] = []

    async def play(brief: base.Brief):
        while not release:
            await asyncio.sleep(0.05)
            yield base.Text(".")
        yield base.Done()

    puppet.play = play
    run = queue(pia)

    async def watch(one: Shift) -> None:
        await until(is_(run, "running"))
        await asyncio.sleep(1.5)
        assert not one._ending
        release.append(True)
        await until(lambda: bool(one._ending), 5)

    assert during(watch, window_seconds=0.5) == "drained"
    run.refresh_from_db()
    assert run.status == "succeeded"


def test_draining_claims_nothing_more(during, puppet, pia, acme):
    other = factories.agent(acme, adapter_type="puppet")
    puppet.play = wait_for_ever()
    first = queue(pia)

    async def watch(one: Shift) -> None:
        await until(is_(first, "running"))
        one.grace_seconds = 60  # longer than the busiest machine needs for what follows
        one.drain()
        await ask(queue, other)
        await asyncio.sleep(1.5)
        assert len(one.running) == 1
        for beat, _ in list(one.running.values()):
            beat.stop(heartbeat.SHUTDOWN)  # what the end of the grace would do

    during(watch)
    assert HeartbeatRun.objects.filter(agent=other).get().status == "queued"


def test_a_slot_is_taken_once(during):
    async def watch(_: Shift) -> None:
        await until(lambda: Worker.objects.exists())
        assert await Shift(instance="here", slot=0).work() == "surplus"
        elsewhere = bell.Bell(lock_name="paperclip.shift:elsewhere:0", on_slot_lost=lambda: None)
        assert await elsewhere.open()
        await elsewhere.close()

    assert during(watch, slot=0) == "drained"
    assert Worker.objects.count() == 1


class Sentinel:
    """As django-q2 has it, on the stack below a forked worker."""

    def __init__(self, stop_event: Any) -> None:
        self.stop_event = stop_event

    def guard(self) -> Any:
        return station.cluster_is_stopping(inspect.currentframe())


def test_the_clusters_own_stop_is_seen():
    from multiprocessing import Event

    event = Event()
    stopping = Sentinel(event).guard()
    assert not stopping()
    event.set()
    assert stopping()


def test_without_a_cluster_nothing_stops():
    assert not station.cluster_is_stopping(inspect.currentframe())()


def test_a_finished_run_leaves_no_trace_in_the_shift(during, puppet, pia):
    puppet.play = finish(base.Text("x"))
    run = queue(pia)

    async def watch(one: Shift) -> None:
        await until(is_(run, "succeeded"))
        await until(lambda: not one.running and not one._journals())

    during(watch)


def test_a_call_without_an_answer_loses_its_connection_and_its_thread_is_free(transactional_db):
    hands = Hands(1, "test")

    def sleep() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    async def watch() -> str:
        stuck = asyncio.create_task(hands.call(sleep))
        await until(asleep)
        assert hands.cut(older_than=30) == 0
        assert hands.cut() == 1
        with pytest.raises(OperationalError):
            await asyncio.wait_for(stuck, 10)
        return await asyncio.wait_for(hands.call(answer), 10)

    def asleep() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'"
            )
            return cursor.fetchone()[0] == 1

    def answer() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 'here'")
            return cursor.fetchone()[0]

    assert asyncio.run(watch()) == "here"
    assert hands.cut() == 0
    hands.close()
    with connection.cursor() as cursor:  # the server sleeps on, and does not know for whom
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE query = 'SELECT pg_sleep(60)'"
        )
