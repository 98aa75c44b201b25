"""Behind walls a program sees and changes only what it is given, and it still ends when it must.

With the real bubblewrap; where there is none, or the kernel refuses it, what needs it is skipped.
"""

import asyncio
import dataclasses
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

from agents import adapters
from agents.adapters import isolation
from agents.adapters.base import Brief, Code, Started, Text, Usage
from agents.adapters.process import ProcessConfig
from tests.adapters.conftest import Played, make_brief, play

PROCESS = adapters.get("process")
CLAUDE = adapters.get("claude_local")
FAKE = Path(__file__).parent / "cli" / "fake_claude.py"
PYTHON = os.path.realpath(sys.executable)  # the tests' own may lie in what is hidden
WALLS = {"isolation": "bubblewrap"}


def _refusal() -> str:
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    line = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/"]
    tried = subprocess.run(
        [*line, "--proc", "/proc", "true"], capture_output=True, text=True, check=False
    )
    return f"this kernel refuses: {tried.stderr.strip()}" if tried.returncode else ""


REFUSAL = _refusal()
real = pytest.mark.skipif(bool(REFUSAL), reason=f"NO ISOLATION: {REFUSAL}")


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data folder with a secret in it, hidden from isolated programs."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "secret.key").write_text("the key of all keys")
    before = isolation._hidden
    isolation.configure(hidden=[str(folder)])
    yield folder
    isolation._hidden = before


@pytest.fixture
def make(data: Path) -> Callable[..., Brief]:
    def make(code: str, *args: str, **config: Any) -> Brief:
        settings = {"command": PYTHON, "args": ["-c", textwrap.dedent(code), *args]}
        return brief_of(data, adapters.validate("process", {**settings, **WALLS, **config}))

    return make


@pytest.fixture
def claude(data: Path) -> Callable[..., Brief]:
    def claude(do: str, **config: Any) -> Brief:
        brief = brief_of(data, {})
        work = Path(brief.workspace)
        shutil.copy(FAKE, work / "fake.py")
        command = work / "claude"
        command.write_text(f'#!/bin/sh\nexec "{PYTHON}" -S "{work}/fake.py" "$@"\n')
        command.chmod(0o755)
        env = {"FAKE_DO": do, "FAKE_LOG": str(work / "calls.jsonl")}
        given = {"command": str(command), "env": env, "graceSec": 4, **WALLS, **config}
        return dataclasses.replace(brief, config=given)

    return claude


def brief_of(data: Path, config: dict[str, Any]) -> Brief:
    places = {name: data / name / "one" for name in ("runs", "agents", "worktrees")}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    return make_brief(
        config=config,
        run_id=f"walled-{data.parent.name}",
        run_dir=str(places["runs"]),
        agent_dir=str(places["agents"]),
        workspace=str(places["worktrees"]),
        api_key="the-token-of-this-run",
    )


def told(brief: Brief) -> Any:
    """What the program printed as JSON."""
    played = play(PROCESS, brief)
    assert played.error is None, (played.error, played.text("stderr"))
    return json.loads(played.text("stdout"))


def left(brief: Brief) -> list[str]:
    """Commands of living processes that carry the mark of the run."""
    mark = f"PAPERCLIP_RUN_ID={brief.run_id}".encode()
    found = []
    for process in psutil.process_iter():
        try:
            environ = Path(f"/proc/{process.pid}/environ").read_bytes()
            if mark in environ.split(b"\0") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except (OSError, psutil.Error):
            continue
    return found


WRITES = """
    import json, os, sys
    found = {}
    for folder in sys.argv[1:]:
        try:
            open(os.path.join(folder, "written-by-an-agent"), "w").write("x")
            found[folder] = 0
        except OSError as error:
            found[folder] = error.errno
    print(json.dumps(found))
"""
REFUSED_WRITES = {errno.EROFS, errno.EACCES}


# --- what it sees and changes ---


@real
def test_it_writes_where_it_works_and_nowhere_else(make: Callable[..., Brief], data: Path) -> None:
    outside = ["/", "/etc", "/usr/bin", "/var/tmp", "/run", str(data), str(Path.home())]
    brief = make("")
    inside = [brief.workspace, brief.run_dir, "/tmp"]

    found = told(make(WRITES, *inside, *outside))

    assert {found[folder] for folder in inside} == {0}
    assert {found[folder] for folder in outside} <= REFUSED_WRITES
    assert (Path(brief.workspace) / "written-by-an-agent").read_text() == "x"
    assert not Path("/tmp/written-by-an-agent").exists()


