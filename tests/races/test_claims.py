"""Claims against claims, pauses, caps and ends: exact, whoever is faster."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import Counter
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction

from agents import claims, roster, runs, workers
from agents.models import Agent, HeartbeatRun
from companies.activity import SYSTEM
from companies.errors import Conflict
from companies.models import Company
from tests import factories
from tests.house.instance import database_address
from tests.races.threads import many, together

pytestmark = pytest.mark.django_db(transaction=True)


def worker(instance: str = "here") -> uuid.UUID:
    return workers.register(instance=instance, slot=0, pid=1, capacity=100)


def queue(agent: Agent, count: int) -> None:
    for _ in range(count):
        factories.run(agent, factories.issue(agent.company, assignee=agent))


def drain(worker_id: uuid.UUID, taken: list[uuid.UUID], limit: int) -> None:
    """Claim and finish until nothing is left."""
    idle = 0
    while idle < 20:
        batch = runs.claim(worker_id=worker_id, limit=limit)
        for claimed in batch:
            taken.append(claimed.run_id)
            assert runs.finish(run_id=claimed.run_id, epoch=claimed.epoch, status="succeeded")
        idle = 0 if batch else idle + 1
        if not batch:
            time.sleep(0.01)


class Sampler(threading.Thread):
    """Looks again and again how many run, in one snapshot."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.most_of_agent: Counter[uuid.UUID] = Counter()
        self.most_of_company: Counter[uuid.UUID] = Counter()
        self.most_of_issue = 0
        self.samples = 0

    def run(self) -> None:
        while not self.over.is_set():
            running = list(
                HeartbeatRun.objects.filter(status="running").values_list(
                    "company_id", "agent_id", "issue_id"
                )
            )
            self._keep(self.most_of_agent, Counter(agent for _, agent, _ in running))
            pairs = {(company, agent) for company, agent, _ in running}
            self._keep(self.most_of_company, Counter(company for company, _ in pairs))
            issues = Counter(issue for *_, issue in running)
            self.most_of_issue = max([self.most_of_issue, *issues.values()])
            self.samples += 1
        connections.close_all()

    @staticmethod
    def _keep(most: Counter[uuid.UUID], now: Counter[uuid.UUID]) -> None:
        for key, count in now.items():
            most[key] = max(most[key], count)


@pytest.mark.fault("T28", "six claimers, ten agents, two companies")
def test_every_run_is_claimed_once_and_no_cap_is_ever_exceeded(acme, globex):
    Company.objects.filter(pk=acme.pk).update(max_concurrent_agents=3)
    Company.objects.filter(pk=globex.pk).update(max_concurrent_agents=2)
    agents = [factories.agent(acme, max_concurrent_runs=1 + n % 3) for n in range(6)]
    agents += [factories.agent(globex, max_concurrent_runs=2) for _ in range(4)]
    for agent in agents:
        queue(agent, 12)
    sampler = Sampler()
    sampler.start()
    taken: list[list[uuid.UUID]] = [[] for _ in range(6)]
    many(6, lambda n: drain(worker(f"host {n % 3}"), taken[n], limit=1 + n))
    sampler.over.set()
    sampler.join()
    everything = [run for part in taken for run in part]
    assert len(everything) == len(set(everything)) == 120
    assert HeartbeatRun.objects.filter(status="succeeded", epoch=2).count() == 120
    assert sampler.samples > 10
    assert sampler.most_of_company[acme.pk] <= 3
    assert sampler.most_of_company[globex.pk] <= 2
    assert sampler.most_of_issue <= 1
    for agent in agents:
        assert sampler.most_of_agent[agent.pk] <= agent.max_concurrent_runs


