"""A program runs in bounds, reports by the protocol and leaves nothing behind."""

import asyncio
import dataclasses
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

from agents import adapters
from agents.adapters.base import Brief, Check, Code, Done, Text, Usage
from tests.adapters.conftest import Played, make_brief, play

EXAMPLE = Path(__file__).parents[2] / "examples" / "weekly_changes.py"
PROCESS = adapters.get("process")

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
print("started", flush=True)
time.sleep(600)
"""
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
open(sys.argv[1], "w").write(str(os.getpid()))
print("started", flush=True)
time.sleep(600)
"""
HOLDER = """
import os, sys, time
if os.fork() == 0:
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
print('{"summary": "parent is done"}', flush=True)
"""


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Brief]:
    def make(code: str, *args: str, **config: Any) -> Brief:
        run_dir = tmp_path / "run"
        run_dir.mkdir(mode=0o700, exist_ok=True)
        settings = {"command": sys.executable, "args": ["-c", code, *args], **config}
        return make_brief(
            config=adapters.validate("process", settings),
            run_id=f"run-{tmp_path.name}",
            run_dir=str(run_dir),
            payload={"issue": "ACM-1"},
            api_url="http://127.0.0.1:8000",
            api_key="the-run-token",
            env={"PAPERCLIP_LINKED_ISSUE_IDS": "a,b"},
        )

    return make


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def cancel_when(brief: Brief, text: str) -> None:
    """Run it, and cancel once it printed `text`."""

    async def work() -> None:
        seen = asyncio.Event()

        async def listen() -> None:
            async with aclosing(PROCESS.run(brief)) as events:
                async for event in events:
                    if isinstance(event, Text) and text in event.text:
                        seen.set()

        task = asyncio.create_task(listen())
        await asyncio.wait_for(seen.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())


# --- results ---


def test_the_last_json_line_is_the_result(make: Callable[..., Brief]) -> None:
    report = {
        "summary": "Counted.",
        "status": "done",
        "usage": {"model": "m", "inputTokens": 10, "cachedInputTokens": 4, "outputTokens": 2},
        "cost": 0.0125,
        "session": {"id": "s-1"},
        "unknown": 1,
    }
    played = play(PROCESS, make(f"print('hello'); print({json.dumps(report)!r}); print()"))
    assert played.error is None
    assert played.text("stdout").startswith("hello\n")
    assert played.done == Done(summary="Counted.", status="done", session_id="s-1")
    (usage,) = played.usages
    assert usage == Usage(
        call=1,
        provider=os.path.basename(sys.executable),
        model="m",
        input_tokens=10,
        cache_read_tokens=4,
        output_tokens=2,
        cost_micros=12_500,
    )


def test_the_result_file_comes_before_the_output(make: Callable[..., Brief]) -> None:
    code = """
import os
open(os.environ["PAPERCLIP_RESULT_FILE"], "w").write('{"summary": "from the file"}')
print('{"summary": "from the output"}')
"""
    played = play(PROCESS, make(code))
    assert played.done is not None
    assert played.done.summary == "from the file"


def test_without_a_result_the_output_is_the_summary(make: Callable[..., Brief]) -> None:
    played = play(PROCESS, make("print('{\"other\": 1}'); print('all fine')"))
    assert played.done is not None
    assert played.done.summary == '{"other": 1}\nall fine'
    assert played.done.status is None


@pytest.mark.parametrize(
    "report",
    [
        {"status": "finished"},
        {"cost": -1},
        {"cost": "much"},
        {"usage": {"inputTokens": -5}},
        {"usage": {"inputTokens": 10**12 + 1}, "cost": 1},
    ],
)
def test_a_result_that_breaks_the_protocol(report: dict, make: Callable[..., Brief]) -> None:
    played = play(PROCESS, make(f"print({json.dumps(report)!r})"))
    assert played.error is not None
    assert played.error.code is Code.BAD_RESULT
    assert next(iter(report)) in played.error.message


def test_a_result_file_that_is_a_link_is_not_followed(make: Callable[..., Brief]) -> None:
    code = 'import os; os.symlink("/etc/passwd", os.environ["PAPERCLIP_RESULT_FILE"])'
    played = play(PROCESS, make(code))
    assert played.error is not None
    assert played.error.code is Code.BAD_RESULT


def test_a_folder_in_place_of_the_result_file_keeps_no_descriptor(
    make: Callable[..., Brief],
) -> None:
    code = 'import os; os.mkdir(os.environ["PAPERCLIP_RESULT_FILE"])'
    first = play(PROCESS, make(code))
    assert first.error is not None
    assert first.error.code is Code.BAD_RESULT
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        play(PROCESS, make(code))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("line", ['{"error": "boom"}', '{"error": {"message": "boom"}}'])
def test_a_failure_may_be_all_that_is_reported(line: str, make: Callable[..., Brief]) -> None:
    played = play(PROCESS, make(f"print({line!r})"))
    assert played.error is not None
    assert (played.error.code, played.error.message) == (Code.REPORTED, "boom")


