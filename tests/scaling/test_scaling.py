"""The checklist of /scaling: each reading turns amber or red for its own reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from agents import runs
from agents.models import Agent, Beacon, Worker
from companies.ids import first_id_of, new_id
from companies.models import Company, User
from paperclip.scaling import checklist, database, engine, machine
from paperclip.scaling.reading import Level, Reading, graded, listed, size
from tests import factories


def read(readings: object, name: str) -> Reading:
    return {reading.name: reading for reading in readings}[name]  # type: ignore[attr-defined]


def working(capacity: int = 250, running: int = 0) -> Worker:
    now = timezone.now()
    return Worker.objects.create(
        instance="here",
        pid=1,
        capacity=capacity,
        running=running,
        started_at=now,
        beat_at=now,
        lease_expires_at=now + timedelta(minutes=5),
    )


def test_every_reading_says_why_and_a_bad_one_what_to_do(acme: Company, ada: Agent) -> None:
    for group in checklist.groups():
        for reading in group.readings:
            assert reading.value, reading
            assert reading.why, reading
            assert bool(reading.fix) == (reading.level > Level.GREEN), reading


def test_nobody_who_works_is_red(db: None) -> None:
    assert read(engine.readings(), "Shifts").level is Level.RED
    working()
    assert read(engine.readings(), "Shifts").level is Level.GREEN


def test_full_hands_are_seen_before_anybody_waits(db: None) -> None:
    working(capacity=10, running=7)
    assert read(engine.readings(), "Shifts").level is Level.AMBER


def test_only_a_run_that_nothing_holds_back_is_late(acme: Company, ada: Agent, bo: Agent) -> None:
    long_ago = timezone.now() - timedelta(minutes=5)
    factories.run(ada, status="running", started_at=long_ago)
    factories.run(ada, status="queued", not_before=long_ago)
    assert read(engine.readings(), "Queue").level is Level.GREEN, "Ada is at work"
    factories.run(bo, status="queued", not_before=long_ago)
    assert read(engine.readings(), "Queue").level is Level.RED


def test_timers_that_ring_faster_than_runs_end_are_seen(acme: Company, ada: Agent) -> None:
    working(capacity=1)
    now = timezone.now()
    Agent.objects.filter(id=ada.id).update(heartbeat_enabled=True, interval_seconds=30)
    factories.run(ada, status="succeeded", started_at=now - timedelta(seconds=50), finished_at=now)
    reading = read(engine.readings(), "Heartbeats")
    assert reading.level is Level.RED
    assert "2.0 times a minute" in reading.value
    assert "1.7 of 1 places" in reading.value


def test_a_herd_of_timers_is_seen(acme: Company, ada: Agent) -> None:
    at = timezone.now().replace(microsecond=0) + timedelta(minutes=2)
    for number in range(12):
        agent = factories.agent(acme, f"Clerk {number}")
        Agent.objects.filter(id=agent.id).update(heartbeat_enabled=True, next_beat_at=at)
    reading = read(engine.readings(), "Thundering herd")
    assert reading.level is Level.AMBER
    assert "12 of 12" in reading.value


def test_a_company_that_waits_for_itself_is_named(acme: Company, ada: Agent, bo: Agent) -> None:
    Company.objects.filter(id=acme.id).update(max_concurrent_agents=1)
    factories.run(ada, status="running")
    factories.run(bo, status="queued", not_before=timezone.now() - timedelta(minutes=2))
    assert acme.name in read(engine.readings(), "Companies at their cap").value


def test_runs_that_lose_their_holder_are_counted(acme: Company, ada: Agent) -> None:
    now = timezone.now()
    for _ in range(3):
        factories.run(ada, status="lost", started_at=now, finished_at=now)
    assert read(engine.readings(), "Rescued runs").level is Level.RED


def test_what_a_demo_has_made_up_and_a_clean_stop_do_not_count(acme: Company, ada: Agent) -> None:
    now = timezone.now()
    before = now - timedelta(days=2)
    ended = {"status": "lost", "started_at": now, "finished_at": now}
    for _ in range(3):
        factories.run(ada, **ended | {"created_at": before, "finished_at": before})
        factories.run(ada, **ended, message=runs.SHUT_DOWN)
    reading = read(engine.readings(), "Rescued runs")
    assert reading.level is Level.GREEN
    assert reading.value.startswith("0 of 3 runs")
    assert "3 of the last hour" in read(engine.readings(), "Heartbeats").value
    assert "3 starts" in read(engine.readings(), "Queue").value


def test_tasks_that_gave_no_sign_of_life_are_red(db: None) -> None:
    assert read(engine.readings(), "Background tasks").level is Level.RED
    Beacon.objects.create(name="tasks", beat_at=timezone.now())
    assert read(engine.readings(), "Background tasks").level is Level.GREEN


def test_an_index_that_is_gone_is_named(db: None) -> None:
    assert read(database.readings(), "Indexes").level is Level.GREEN
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX agent_due")
    reading = read(database.readings(), "Indexes")
    assert reading.level is Level.RED
    assert "agent_due" in reading.value


def test_months_that_are_not_ready_are_seen(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(database.readings(), "Months ahead").level is Level.GREEN
    later = timezone.now() + timedelta(days=93)
    monkeypatch.setattr(database.timezone, "now", lambda: later)
    assert read(database.readings(), "Months ahead").level is Level.RED


def test_money_without_a_wall_is_amber(acme: Company) -> None:
    reading = read(machine.readings(), "Money")
    assert reading.level is Level.AMBER
    assert "1 companies have no hard limit" in reading.value


def test_what_the_database_refuses_to_tell_is_red(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> object:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")
        yield

    monkeypatch.setattr(checklist, "_GROUPS", (("Work", refuse),))
    (group,) = checklist.groups()
    assert group.readings[0].level is Level.RED
    assert "division by zero" in group.readings[0].value
    assert User.objects.count() == 0, "the connection still works"


def test_the_page_is_for_who_runs_the_instance(olga: User, acme: Company) -> None:
    client = Client()
    assert client.get("/scaling").status_code == 302
    client.force_login(olga)
    assert client.get("/scaling").status_code == 404
    User.objects.filter(id=olga.id).update(is_superuser=True)
    page = client.get("/scaling").content.decode()
    for group in checklist.groups():
        for reading in group.readings:
            assert escape(reading.name) in page


def test_the_page_asks_the_same_however_much_there_is(
    olga: User, acme: Company, ada: Agent, django_assert_max_num_queries: object
) -> None:
    User.objects.filter(id=olga.id).update(is_superuser=True)
    client = Client()
    client.force_login(olga)
    for _ in range(30):
        factories.run(ada, status="succeeded", finished_at=timezone.now())
    with django_assert_max_num_queries(60):  # type: ignore[operator]
        assert client.get("/scaling").status_code == 200


def test_the_doctor_tells_the_same(acme: Company, settings: Any) -> None:
    settings.DATABASE_URL = "given"  # the database of the tests
    out = StringIO()
    with pytest.raises(CommandError, match="checks failed"):
        call_command("doctor", scaling=True, stdout=out)  # no shift works here
    assert "Thundering herd" in out.getvalue()
    assert "Now   Shifts" in out.getvalue()


def test_ids_are_found_by_their_moment(db: None) -> None:
    before, made = timezone.now(), new_id()
    assert first_id_of(before - timedelta(milliseconds=5)) < made
    assert made < first_id_of(timezone.now() + timedelta(seconds=1))
    assert first_id_of(datetime(1970, 1, 1, tzinfo=UTC)).int == 0


def test_words_for_people() -> None:
    assert listed(["a", "b", "c", "d", "e"]) == "a, b, c, d and 1 more"
    assert size(5 * 2**20) == "5 MiB"
    assert [graded(value, amber=2, red=3) for value in (1, 2, 3)] == list(Level)
