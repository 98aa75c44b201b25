"""django-q2's messages twice, never, and again while the first is being worked on."""

from __future__ import annotations

import threading
import time

import pytest
from django.conf import settings as ours
from django.db import connections
from django.utils import timezone
from django_q.models import OrmQ
from django_q.tasks import async_task

from agents.models import Agent, HeartbeatRun, Worker
from paperclip import watchdog
from paperclip.engine import schedule
from tests import factories
from tests.faults import company as firm
from tests.faults.processes import Processes, until
from tests.house.instance import database_address

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

in_the_database = pytest.mark.skipif(
    bool(ours.REDIS_URL), reason="the broker is Redis: its messages are no rows to delete or date"
)


@pytest.fixture(autouse=True)
def one_shift(settings) -> None:
    settings.SHIFTS = 1


def all_ended() -> bool:
    return firm.open_count() == 0 and firm.running() == 0


def alive() -> int:
    return Worker.objects.filter(lease_expires_at__gt=timezone.now(), draining=False).count()


@pytest.mark.fault("T5", "every message is delivered ten times")
def test_messages_that_come_ten_times(processes: Processes, acme, figures):
    """Ten bells for one shift, ten minutes of one minute: one shift, one run a slot."""
    now = timezone.now()
    agents: list[Agent] = firm.quick_staff(acme, 5)
    for agent in agents:
        factories.issue(acme, assignee=agent)
    Agent.objects.all().update(heartbeat_enabled=True, next_beat_at=now, interval_seconds=3_600)
    for _ in range(10):
        async_task("paperclip.engine.tasks.shift", cluster=schedule.CLUSTER)
        async_task("paperclip.engine.tasks.minute", cluster="default")
    for _ in range(2):
        processes.cluster()
        processes.start("qcluster", "--skip-checks", Q_CLUSTER_NAME="default", **QUICK)
    until(lambda: alive() == 1, 60, what="a shift")
    until(lambda: HeartbeatRun.objects.count() >= 5, 60, what="a run an agent")
    until(all_ended, 60, what="all ended")
    until(lambda: not OrmQ.objects.filter(key="default").exists(), 60, what="all answered")
    figures.update(firm.check_all_done_once(), shifts=Worker.objects.count(), runs=5)
    assert Worker.objects.count() == 1
    assert HeartbeatRun.objects.count() == 5


QUICK = {"DJANGO_SETTINGS_MODULE": "tests.faults.settings", "PAPERCLIP_SUPERVISED": "1"}


@in_the_database
@pytest.mark.fault("T6", "messages are deleted before anybody has read them")
def test_messages_that_are_lost(processes: Processes, acme, settings, figures):
    """The queue is emptied over and over; the work goes on, and a dead shift is followed."""
    settings.DIRECT_DSN = database_address()
    agents = firm.quick_staff(acme, 5, runs_each=2)
    watchdog.keep_bells_waiting()
    processes.cluster()
    until(lambda: alive() == 1, 60, what="a shift")
    over, deleted = threading.Event(), []

    def lose() -> None:
        while not over.wait(0.2):
            deleted.append(OrmQ.objects.all().delete()[0])
        connections.close_all()

    thief = threading.Thread(target=lose, daemon=True)
    thief.start()
    try:
        firm.give_many(agents, 60)
        async_task("paperclip.engine.tasks.minute", cluster="default")
        took = until(all_ended, 60, what="all ended")
    finally:
        over.set()
        thief.join()
    figures.update(
        firm.check_all_done_once(), deleted=sum(deleted), seconds_for_sixty=round(took, 1)
    )
    assert sum(deleted) > 0


@in_the_database
@pytest.mark.fault("T7", "a message is delivered again while the first is being worked on")
def test_a_message_that_comes_again_too_early(processes: Processes, acme, figures):
    """The bell of a shift that works for longer than the queue's patience rings for others."""
    firm.give_many(firm.quick_staff(acme, 4, words=80, seconds=0.1), 4)
    schedule.ring()
    for _ in range(2):
        processes.cluster(TEST_QUEUE_RETRY="2")
    until(lambda: alive() == 1, 60, what="a shift")
    rung_again = 0
    seen = OrmQ.objects.filter(key=schedule.CLUSTER).values_list("lock", flat=True).first()
    while not all_ended():
        lock = OrmQ.objects.filter(key=schedule.CLUSTER).values_list("lock", flat=True).first()
        rung_again += lock is not None and lock != seen
        seen = lock
        time.sleep(0.1)
    figures.update(firm.check_all_done_once(), rung_again=rung_again, shifts=Worker.objects.count())
    assert rung_again >= 1
    assert Worker.objects.count() == 1
    assert HeartbeatRun.objects.count() == 4
