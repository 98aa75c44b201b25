"""A shift that is certainly gone is not waited for; one that may live is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from agents import runs, workers
from agents.models import HeartbeatRun, Worker
from paperclip.engine import presence, shift
from tests import factories
from tests.engine.conftest import until
from tests.engine.puppet import finish

pytestmark = pytest.mark.django_db

LONG = 3_600.0  # a lease that ends by no test
_NEIGHBOUR = """
import sys, time, uuid
from paperclip.engine.presence import Presence
here = Presence()
here.begin()
here.name(uuid.UUID(sys.argv[1]))
print("here", flush=True)
time.sleep(120)
"""

Neighbour = Callable[[], tuple[uuid.UUID, subprocess.Popen[bytes]]]


@pytest.fixture
def neighbour(monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> Iterator[Neighbour]:
    """A worker in a process of its own."""
    monkeypatch.setattr(workers, "LEASE_SECONDS", LONG)
    started: list[subprocess.Popen[bytes]] = []

    def start() -> tuple[uuid.UUID, subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            [sys.executable, "-c", _NEIGHBOUR, str(worker_id := registered())],
            cwd=settings.BASE_DIR,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "paperclip.settings",
                "PAPERCLIP_DATA_DIR": str(data_dir),
            },
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        return worker_id, process

    yield start
    for process in started:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


def registered() -> uuid.UUID:
    return workers.register(instance="here", slot=0, pid=os.getpid(), capacity=10)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(10)


def files(data_dir: Path) -> list[str]:
    return [path.name for path in (data_dir / "shifts").glob("*")]


def test_what_a_killed_process_carried_is_lost_before_its_lease_ends(pia, neighbour):
    worker_id, process = neighbour()
    run = factories.run(pia, status="running", worker_id=worker_id, epoch=1)
    assert runs.expired() == []
    kill(process)

    assert presence.anyone_gone()
    assert presence.bury() == [worker_id]
    assert runs.expired() == [(run.pk, 1)]
    assert not presence.anyone_gone()
    assert presence.bury() == []


def test_a_frozen_process_may_wake_up_and_is_left_to_its_lease(neighbour):
    _, process = neighbour()
    os.kill(process.pid, signal.SIGSTOP)

    assert not presence.anyone_gone()
    assert presence.bury() == []
    kill(process)
    assert len(presence.bury()) == 1


def test_its_file_stays_until_the_database_knows(neighbour, monkeypatch):
    worker_id, process = neighbour()
    kill(process)
    with monkeypatch.context() as patch:
        patch.setattr(workers, "bury", away)
        with pytest.raises(DatabaseError):
            presence.bury()

    assert presence.bury() == [worker_id]


def away(**_: object) -> bool:
    raise DatabaseError("away")


def test_one_that_is_being_buried_by_another_is_left_to_it(neighbour):
    _, process = neighbour()
    kill(process)
    with presence._locked(next((presence.folder()).iterdir())) as ours:
        assert ours
        assert not presence.anyone_gone()
        assert presence.bury() == []


def test_a_worker_that_has_ended_is_not_buried(neighbour, data_dir):
    worker_id, process = neighbour()
    workers.retire(worker_id=worker_id)
    kill(process)

    assert presence.bury() == []
    assert files(data_dir) == []


def test_its_own_end_leaves_nothing(data_dir):
    here = presence.Presence()
    here.begin()
    here.name(uuid.uuid4())
    assert len(files(data_dir)) == 1
    assert not presence.anyone_gone()
    here.end()

    assert files(data_dir) == []


def test_another_machines_shifts_are_not_judged(neighbour, data_dir, monkeypatch):
    """Two machines may share the folder, but not their locks."""
    _, process = neighbour()
    kill(process)
    monkeypatch.setattr(presence, "_boot", lambda: str(uuid.uuid4()))

    assert presence.bury() == []
    assert len(files(data_dir)) == 1
    old = timezone.now().timestamp() - presence.FORGOTTEN_SECONDS - 1
    os.utime(next(presence.folder().iterdir()), (old, old))
    assert presence.bury() == []
    assert files(data_dir) == []


def test_nobody_is_judged_by_a_draft_or_by_a_strange_file(data_dir):
    presence.folder().mkdir()
    draft = presence.folder() / f"{uuid.uuid4()}.draft.{presence._boot()}"
    for path in (draft, presence.folder() / "notes.worker.txt"):
        path.touch()

    assert presence.bury() == []
    assert len(files(data_dir)) == 2
    old = timezone.now().timestamp() - presence.DRAFT_SECONDS - 1
    os.utime(draft, (old, old))
    assert presence.bury() == []
    assert files(data_dir) == ["notes.worker.txt"]


def test_without_a_place_for_the_file_the_lease_does(data_dir, caplog):
    (data_dir / "shifts").write_text("in the way")
    here = presence.Presence()
    here.begin()
    here.name(uuid.uuid4())
    here.end()

    assert "its lease will do" in caplog.text
    assert presence.bury() == []


def test_a_file_that_may_not_be_followed_is_left(data_dir, tmp_path):
    presence.folder().mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    (presence.folder() / f"{uuid.uuid4()}.worker.{presence._boot()}").symlink_to(elsewhere)

    assert presence.bury() == []
    assert elsewhere.read_text() == "kept"


@pytest.mark.django_db(transaction=True)
def test_a_shift_takes_over_from_a_killed_one_at_once(during, neighbour, puppet, pia, monkeypatch):
    """Without a round of its own in between, and long before the lease's end."""
    monkeypatch.setattr(shift, "ROUND_SECONDS", LONG)
    puppet.play = finish()
    worker_id, process = neighbour()
    issue = factories.issue(pia.company, assignee=pia)
    run = factories.run(pia, issue, status="running", worker_id=worker_id, epoch=1)

    async def watch(one: shift.Shift) -> None:
        await until(lambda: Worker.objects.count() == 2)
        kill(process)
        await until(lambda: HeartbeatRun.objects.filter(retry_of=run, status="succeeded").exists())

    assert during(watch) == "drained"
    run.refresh_from_db()
    assert (run.status, run.epoch) == ("lost", 2)
    assert Worker.objects.get(pk=worker_id).lease_expires_at < timezone.now()


@pytest.mark.django_db(transaction=True)
def test_a_shift_is_present_until_its_end(during, data_dir):
    seen = []

    async def watch(one: shift.Shift) -> None:
        await until(lambda: Worker.objects.filter(lease_expires_at__gt=timezone.now()).exists())
        seen.extend(files(data_dir))
        assert not presence.anyone_gone()

    during(watch)
    worker = Worker.objects.get()
    assert seen == [f"{worker.pk}.worker.{presence._boot()}"]
    assert files(data_dir) == []
    assert worker.lease_expires_at < timezone.now() + timedelta(seconds=1)