@pytest.mark.fault("T28", "sixty pauses race with claims")
def test_a_pause_that_races_with_claims_never_leaks(acme):
    """Once the pause has returned, nothing new starts. Sixty rounds."""
    worker_id = worker()
    leaks = 0
    for _ in range(60):
        agent = factories.agent(acme, max_concurrent_runs=5)
        queue(agent, 2)

        def running(agent: Agent = agent) -> int:
            return HeartbeatRun.objects.filter(agent=agent, status="running").count()

        def pause(agent: Agent = agent, running: Any = running) -> int:
            roster.pause(agent=agent, actor=SYSTEM)
            return running()

        def claim() -> None:
            for _ in range(3):
                runs.claim(worker_id=worker_id, limit=10)

        at_return, *_ = together(pause, claim, claim)
        leaks += running() > at_return
        HeartbeatRun.objects.filter(agent=agent).delete()
    assert leaks == 0


def test_claimers_at_the_same_moment_share_the_last_free_place(acme):
    Company.objects.filter(pk=acme.pk).update(max_concurrent_agents=1)
    for _ in range(10):
        agents = [factories.agent(acme) for _ in range(4)]
        for agent in agents:
            queue(agent, 1)
        ids = [worker(f"host {n % 3}") for n in range(5)]
        batches = many(5, lambda n, ids=ids: runs.claim(worker_id=ids[n], limit=10))
        assert sum(map(len, batches)) <= 1
        HeartbeatRun.objects.all().delete()


def test_two_agents_called_to_one_issue_never_run_at_once(acme, issue):
    for _ in range(15):
        for agent in [factories.agent(acme) for _ in range(3)]:
            factories.run(agent, issue, reason="issue_comment_mentioned")
        ids = [worker(f"host {n % 3}") for n in range(4)]
        batches = many(4, lambda n, ids=ids: runs.claim(worker_id=ids[n], limit=10))
        assert sum(map(len, batches)) == 1
        HeartbeatRun.objects.all().delete()


def test_an_end_is_an_end_whoever_is_faster(acme, ada):
    """Finish, cancel and a second finish at once: one of them ends the run, once."""
    for _ in range(25):
        issue = factories.issue(acme, assignee=ada)
        run = factories.running(ada, issue)

        def finish(status: str, run: HeartbeatRun = run) -> bool:
            return runs.finish(run_id=run.pk, epoch=1, status=status)

        ends = together(
            lambda: finish("succeeded"),
            lambda: finish("failed"),
            lambda run=run: runs.cancel(run=run, actor=SYSTEM),
        )
        run.refresh_from_db()
        assert sorted(ends[:2]) == [False, True]
        assert run.epoch == 2
        assert run.status == ("succeeded" if ends[0] else "failed")


def test_a_cancelled_run_does_not_start_and_a_started_one_is_told(acme, ada):
    worker_id = worker()
    for _ in range(25):
        run = factories.run(ada, factories.issue(acme, assignee=ada))
        batch, said = together(
            lambda: runs.claim(worker_id=worker_id, limit=1),
            lambda run=run: runs.cancel(run=run, actor=SYSTEM),
        )
        run.refresh_from_db()
        if batch:
            assert (run.status, said) == ("running", "running")
            assert run.cancel_requested_at is not None
            runs.finish(run_id=run.pk, epoch=run.epoch, status="cancelled")
        else:
            assert (run.status, said) == ("cancelled", "cancelled")


def test_letting_an_agent_go_in_the_middle_of_everything_deadlocks_nobody(acme):
    worker_id = worker()
    for _ in range(10):
        agent = factories.agent(acme, max_concurrent_runs=5)
        queue(agent, 4)

        def work() -> None:
            for claimed in runs.claim(worker_id=worker_id, limit=5):
                runs.finish(
                    run_id=claimed.run_id, epoch=claimed.epoch, status="failed", code="refused"
                )

        def pause(agent: Agent = agent) -> None:
            with contextlib.suppress(Conflict):  # let go already
                roster.pause(agent=agent, actor=SYSTEM, stop_running=True)

        together(
            work,
            work,
            pause,
            lambda agent=agent: roster.terminate(agent=agent, actor=SYSTEM),
        )
        assert not HeartbeatRun.objects.filter(agent=agent, status="queued").exists()