def test_a_line_of_a_log_that_speaks_of_an_error_is_no_result(make: Callable[..., Brief]) -> None:
    played = play(PROCESS, make("""print('{"level": "warn", "error": "went on without"}')"""))
    assert played.error is None


def test_exit_code_zero_is_needed_but_what_was_spent_is_booked(
    make: Callable[..., Brief],
) -> None:
    code = """
import sys
print('{"summary": "x", "cost": 1}')
print("it broke", file=sys.stderr)
sys.exit(3)
"""
    played = play(PROCESS, make(code))
    assert played.error is not None
    assert played.error.code is Code.EXIT_NONZERO
    assert played.error.message == "The program ended with exit code 3: it broke"
    assert played.usages[0].cost_micros == 1_000_000
    assert played.text("stderr") == "it broke\n"


def test_a_program_ended_by_a_signal(make: Callable[..., Brief]) -> None:
    played = play(PROCESS, make("import os; os.kill(os.getpid(), 9)"))
    assert played.error is not None
    assert "SIGKILL" in played.error.message


# --- what it gets ---


def test_the_environment_is_made_from_nothing(
    make: Callable[..., Brief], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "ours")
    brief = make(
        "import json, os; print(json.dumps({'summary': json.dumps(dict(os.environ))}))",
        env={"MODE": "fast", "TOKEN": {"type": "secret_ref", "secretId": "KEY"}},
    )
    played = play(PROCESS, brief)
    assert played.done is not None
    env = json.loads(played.done.summary)
    env.pop("LC_CTYPE", None)  # Python adds it to itself
    assert set(env) == {
        *("PATH", "HOME", "LANG", "TERM", "TMPDIR", "MODE", "TOKEN"),
        *("PAPERCLIP_API_URL", "PAPERCLIP_API_KEY", "PAPERCLIP_AGENT_ID", "PAPERCLIP_RUN_ID"),
        "PAPERCLIP_RUN_PROCESS",
        *("PAPERCLIP_COMPANY_ID", "PAPERCLIP_TASK_ID", "PAPERCLIP_WAKE_REASON"),
        *("PAPERCLIP_LINKED_ISSUE_IDS", "PAPERCLIP_WORKSPACE_CWD", "PAPERCLIP_RESULT_FILE"),
    }
    assert env["TOKEN"] == "sk-test-not-a-real-key"
    assert env["HOME"].startswith(brief.run_dir)
    assert env["PAPERCLIP_API_KEY"] == "the-run-token"


def test_the_payload_is_on_standard_input(make: Callable[..., Brief]) -> None:
    played = play(PROCESS, make("import sys; print(sys.stdin.read())"))
    assert played.text("stdout") == '{"issue":"ACM-1"}\n'


def test_arguments_are_never_a_shell_line(make: Callable[..., Brief]) -> None:
    played = play(PROCESS, make("import sys; print(sys.argv[1])", "$(id); `id` && id > x"))
    assert played.text("stdout") == "$(id); `id` && id > x\n"


def test_files_are_private_and_there_is_no_core(make: Callable[..., Brief]) -> None:
    code = """
import os, resource
open("made", "w").close()
print(oct(os.stat("made").st_mode & 0o777), resource.getrlimit(resource.RLIMIT_CORE)[0])
"""
    brief = make(code)
    assert play(PROCESS, brief).text("stdout") == "0o600 0\n"
    assert stat.S_IMODE(os.stat(brief.run_dir).st_mode) == 0o700


def test_limits_are_set(make: Callable[..., Brief]) -> None:
    code = "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CPU))"
    played = play(PROCESS, make(code, maxOpenFiles=64, maxCpuSec=9))
    assert played.text("stdout") == "(64, 64) (9, 9)\n"


def test_a_character_cut_by_the_pipe_stays_whole(make: Callable[..., Brief]) -> None:
    code = """
import sys, time
for byte in "é☕\\n".encode():
    sys.stdout.buffer.write(bytes([byte])); sys.stdout.buffer.flush(); time.sleep(0.01)
"""
    assert play(PROCESS, make(code)).text("stdout") == "é☕\n"


# --- bounds ---


@pytest.mark.parametrize(
    ("code", "config", "expected"),
    [
        ("import time; time.sleep(60)", {"timeoutSec": 0.3}, Code.TIMED_OUT),
        ("import time; time.sleep(60)", {"idleTimeoutSec": 0.3}, Code.IDLE),
        ("while True: print('x' * 1000)", {"maxOutputBytes": 50_000}, Code.OUTPUT_LIMIT),
    ],
)
def test_a_limit_ends_the_program(
    code: str, config: dict, expected: Code, make: Callable[..., Brief]
) -> None:
    played = play(PROCESS, make(code, graceSec=1, **config))
    assert played.error is not None
    assert (played.error.code, played.error.acted) == (expected, True)


