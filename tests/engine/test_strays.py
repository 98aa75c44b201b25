"""Programs that have outlived their run are ended, and nobody else."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from agents.adapters.proctree import MARK, PROCESS_MARK
from agents.models import HeartbeatRun
from paperclip.engine import strays
from tests import factories

pytestmark = pytest.mark.django_db

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def sleeping(**env: str) -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(["/bin/sleep", "60"], env=env, start_new_session=True, cwd="/")
        )
        return started[-1]

    yield sleeping
    for process in started:
        process.kill()
        process.wait(10)


def ended(pia, now, status: str = "failed", **ago: float) -> HeartbeatRun:
    return factories.run(pia, status=status, finished_at=now - timedelta(**ago))


def test_a_program_of_a_run_that_is_over_is_ended(pia, now, start):
    run = ended(pia, now, minutes=1)
    process = start(**{PROCESS_MARK: str(run.pk)})

    assert strays.end() == 1
    assert process.wait(10) == -9
    assert strays.end() == 0


@pytest.mark.parametrize("status", ["lost", "unknown"])
def test_one_that_lost_its_holder_is_not_waited_for(pia, now, start, status):
    """What repeats its run would work beside it."""
    process = start(**{PROCESS_MARK: str(ended(pia, now, status, seconds=0).pk)})

    assert strays.end() == 1
    assert process.wait(10) == -9


def test_those_of_a_run_that_goes_on_or_has_just_ended_are_left(pia, now, start):
    going_on = start(**{PROCESS_MARK: str(factories.running(pia).pk)})
    ending = start(**{PROCESS_MARK: str(ended(pia, now, seconds=5).pk)})

    assert strays.end() == 0
    assert going_on.poll() is None
    assert ending.poll() is None


def test_a_run_of_another_database_is_nobody_we_know(pia, start):
    other = start(**{PROCESS_MARK: str(uuid.uuid4())})

    assert strays.end() == 0
    assert other.poll() is None


@pytest.mark.parametrize("mark", ["", "none", "0", "\x01" * 5_000])
def test_a_mark_that_is_none_is_left(pia, start, mark):
    process = start(**{PROCESS_MARK: mark})

    assert strays.end() == 0
    assert process.poll() is None


def test_a_persons_shell_that_looks_at_an_ended_run_is_left(pia, now, start):
    """They set what the documentation of the protocol names."""
    shell = start(**{MARK: str(ended(pia, now, minutes=1).pk)})

    assert strays.end() == 0
    assert shell.poll() is None