def test_a_claim_does_not_wait_for_a_busy_row(acme, ada, bo):
    """Somebody holds an agent's row: its work waits, the others' does not."""
    queue(ada, 1)
    queue(bo, 1)
    worker_id = worker()
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Agent.objects.select_for_update().get(pk=ada.pk)
            locked.set()
            done.wait(20)

    def claim() -> list[uuid.UUID]:
        locked.wait(20)
        try:
            return [c.agent_id for c in runs.claim(worker_id=worker_id, limit=10)]
        finally:
            done.set()

    _, claimed = together(hold, claim)
    assert claimed == [bo.pk]


def test_an_instance_never_has_more_of_a_kind_than_it_can_bear(acme, globex):
    """Two instances, two claimers in each, one kind that is heavy: two at once an instance."""
    for company in (acme, globex):
        Company.objects.filter(pk=company.pk).update(max_concurrent_agents=50)
        for _ in range(6):
            queue(factories.agent(company, max_concurrent_runs=3, adapter_type="process"), 2)
    light = factories.agent(acme, max_concurrent_runs=9)
    queue(light, 5)
    ids = [worker(f"host {n % 2}") for n in range(4)]
    most = {"process": 2}

    def heavy() -> Counter[str]:
        running = HeartbeatRun.objects.filter(status="running", adapter_type="process")
        return Counter(running.values_list("worker__instance", flat=True))

    for _ in range(3):
        many(
            4,
            lambda n: [runs.claim(worker_id=ids[n], limit=10, most_of_kind=most) for _ in range(3)],
        )
        assert max(heavy().values()) <= 2
        # Rows in another claimer's hands are passed over: who got none may now.
        for worker_id in ids[:2]:
            runs.claim(worker_id=worker_id, limit=10, most_of_kind=most)
        assert heavy() == {"host 0": 2, "host 1": 2}
        for run in HeartbeatRun.objects.filter(status="running"):
            runs.finish(run_id=run.pk, epoch=run.epoch, status="succeeded")
    assert HeartbeatRun.objects.filter(agent=light, status="succeeded").count() == 5


def test_a_claimer_that_stands_still_stops_its_own_instance_only(acme, ada, monkeypatch):
    """It holds the turn of its instance: a colleague goes away empty and is told to come again,
    another instance works on."""
    monkeypatch.setattr(claims, "PATIENCE_SECONDS", 0.2)
    queue(ada, 1)
    here, colleague, there = worker(), worker(), worker("there")
    holding, done = threading.Event(), threading.Event()

    def stand_still() -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(claims.gate.TURN.format(patience_ms=0, worker_id=here))
            holding.set()
            done.wait(20)

    def work() -> tuple[runs.Batch, runs.Batch]:
        holding.wait(20)
        try:
            return (
                runs.claim(worker_id=colleague, limit=10),
                runs.claim(worker_id=there, limit=10),
            )
        finally:
            done.set()

    _, (refused, batch) = together(stand_still, work)
    assert (len(refused), refused.more) == (0, True)
    assert [claimed.agent_id for claimed in batch] == [ada.pk]


def test_a_transaction_left_open_holds_up_nobody_else_and_is_ended(acme, globex):
    """It has an agent's and the company's row: the other company works on meanwhile, and when the
    server has ended it, what it held up goes on."""
    mine, theirs = factories.agent(acme), factories.agent(globex)
    queue(mine, 1)
    queue(theirs, 1)
    worker_id = worker()
    connection.close()
    with psycopg.connect(database_address()) as left_open:
        left_open.execute("SET idle_in_transaction_session_timeout = '1500ms'")
        left_open.execute("SELECT 1 FROM companies_company WHERE id = %s FOR UPDATE", [acme.pk])
        left_open.execute("SELECT 1 FROM agents_agent WHERE id = %s FOR UPDATE", [mine.pk])
        meanwhile = runs.claim(worker_id=worker_id, limit=10)
        assert [claimed.agent_id for claimed in meanwhile] == [theirs.pk]
        taken: list[runs.Claimed] = []
        deadline = time.monotonic() + 30
        while not taken and time.monotonic() < deadline:
            taken = list(runs.claim(worker_id=worker_id, limit=10))
        assert [claimed.agent_id for claimed in taken] == [mine.pk]
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            left_open.execute("SELECT 1")
        left_open.close()
