"""The start gate looks at the connections: full, in trouble, switched off, or being tried."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta

import pytest
from django.db import connections as databases
from django.utils import timezone

from agents import connections, providers, runs, workers
from agents.connection_models import ProviderConnection
from agents.models import HeartbeatRun
from companies.activity import SYSTEM
from companies.models import Company
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker(db) -> uuid.UUID:
    return workers.register(instance="here", slot=0, pid=1, capacity=250)


def queue(agent, count=1):
    return [
        factories.run(agent, factories.issue(agent.company, assignee=agent)) for _ in range(count)
    ]


def claim(worker):
    found = []
    for _ in range(20):
        batch = runs.claim(worker_id=worker, limit=50)
        found += batch
        if not batch.more:
            break
    return found


def trouble(row, *, code="provider_overloaded", seconds=60.0, breaker="open"):
    """Opened, for so many seconds from now; None: until a person says so."""
    now = timezone.now()
    ProviderConnection.objects.filter(pk=row.pk).update(
        breaker=breaker,
        open_code=code,
        opened_at=now,
        open_until=None if seconds is None else now + timedelta(seconds=seconds),
    )


def test_a_run_remembers_the_connection_that_it_counts_against(worker, connect, hire):
    row = connect()
    queue(hire(row))
    (claimed,) = claim(worker)
    assert HeartbeatRun.objects.get(pk=claimed.run_id).connection_id == row.pk


def test_agents_share_the_places_of_their_connection(worker, connect, hire):
    row = connect(max_concurrent_runs=3)
    for name in ("Pia", "Pit", "Pam"):
        queue(hire(row, name=name, max_concurrent_runs=5), 2)
    assert len(claim(worker)) == 3
    HeartbeatRun.objects.filter(status="running").order_by("id").first().delete()
    assert len(claim(worker)) == 1


def test_a_full_connection_does_not_keep_others_from_starting(worker, connect, hire, ada, acme):
    Company.objects.filter(pk=acme.pk).update(max_concurrent_agents=2)
    row = connect(max_concurrent_runs=1)
    queue(hire(row, name="Pia"))
    queue(hire(row, name="Pit"))
    (late,) = queue(ada)
    claimed = {one.run_id for one in claim(worker)}
    assert late.pk in claimed
    assert len(claimed) == 2


@pytest.mark.parametrize("seconds", [60.0, None])
def test_nothing_starts_while_it_is_open(worker, connect, hire, seconds):
    row = connect()
    (run,) = queue(hire(row))
    trouble(row, seconds=seconds)
    assert claim(worker) == []
    run.refresh_from_db()
    assert run.status == "queued"


def test_after_its_time_one_run_starts_to_try(worker, connect, hire):
    row = connect()
    queue(hire(row, name="Pia", max_concurrent_runs=5), 3)
    queue(hire(row, name="Pit"), 1)
    trouble(row, seconds=-1)
    assert len(claim(worker)) == 1
    assert claim(worker) == []


def test_once_it_is_closed_again_all_start(worker, connect, hire, now):
    row = connect()
    queue(hire(row, max_concurrent_runs=5), 3)
    trouble(row, code="quota_exhausted", seconds=None)
    assert claim(worker) == []
    connections.reset(row=row, actor=SYSTEM, now=now)
    assert len(claim(worker)) == 3


def test_nothing_starts_on_one_that_is_switched_off(worker, connect, hire, now):
    row = connect()
    queue(hire(row))
    connections.disable(row=row, actor=SYSTEM, now=now)
    assert claim(worker) == []
    connections.enable(row=row, actor=SYSTEM, now=now)
    assert len(claim(worker)) == 1


def test_trouble_of_one_connection_is_nobody_elses(worker, connect, hire):
    bad, good = connect("Bad"), connect("Good")
    queue(hire(bad, name="Pia"))
    (run,) = queue(hire(good, name="Pit"))
    trouble(bad)
    assert [one.run_id for one in claim(worker)] == [run.pk]


def test_a_run_starts_on_the_fallback_when_its_provider_is_away(worker, connect, hire):
    main, spare = connect("Main"), connect("Spare")
    queue(hire(main, spare))
    trouble(main)
    (claimed,) = claim(worker)
    assert HeartbeatRun.objects.get(pk=claimed.run_id).connection_id == spare.pk


@pytest.mark.parametrize("case", ["quota", "disabled", "full"])
def test_it_does_not_for_other_causes(worker, connect, hire, now, case):
    main, spare = connect("Main", max_concurrent_runs=1), connect("Spare")
    agent = hire(main, spare, max_concurrent_runs=5)
    queue(agent)
    if case == "quota":
        trouble(main, code="quota_exhausted", seconds=None)
    elif case == "disabled":
        connections.disable(row=main, actor=SYSTEM, now=now)
    else:
        claim(worker)
        queue(agent)
    assert claim(worker) == []


def test_nor_on_a_fallback_that_is_full_or_away(worker, connect, hire):
    main, spare = connect("Main"), connect("Spare")
    queue(hire(main, spare))
    trouble(main)
    trouble(spare)
    assert claim(worker) == []


def test_a_run_moves_only_where_there_is_room(worker, connect, hire):
    main, spare = connect("Main"), connect("Spare", max_concurrent_runs=1)
    queue(hire(main, spare, name="Pia", max_concurrent_runs=2), 2)
    first, second = claim(worker)

    def move(one):
        return providers.move(run_id=one.run_id, epoch=one.epoch, connection_id=spare.pk)

    assert (move(first), move(first), move(second)) == (True, True, False)
    assert not providers.move(run_id=second.run_id, epoch=9, connection_id=main.pk)


@pytest.mark.django_db(transaction=True)
def test_racing_claimers_never_start_more_than_the_connection_has_places(connect, hire):
    row = connect(max_concurrent_runs=3)
    agents = [hire(row, name=f"Pia {n}", max_concurrent_runs=9) for n in range(6)]
    for _ in range(5):
        HeartbeatRun.objects.all().delete()
        for agent in agents:
            queue(agent, 4)
        race(claimers=6)
        assert HeartbeatRun.objects.filter(status="running").count() == 3


def race(*, claimers: int) -> None:
    """Claim from so many instances at the same moment, a few times each."""
    start = threading.Barrier(claimers)

    def instance() -> None:
        try:
            mine = workers.register(instance="here", slot=0, pid=1, capacity=250)
            start.wait(10)
            for _ in range(6):
                runs.claim(worker_id=mine, limit=10)
        finally:
            databases.close_all()

    threads = [threading.Thread(target=instance) for _ in range(claimers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