@real
def test_the_data_folder_is_not_there_for_it(make: Callable[..., Brief], data: Path) -> None:
    (data / "runs" / "another").mkdir(parents=True)
    code = """
        import json, os, sys
        data = sys.argv[1]
        seen = [os.path.join(at, name) for at, _, names in os.walk(data) for name in names]
        print(json.dumps([sorted(os.listdir(data)), os.listdir(data + "/runs"), seen]))
    """
    brief = make(code, str(data))
    (Path(brief.workspace) / "boats.txt").write_text("7")

    folders, runs, files = told(brief)

    assert (folders, runs) == (["runs", "worktrees"], ["one"])
    assert files == [f"{brief.workspace}/boats.txt"]


@real
def test_it_has_a_tmp_and_a_proc_of_its_own(make: Callable[..., Brief], tmp_path: Path) -> None:
    (tmp_path / "of-somebody-else").touch()
    code = """
        import json, os, sys
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
        status = open("/proc/self/status").read()
        caps = [line.split()[1] for line in status.splitlines() if line.startswith("Cap")]
        print(json.dumps([len(pids), os.listdir(sys.argv[1]), os.listdir("/run"), caps]))
    """

    pids, folder, run, capabilities = told(make(code, str(tmp_path)))

    assert pids <= 3
    assert folder == ["data"]
    assert {"docker.sock", "postgresql", "dbus"}.isdisjoint(run)
    assert {int(held, 16) for held in capabilities[:3]} == {0}


@real
def test_it_does_not_steer_the_machine(make: Callable[..., Brief]) -> None:
    """Root inside is root to these files; opening them is enough to tell, nothing is written."""
    code = """
        import json, os
        found = {}
        for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness",
                     "/proc/sysrq-trigger"):
            try:
                os.close(os.open(path, os.O_WRONLY))
                found[path] = "open"
            except FileNotFoundError:
                pass
            except OSError as error:
                found[path] = error.errno
        print(json.dumps(found))
    """
    found = told(make(code))
    assert "/proc/sys/kernel/core_pattern" in found
    assert set(found.values()) <= {errno.EROFS, errno.EACCES, errno.EPERM}


