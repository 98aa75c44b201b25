"""A cluster that lives and does not work is started again: django-q2 does not notice it itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from paperclip import postgres
from tests.house.conftest import data_dir  # noqa: F401 - a fixture
from tests.house.instance import Instance, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]

SILENCE = 30


@pytest.fixture
def watched(data_dir: Path) -> Iterator[Instance]:  # noqa: F811
    """An instance whose clusters may be silent for half a minute only."""
    limits = {"PAPERCLIP_WATCHDOG_SECONDS": str(SILENCE), "PAPERCLIP_SHIFTS": "1"}
    instance = Instance(data_dir, **limits)
    try:
        yield instance.start()
    finally:
        instance.stop()


def canary_age(instance: Instance) -> float:
    """Seconds since the last canary came through."""
    dsn = postgres.dsn(instance.data_dir / "pg", "paperclip")
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT extract(epoch FROM clock_timestamp() - max(beat_at))::float8 FROM agents_beacon"
        ).fetchone()
    return row[0] if row and row[0] is not None else float("inf")


def tasks_cluster(instance: Instance) -> psutil.Process:
    """The parent process of the cluster for short tasks."""
    for process in instance.named("qcluster"):
        if process.environ().get("Q_CLUSTER_NAME") == "default":
            parent = process.parent()
            if parent is not None and "qcluster" not in parent.cmdline():
                return process
    raise AssertionError("there is no cluster for short tasks")


def test_a_cluster_that_does_not_work_comes_back(watched: Instance) -> None:
    assert wait_for(lambda: canary_age(watched) < SILENCE, 150), watched.output()

    # Alive for whoever asks the process table, and at work for nobody.
    parent = tasks_cluster(watched)
    family = [parent, *parent.children(recursive=True)]
    for process in family:
        process.suspend()
    assert wait_for(lambda: canary_age(watched) > SILENCE, 60)
    assert wait_for(lambda: canary_age(watched) < SILENCE, 150), watched.output()
    assert "tasks has finished no task" in watched.output()
    _, left = psutil.wait_procs(family, timeout=10)
    assert left == []

    # Workers that die while they wait take the lock of the queue along; their successors get
    # nothing. Where django-q2 copes with it, nobody has to help.
    (sentinel,) = tasks_cluster(watched).children()
    for worker in sentinel.children():
        os.kill(worker.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    time.sleep(2)
    assert wait_for(lambda: canary_age(watched) < time.monotonic() - killed_at - 1, 150), (
        watched.output()
    )
