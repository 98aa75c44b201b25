"""What the engine asks of django-q2, and what django-q2 is told."""

from __future__ import annotations

import inspect

import pytest
from django.conf import settings
from django_q.brokers import get_broker
from django_q.models import OrmQ, Schedule
from django_q.signing import SignedPackage

from agents.models import Beacon, Worker
from paperclip.engine import schedule, tasks
from tests import factories

pytestmark = pytest.mark.django_db

in_the_database = pytest.mark.skipif(
    bool(settings.REDIS_URL), reason="the broker is Redis; tests/watch/test_redis.py looks there"
)


def test_the_schedules_are_made_once_however_often(db):
    for _ in range(3):
        schedule.ensure()
    names = list(Schedule.objects.order_by("name").values_list("name", flat=True))
    assert names == ["canary", "minute", "night"]


def test_a_schedule_that_was_changed_or_doubled_is_put_right(db):
    schedule.ensure()
    Schedule.objects.filter(name="minute").update(func="os.system", minutes=7)
    Schedule.objects.create(name="canary", func="x")
    Schedule.objects.create(name="old", func="paperclip.engine.tasks.gone")
    schedule.ensure()
    assert Schedule.objects.get(name="minute").func == "paperclip.engine.tasks.minute"
    assert Schedule.objects.count() == 3


def test_schedules_carry_no_arguments_that_could_be_unreadable(db):
    schedule.ensure()
    for one in Schedule.objects.all():
        assert not one.args
        assert not one.kwargs


@in_the_database
def test_bells_for_shifts_wait_and_do_not_pile_up(db):
    for _ in range(5):
        schedule.ring()
    waiting = OrmQ.objects.filter(key="dispatch")
    assert waiting.count() == settings.SHIFTS
    assert SignedPackage.loads(waiting.first().payload)["func"] == "paperclip.engine.tasks.shift"
    assert get_broker("dispatch").queue_size() == settings.SHIFTS


@in_the_database
def test_bells_that_a_killed_worker_had_taken_are_forgotten_at_the_next_start(db):
    schedule.ring()
    OrmQ.objects.update(lock="2100-01-01T00:00Z")
    schedule.ensure()
    assert OrmQ.objects.filter(key="dispatch").count() == settings.SHIFTS
    assert not OrmQ.objects.filter(lock__year=2100).exists()


@pytest.mark.parametrize("name", ["shift", "minute", "night", "canary"])
def test_a_task_is_synchronous_and_takes_nothing(name):
    task = getattr(tasks, name)
    assert not inspect.iscoroutinefunction(task)
    assert not inspect.signature(task).parameters


def test_the_canary_leaves_a_mark(db):
    """One an instance; those of instances that are gone are forgotten."""
    Beacon.objects.create(name="default@gone", beat_at="2020-01-01T00:00Z")
    assert tasks.canary() is None
    assert tasks.canary() is None
    assert Beacon.objects.get().name == f"default@{schedule.instance()[-50:]}"


@in_the_database
def test_the_minute_rings_for_missing_shifts(db):
    tasks.minute()
    assert OrmQ.objects.filter(key="dispatch").exists()


def test_a_drain_reaches_the_living_workers_of_one_instance(monkeypatch):
    mine, other = factories.worker(), factories.worker()
    Worker.objects.filter(pk=mine.pk).update(instance="me")
    monkeypatch.setenv("PAPERCLIP_INSTANCE", "me")
    assert schedule.request_drain() == 1
    mine.refresh_from_db()
    other.refresh_from_db()
    assert (mine.draining, other.draining) == (True, False)


def test_an_instance_has_a_name_of_its_own(monkeypatch, settings, tmp_path):
    monkeypatch.delenv("PAPERCLIP_INSTANCE", raising=False)
    first = schedule.instance()
    assert first == schedule.instance()
    settings.DATA_DIR = tmp_path / "other"
    assert schedule.instance() != first