@real
@pytest.mark.parametrize("open_", [True, False])
def test_the_network_is_there_or_it_is_not(make: Callable[..., Brief], open_: bool) -> None:
    code = """
        import json, socket, sys
        try:
            socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5).close()
            print(json.dumps("through"))
        except OSError as error:
            print(json.dumps("kept in"))
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        found = told(make(code, str(server.getsockname()[1]), isolationNetwork=open_))
        if open_:
            server.accept()[0].close()
        else:
            with pytest.raises(BlockingIOError):
                server.accept()
    assert found == ("through" if open_ else "kept in")


@real
def test_it_commits_to_its_repository_and_does_not_change_its_rules(
    make: Callable[..., Brief], tmp_path: Path
) -> None:
    main = tmp_path / "main"
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@acme.invalid"]
    code = """
        import json, subprocess, sys
        git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@acme.invalid"]
        line = [[*git, "commit", "-q", "--allow-empty", "-m", "By the agent"],
                ["git", "config", "core.fsmonitor", "/bin/evil"],
                ["cp", "/bin/true", sys.argv[1] + "/.git/hooks/post-checkout"]]
        print(json.dumps([subprocess.run(one, capture_output=True).returncode for one in line]))
    """
    brief = make(code, str(main))
    os.rmdir(brief.workspace)
    for line in (
        ["git", "init", "-q", "-b", "main", str(main)],
        [*git, "-C", str(main), "commit", "-q", "--allow-empty", "-m", "First"],
        ["git", "-C", str(main), "worktree", "add", "-q", "-b", "one", brief.workspace],
    ):
        subprocess.run(line, check=True, capture_output=True)

    commit, *rules = told(dataclasses.replace(brief, repository=str(main / ".git")))

    assert commit == 0
    assert 0 not in rules
    log = ["git", "-C", str(main), "log", "-1", "--format=%s", "one"]
    assert subprocess.check_output(log, text=True).strip() == "By the agent"


@real
def test_a_link_that_it_plants_does_not_lead_the_server_out(data: Path, tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    aim.mkdir()
    home = data / "agents" / "one" / "gemini_local"
    brief = brief_of(data, {"command": "true", "env": {"GEMINI_API_KEY": "x"}})
    home.mkdir()
    (home / ".gemini").symlink_to(aim)

    played = play(adapters.get("gemini_local"), brief)

    assert played.error is not None
    assert played.error.code is Code.CONFIG_INVALID
    assert list(aim.iterdir()) == []


@real
def test_a_command_line_agent_works_behind_walls(claude: Callable[..., Brief]) -> None:
    brief = claude("answer Seven boats.")

    played = play(CLAUDE, brief)

    assert played.done is not None, played.error
    assert played.done.summary == "Seven boats."
    assert len(played.usages) == 1
    assert played.done.session_id
    assert left(brief) == []


# --- where it cannot be ---


def _bwrap(folder: Path, script: str) -> str:
    folder.mkdir()
    if script:
        (folder / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bwrap").chmod(0o755)
    return str(folder)


REFUSED = "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"


@pytest.mark.parametrize(
    ("script", "words"), [("", "not on this machine"), (REFUSED, "No permissions")]
)
def test_without_walls_nothing_is_started(
    script: str,
    words: str,
    make: Callable[..., Brief],
    claude: Callable[..., Brief],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", _bwrap(tmp_path / "bin", script))
    mark = tmp_path / "it-ran"
    walled = make("import sys; open(sys.argv[1], 'w')", str(mark))
    for adapter, brief in ((PROCESS, walled), (CLAUDE, claude("answer"))):
        played = play(adapter, brief)
        assert played.error is not None
        assert played.error.code is Code.ISOLATION_FAILED
        assert words in played.error.message
        assert not played.error.acted
        checks = asyncio.run(adapter.test(adapter.Config.model_validate(brief.config), {}))
        assert [check.ok for check in checks if check.name == "Isolation"] == [False]
        assert words in checks[-1].message
        assert "user namespaces" in checks[-1].hint
    assert not mark.exists()
    assert not (Path(claude("answer").workspace) / "calls.jsonl").exists()


@real
def test_the_test_puts_the_walls_up(make: Callable[..., Brief]) -> None:
    checks = asyncio.run(PROCESS.test(PROCESS.Config.model_validate(make("").config), {}))

    assert all(check.ok for check in checks), checks
    assert "Bubblewrap isolates it" in checks[-1].message


@real
def test_a_program_that_lies_in_what_is_hidden_is_told(
    make: Callable[..., Brief], data: Path
) -> None:
    program = data / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    played = play(PROCESS, make("", command=str(program)))

    assert played.error is not None
    assert played.error.code is Code.ISOLATION_FAILED
    assert "cannot be seen from inside" in played.error.message


@real
@pytest.mark.parametrize(
    "cwd", ["/", "/proc", "/proc/self", "/sys", "{data}", "{data}/runs", "{data}/pg", "{data}/pg/x"]
)
def test_what_would_open_the_walls_is_no_folder_to_work_in(
    cwd: str, make: Callable[..., Brief], data: Path
) -> None:
    (data / "pg" / "x").mkdir(parents=True)
    played = play(PROCESS, make("", cwd=cwd.format(data=data)))

    assert played.error is not None
    assert played.error.code is Code.CONFIG_INVALID
    assert "to write in" in played.error.message


@real
def test_a_workspace_that_holds_the_data_folder_does_not_show_it(
    make: Callable[..., Brief], data: Path
) -> None:
    code = "import json, os, sys; print(json.dumps(os.listdir(sys.argv[1])))"
    brief = dataclasses.replace(make(code, str(data)), workspace=str(data.parent))

    assert told(brief) == ["runs"]


# --- ending ---

SLEEPER = "print('ready', flush=True); import time; time.sleep(600)"
CHILDREN = """
    import subprocess, time
    for _ in range(3):
        subprocess.Popen(["sleep", "600"])
    print("ready", flush=True)
    time.sleep(600)
"""
DAEMON = """
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            os.execve("/bin/sleep", ["sleep", "600"], {})
        os._exit(0)
    os.wait()
    print("ready", flush=True)
    time.sleep(600)