def test_a_daemon_that_left_its_session_dies_with_the_run(
    make: Callable[..., Brief], tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    cancel_when(make(DAEMON, str(note), graceSec=1), "started")
    assert gone(int(note.read_text()))


def test_a_program_that_ignores_signals_dies_with_the_run(
    make: Callable[..., Brief], tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    cancel_when(make(STUBBORN, str(note), graceSec=0.4), "started")
    assert gone(int(note.read_text()))


def test_a_child_that_holds_the_pipes_does_not_hold_the_run(
    make: Callable[..., Brief], tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    played = play(PROCESS, make(HOLDER, str(note), graceSec=1))
    assert played.done is not None
    assert played.done.summary == "parent is done"
    assert gone(int(note.read_text()))


def test_the_program_dies_with_the_server(make: Callable[..., Brief], tmp_path: Path) -> None:
    note = tmp_path / "pid"
    launcher = Path(adapters.__file__).with_name("launch.py")
    parent = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-I", "-S", {str(launcher)!r}, str(os.getpid()), "{{}}",
                  sys.executable, "python", "-c", {STUBBORN!r}, {str(note)!r}])
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        pid = int(note.read_text())
        assert not gone(pid)
        server.kill()
    deadline = time.monotonic() + 10
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(pid)


# --- configuration ---


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"command": "no-such-program-anywhere"}, Code.NOT_INSTALLED),
        ({"command": "/no/such/program"}, Code.NOT_INSTALLED),
        ({"command": "/etc/passwd"}, Code.CONFIG_INVALID),
        ({"command": "true", "cwd": "/no/such/folder"}, Code.CONFIG_INVALID),
        ({"command": "true", "env": {"A": {"secret": "NOPE"}}}, Code.CONFIG_INVALID),
    ],
)
def test_what_cannot_start_is_explained(
    config: dict, code: Code, make: Callable[..., Brief]
) -> None:
    brief = dataclasses.replace(make(""), config=config)
    played = play(PROCESS, brief)
    assert played.error is not None
    assert played.error.code is code
    parsed = PROCESS.Config.model_validate(config)
    checks = asyncio.run(PROCESS.test(parsed, {}))
    assert not all(check.ok for check in checks)


def test_the_test_starts_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o700)
    parsed = PROCESS.Config.model_validate({"command": str(script), "cwd": str(tmp_path)})
    checks = asyncio.run(PROCESS.test(parsed, {}))
    assert [check.ok for check in checks] == [True, True]
    assert not (tmp_path / "ran").exists()


def test_the_example_reports_what_changed(make: Callable[..., Brief], tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
        subprocess.run(
            ["git", *identity, *arguments], cwd=repository, check=True, capture_output=True
        )

    git("init", "-q")
    (repository / "boats.txt").write_text("one\ntwo\n")
    git("add", ".")
    git("commit", "-q", "-m", "List the boats")
    brief = dataclasses.replace(
        make("", args=[str(EXAMPLE)]),
        workspace=str(repository),
    )
    played: Played = play(PROCESS, brief)
    assert played.error is None
    assert played.done is not None
    assert played.done.status == "done"
    assert "**1 commit in the last 7 days**, 2 lines added" in played.done.summary
    assert "List the boats" in played.done.summary


@pytest.mark.parametrize(
    ("command", "args", "there"),
    [
        ("python3", ["{here}/job.py", "--fast"], True),
        ("python3", ["{here}/jobb.py"], False),
        ("python3", ["-u", "{here}/jobb.py"], False),
        ("python3", ["-W", "ignore", "job.py"], True),
        ("bash", ["jobb.sh"], False),
        ("sh", ["{here}"], False),
    ],
)
def test_the_test_looks_for_the_script(
    tmp_path: Path, command: str, args: list[str], there: bool
) -> None:
    (tmp_path / "job.py").write_text("raise SystemExit('it was started')")
    given = [one.replace("{here}", str(tmp_path)) for one in args]
    (script,) = _scripts({"command": command, "args": given, "cwd": str(tmp_path)})
    assert script.ok is there
    assert ("is there. It was not started." if there else "is not a file") in script.message


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("python3", ["-m", "job"]),
        ("sh", ["-c", "cat /nonexistent.sh"]),
        ("echo", ["/nonexistent.py"]),
        ("python3", []),
    ],
)
def test_the_test_says_nothing_of_a_script_where_none_is_named(
    command: str, args: list[str], tmp_path: Path
) -> None:
    assert _scripts({"command": command, "args": args, "cwd": str(tmp_path)}) == []


def test_a_script_in_a_folder_that_is_not_known_yet_is_not_checked() -> None:
    (script,) = _scripts({"command": "python3", "args": ["job.py"]})
    assert script.ok
    assert "not checked" in script.message


def test_a_folder_that_is_not_there_is_named_as_the_form_does() -> None:
    parsed = PROCESS.Config.model_validate({"command": "true", "cwd": "/nonexistent"})
    folder = asyncio.run(PROCESS.test(parsed, {}))[0]
    assert (folder.ok, folder.hint) == (
        False,
        "Create it, or correct the working folder (cwd).",
    )


def _scripts(config: dict[str, Any]) -> list[Check]:
    checks = asyncio.run(PROCESS.test(PROCESS.Config.model_validate(config), {}))
    return [check for check in checks if check.name == "Script"]
