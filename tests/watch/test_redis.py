"""Redis as django-q2's broker, by one setting: bells and canaries go through a real server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from django.db import connection
from django.utils import timezone

from agents.models import Beacon, HeartbeatRun, Worker
from tests.faults import company as firm
from tests.faults.conftest import processes  # noqa: F401 - a fixture
from tests.faults.processes import Processes, environment, until
from tests.house.instance import ROOT, free_port

SERVER = shutil.which("redis-server")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.timeout(180),
    pytest.mark.skipif(SERVER is None, reason="no redis-server on this machine"),
]


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """A server of the test's own, on loopback, that keeps nothing."""
    port = free_port()
    assert SERVER is not None
    server = subprocess.Popen(
        [SERVER, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    url = f"redis://127.0.0.1:{port}/0"
    client = redis.Redis.from_url(url)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False

    try:
        until(answers, 20, what="a Redis server")
        yield url
    finally:
        client.close()
        server.terminate()
        server.wait(10)


def call(url: str, code: str, processes: Processes) -> str:  # noqa: F811
    """Calls the engine in a process of its own, which reads REDIS_URL at its start."""
    done = subprocess.run(
        [sys.executable, "-c", f"import django; django.setup()\n{code}"],
        cwd=ROOT,
        env=environment(processes.data_dir, REDIS_URL=url, PAPERCLIP_SHIFTS="1"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.django_db(transaction=True)
def test_bells_and_canaries_go_through_redis_and_the_work_is_done(
    processes: Processes,  # noqa: F811
    redis_url: str,
    acme,
) -> None:
    code = """
from paperclip.engine import schedule
schedule.ensure(); schedule.ring(); schedule.ring_canary()
print(schedule.queue_sizes())
"""
    assert call(redis_url, code, processes).strip() == "{'default': 1, 'dispatch': 1}"
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_q_ormq")
        assert cursor.fetchone()[0] == 0, "the database is not the broker"
    common = {"REDIS_URL": redis_url, "PAPERCLIP_SHIFTS": "1", "PAPERCLIP_INSTANCE": "here"}
    processes.start("qcluster", "--skip-checks", Q_CLUSTER_NAME="default", **common)
    processes.start("qcluster", "--skip-checks", Q_CLUSTER_NAME="dispatch", **common)
    live = Worker.objects.filter(lease_expires_at__gt=timezone.now())  # registered since
    until(live.exists, 60, what="a shift")
    until(lambda: Beacon.objects.filter(name="default@here").exists(), 60, what="a canary")
    firm.give(firm.staff(acme, 5, pace=0), 10)
    until(lambda: firm.open_count() == 0, 60, what="the work done")
    assert HeartbeatRun.objects.filter(status="succeeded").count() == 10