"""
STUBBORN = """
    import signal, subprocess, time
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    subprocess.Popen(["sleep", "600"])
    print("ready", flush=True)
    time.sleep(600)
"""


def cancelled(adapter: Any, brief: Brief, ready: Callable[[Any], bool]) -> list[Usage]:
    """Cancel the run at this event; all its processes, by name and number, are seen to be gone."""
    booked: list[Usage] = []
    brief = dataclasses.replace(brief, book_usage=booked.append)
    seen: list[psutil.Process] = []
    before = set(psutil.Process().children())  # the tests' own database, and what it may start

    async def work() -> None:
        heard = asyncio.Event()

        async def follow() -> None:
            async with aclosing(adapter.run(brief)) as events:
                async for event in events:
                    if ready(event):
                        heard.set()

        task = asyncio.create_task(follow())
        await asyncio.wait_for(heard.wait(), 60)
        for child in set(psutil.Process().children()) - before:
            seen.extend([child, *child.children(recursive=True)])
        assert seen
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert [one for one in seen if one.is_running() and one.status() != "zombie"] == []
    assert left(brief) == []
    return booked


def says(word: str) -> Callable[[Any], bool]:
    return lambda event: isinstance(event, Text) and word in event.text


@real
@pytest.mark.parametrize(
    ("code", "ready"),
    [
        pytest.param(SLEEPER, lambda event: isinstance(event, Started), id="starting"),
        pytest.param(SLEEPER, says("ready"), id="running"),
        pytest.param(CHILDREN, says("ready"), id="with children"),
        pytest.param(DAEMON, says("ready"), id="with a daemon"),
        pytest.param(STUBBORN, says("ready"), id="deaf to signals"),
    ],
)
def test_a_cancelled_program_leaves_nothing(
    code: str, ready: Callable[[Any], bool], make: Callable[..., Brief]
) -> None:
    cancelled(PROCESS, make(code, graceSec=1), ready)


@real
def test_a_cancelled_agent_hears_it_and_tells_what_it_used(claude: Callable[..., Brief]) -> None:
    (usage,) = cancelled(CLAUDE, claude("interruptible"), says("Working"))

    assert usage.source == "reported"
    assert (usage.input_tokens, usage.output_tokens) == (100, 10)


@real
def test_what_an_agent_started_aside_ends_with_it(claude: Callable[..., Brief]) -> None:
    brief = claude("")
    note = Path(brief.workspace) / "pid"

    (usage,) = cancelled(CLAUDE, claude(f"daemon {note}", graceSec=1), says("Working"))
    assert usage.source == "estimated"

    note.unlink()
    finished = claude(f"leftover {note}")
    assert play(CLAUDE, finished).done is not None
    assert note.exists()
    assert left(finished) == []


@real
@pytest.mark.parametrize(
    ("code", "limit", "expected"),
    [
        (SLEEPER, {"timeoutSec": 2}, Code.TIMED_OUT),
        (CHILDREN, {"idleTimeoutSec": 1}, Code.IDLE),
        ("while True: print('x' * 1000)", {"maxOutputBytes": 10_000}, Code.OUTPUT_LIMIT),
    ],
)
def test_a_limit_ends_what_is_behind_walls(
    code: str, limit: dict[str, Any], expected: Code, make: Callable[..., Brief]
) -> None:
    brief = make(code, graceSec=1, **limit)

    played: Played = play(PROCESS, brief)

    assert played.error is not None
    assert played.error.code is expected
    assert left(brief) == []


@real
def test_all_of_it_dies_with_the_server(make: Callable[..., Brief]) -> None:
    brief = make(DAEMON)
    walls = isolation.of(
        ProcessConfig.model_validate(brief.config), writable=[brief.workspace, brief.run_dir]
    )
    assert walls is not None
    executable, argv = walls.around(PYTHON, ["python", *brief.config["args"]], cwd=brief.workspace)
    launcher = str(Path(isolation.__file__).with_name("launch.py"))
    parent = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-I", "-S", {launcher!r}, str(os.getpid()), "{{}}",
                  {executable!r}, *{argv!r}])
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        seen = psutil.Process(server.pid).children(recursive=True)
        assert any(one.name() == "sleep" for one in seen)  # the daemon
        server.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(one.is_running() for one in seen) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [one for one in seen if one.is_running()] == []
