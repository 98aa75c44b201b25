"""Readiness names what is missing; liveness asks nobody."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.test import Client

from agents import workers
from agents.models import Beacon
from paperclip import health_api

pytestmark = pytest.mark.django_db


@pytest.fixture
def ready(now) -> None:
    """A system with a shift and a canary."""
    workers.register(instance="here", slot=0, pid=1, capacity=1)
    Beacon.objects.create(name="default@here", beat_at=now)


def ask() -> tuple[int, dict]:
    response = Client().get("/api/health/ready")
    if response.status_code == 503:
        assert response["Retry-After"]
        assert set(response.json()) == {"error", "code", "details"}
        assert response.json()["code"] == "not_ready"
        return 503, response.json()["details"]
    return response.status_code, response.json()


def test_a_system_that_works_is_ready(ready):
    status, said = ask()
    assert (status, said["status"], said["shifts"]) == (200, "ok", 1)
    assert all(check["ok"] for check in said["checks"].values())
    assert said["checks"]["canary"]["ageSeconds"] < 60


def test_without_a_live_shift_it_is_not(ready, caplog):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agents_worker SET lease_expires_at = clock_timestamp()")
    status, said = ask()
    assert (status, said["missing"]) == (503, ["shifts"])
    assert said["checks"]["shifts"] == {"ok": False, "live": 0}
    assert not caplog.records, "a probe every few seconds is not news every few seconds"


def test_without_a_background_task_for_minutes_it_is_not(ready, now):
    Beacon.objects.update(beat_at=now - timedelta(seconds=300))
    status, said = ask()
    assert (status, said["missing"]) == (503, ["canary"])
    assert said["checks"]["canary"]["ageSeconds"] >= 300
    Beacon.objects.create(name="default@there", beat_at=now)
    assert ask()[0] == 200, "one instance's cluster is enough"


@pytest.mark.parametrize(("up_for", "status"), [(10, 200), (1_000, 503)])
def test_a_system_that_has_just_started_has_no_canary_yet(ready, monkeypatch, up_for, status):
    Beacon.objects.all().delete()
    monkeypatch.setattr(health_api, "_began", health_api.time.monotonic() - up_for)
    assert ask()[0] == status


def test_with_migrations_waiting_it_is_not_and_looks_again(ready, monkeypatch):
    monkeypatch.setattr(health_api, "_migrated", False)
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM django_migrations WHERE id ="
            " (SELECT max(id) FROM django_migrations WHERE app = 'agents') RETURNING app, name"
        )
        row = cursor.fetchone()
    status, said = ask()
    assert (status, said["checks"]["migrations"]) == (503, {"ok": False, "waiting": 1})
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, now())", row
        )
    assert ask()[0] == 200


def test_without_a_database_it_says_so(monkeypatch):
    def away(*_, **__):
        raise OperationalError("away")

    monkeypatch.setattr(connection, "cursor", away)
    status, said = ask()
    assert (status, said["missing"]) == (503, ["database"])


def test_a_probe_is_two_questions_once_the_migrations_are_known(ready, django_assert_num_queries):
    ask()
    with django_assert_num_queries(2):
        ask()


def test_liveness_asks_nobody(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert Client().get("/api/health").json()["status"] == "ok"
