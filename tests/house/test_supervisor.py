"""The supervisor's hand on its children, tried on small ones."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from paperclip.supervisor import Child, Supervisor, kill_strays, kill_tree
from tests.house.instance import wait_for

pytestmark = pytest.mark.faults

SLEEP = "import time; time.sleep(60)"
# Starts a grandchild in a session of its own and tells its number.
WITH_GRANDCHILD = (
    "import subprocess, sys, time;"
    f"p = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True);"
    "print(p.pid, flush=True); time.sleep(60)"
)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """Gives pytest its signal handlers back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    hangup = signal.getsignal(signal.SIGHUP)
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)
    signal.signal(signal.SIGHUP, hangup)


def run_until(parent: Supervisor, condition: Callable[[], bool]) -> None:
    """Runs the supervisor until the condition holds, or for 20 s."""

    def end() -> None:
        wait_for(condition)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=end)
    thread.start()
    parent.run()
    thread.join()


def test_a_child_that_ends_is_started_again_and_the_operator_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    marks = tmp_path / "marks"
    code = f"open({str(marks)!r}, 'a').write('x')"

    with Supervisor(cwd=tmp_path, say=said.append) as parent:
        parent.add(Child(name="brief", argv=python(code)))
        run_until(parent, lambda: marks.exists() and len(marks.read_text()) >= 2)

    assert len(marks.read_text()) >= 2
    assert "brief ended (exit code 0); starting it again in 0.5 s" in said[0]


def test_what_a_child_prints_carries_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = f"print('hello'); print('no line end', end='', flush=True); {SLEEP}"
    with Supervisor(cwd=tmp_path, say=print) as parent:
        child = Child(name="talker", argv=python(code))
        parent.add(child)
        run_until(parent, lambda: bool(child._rest))

    lines = capsys.readouterr().err.splitlines()
    assert "talker   │ hello" in lines
    assert "talker   │ no line end" in lines


def test_a_child_that_does_not_listen_is_killed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paperclip.supervisor.STOP_SECONDS", 0.5)
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    with Supervisor(cwd=tmp_path, say=print) as parent:
        child = Child(name="deaf", argv=python(code + SLEEP))
        parent.add(child)
        assert child.process is not None
        pid = child.process.pid
        run_until(parent, lambda: psutil.Process(pid).status() == psutil.STATUS_SLEEPING)

    assert not psutil.pid_exists(pid)


def test_a_child_that_ails_is_replaced_with_all_its_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("paperclip.supervisor._WATCH_SECONDS", 0)
    said: list[str] = []
    with Supervisor(cwd=tmp_path, say=said.append) as parent:
        child = Child(name="ill", argv=python(WITH_GRANDCHILD))
        parent.add(child)
        assert child.process is not None
        first = child.process.pid
        families: list[list[psutil.Process]] = []

        def ails(_: float) -> str | None:
            assert child.process is not None
            if child.process.pid != first or families:
                return None
            family = psutil.Process(first).children(recursive=True)
            if not family:
                return None
            families.append(family)
            return "does nothing"

        child.ailing = ails
        run_until(
            parent,
            lambda: len(said) > 1 and child.process is not None and not psutil.pid_exists(first),
        )

    assert said[0] == "ill does nothing; starting it again"
    _, alive = psutil.wait_procs(families[0], timeout=5)
    assert alive == []


def test_killing_a_tree_reaches_other_sessions() -> None:
    with subprocess.Popen(python(WITH_GRANDCHILD), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        grandchild = psutil.Process(int(child.stdout.readline()))

        kill_tree(child.pid)

        grandchild.wait(5)
    assert child.returncode == -signal.SIGKILL


def test_strays_are_known_by_their_mark_only() -> None:
    env = os.environ | {"PAPERCLIP_UP": "/some/folder"}
    with (
        subprocess.Popen(python(SLEEP), env=env) as stray,
        subprocess.Popen(python(SLEEP), env=env | {"PAPERCLIP_UP": "/some/folder2"}) as other,
    ):
        assert wait_for(lambda: all(_settled(process.pid) for process in (stray, other)))

        try:
            assert kill_strays("PAPERCLIP_UP", "/some/folder") == 1
            assert not psutil.pid_exists(stray.pid)
            assert other.poll() is None
        finally:
            other.kill()


def _settled(pid: int) -> bool:
    """Whether the process runs its own program, with its own environment."""
    return "PAPERCLIP_UP" in psutil.Process(pid).environ()
