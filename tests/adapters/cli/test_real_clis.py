"""The real programs, in pinned versions, against the protocol server: what they do, what we show.

    make clis && .venv/bin/python -m pytest -m '' tests/adapters/cli/test_real_clis.py

With PAPERCLIP_WRITE_DOCS=1 the table in docs/cli-agents.md is written from what was seen. Where
they are installed, `make test` takes a hello, a tool and a cancelled tool of each; the rest has the
mark `cli`.
"""

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

from agents import adapters
from agents.adapters.base import AdapterError, Brief, Code, Event, Text, Usage
from tests.adapters.conftest import Played, make_brief, play
from tests.adapters.test_isolation import REFUSAL
from tests.mock_llm import Served
from tests.mock_llm_more import serve_clis_in_thread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
cli = pytest.mark.cli

DOCS = Path(__file__).parents[3] / "docs" / "cli-agents.md"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
FOLDER = Path(os.environ.get("PAPERCLIP_CLIS_DIR") or CACHE / "paperclip-clis")
VERSIONS = {"claude": "2.1.197", "codex": "0.171.0", "opencode": "1.18.33", "gemini": "0.61.0"}
CLIS = tuple(VERSIONS)
KEY = "sk-of-the-mock-and-nobody-else"

# input, cache read, cache written, output, reasoning of one answer of the server
ONE = {
    "claude": (1150, 1000, 30, 25, 0),
    "codex": (1150, 1000, 0, 25, 5),
    "opencode": (1150, 1000, 0, 25, 5),
    "gemini": (1150, 1000, 0, 30, 5),
}
UNKNOWN_SESSION = {
    "claude": "11111111-2222-4333-8444-555555555555",
    "codex": "11111111-2222-4333-8444-555555555555",
    "opencode": "ses_thisonedoesnotexist",
    "gemini": "11111111-2222-4333-8444-555555555555",
}


def config_of(cli: str, url: str) -> dict[str, Any]:
    """Each as an operator would set it up for a server of their own, allowed to use its shell."""
    common = {"command": str(FOLDER / "node_modules" / ".bin" / cli), "timeoutSec": 120}
    match cli:
        case "claude":
            env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "IS_SANDBOX": "1"}
            return {**common, "env": env, "dangerouslySkipPermissions": True}
        case "gemini":
            return {**common, "baseUrl": url, "env": {"GEMINI_API_KEY": KEY}, "yolo": True}
    env = {"OPENAI_API_KEY": KEY}
    return {**common, "baseUrl": f"{url}/v1", "model": "mock-model", "env": env}


@pytest.fixture(scope="session")
def _server() -> Iterator[Served]:
    with serve_clis_in_thread() as served:
        yield served


@pytest.fixture
def server(_server: Served) -> Served:
    _server.state.requests.clear()
    _server.state.tries.clear()
    return _server


@dataclasses.dataclass
class Bench:
    """One program with its folders."""

    cli: str
    root: Path
    server: Served
    agent: Path  # of all tests of this program: OpenCode fills a new one with 96 MB

    @property
    def adapter(self) -> Any:
        return adapters.get(f"{self.cli}_local")

    @property
    def posts(self) -> int:
        paths = [r.path for r in self.server.state.posts if "countTokens" not in r.path]
        return len(paths)

    def brief(self, said: str, *, session: dict[str, Any] | None = None, **config: Any) -> Brief:
        number = len(list(self.root.glob("run-*")))
        run_dir = self.root / f"run-{number}"
        for folder in (run_dir, self.root / "workspace"):
            folder.mkdir(exist_ok=True)
        return dataclasses.replace(
            make_brief(said),
            run_id=f"{self.root.name}-{number}",
            config={**config_of(self.cli, self.server.url), **config},
            api_url=self.server.url,
            api_key="pcr_the_token_of_this_run",
            run_dir=str(run_dir),
            agent_dir=str(self.agent),
            workspace=str(self.root / "workspace"),
            session=session or {},
            secrets={},
        )

    def run(self, said: str, **more: Any) -> Played:
        return play(self.adapter, self.brief(said, **more))

    def left(self) -> list[str]:
        """Processes that carry the mark of a run of ours."""
        mark = f"PAPERCLIP_RUN_ID={self.root.name}-".encode()
        found = []
        for process in psutil.process_iter():
            try:
                if mark in Path(f"/proc/{process.pid}/environ").read_bytes():
                    found.append(" ".join(process.cmdline()))
            except (OSError, psutil.Error):
                continue
        return found


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {cli: tmp_path_factory.mktemp(f"agent-{cli}") for cli in CLIS}


@pytest.fixture(params=CLIS)
def bench(
    request: pytest.FixtureRequest, tmp_path: Path, server: Served, homes: dict[str, Path]
) -> Bench:
    name = request.param
    if not ((FOLDER / "pins").exists() and (FOLDER / "node_modules" / ".bin" / name).exists()):
        pytest.skip(f"{name} IS NOT INSTALLED in {FOLDER}: run `make clis`")
    return Bench(name, tmp_path, server, homes[name])


# --- the table -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Row:
    outcome: str
    booked: str
    requests: int
    left: int


TABLE: dict[str, dict[str, Row]] = {}


def booked(usages: list[Usage]) -> str:
    parts = []
    for source in ("reported", "estimated"):
        of = [usage for usage in usages if usage.source == source]
        if of:
            sent, said = sum(u.input_tokens for u in of), sum(u.output_tokens for u in of)
            about = "about " if source == "estimated" else ""
            parts.append(f"{about}{sent:,} + {said:,}")
    return ", ".join(parts) or "nothing"


def note(bench: Bench, case: str, outcome: str, usages: list[Usage]) -> None:
    left = bench.left()
    TABLE.setdefault(case, {})[bench.cli] = Row(outcome, booked(usages), bench.posts, len(left))
    assert left == []


def outcome_of(played: Played) -> str:
    return f"`{played.error.code}`" if played.error else "succeeded"


@pytest.fixture(scope="module", autouse=True)
def _written() -> Iterator[None]:
    yield
    if os.environ.get("PAPERCLIP_WRITE_DOCS") != "1":
        return
    lines = [
        "| case | program | what we showed | tokens booked (in + out) | model calls | left |",
        "|---|---|---|---|---|---|",
    ]
    for case, rows in TABLE.items():
        for cli, row in rows.items():
            lines.append(
                f"| {case} | {cli} | {row.outcome} | {row.booked} | {row.requests} | {row.left} |"
            )
    text = DOCS.read_text()
    head, _, rest = text.partition("<!-- table -->\n")
    _, _, tail = rest.partition("<!-- /table -->\n")
    table = "\n".join(lines)
    DOCS.write_text(f"{head}<!-- table -->\n{table}\n<!-- /table -->\n{tail}")


def tokens(usages: list[Usage]) -> list[tuple[int, ...]]:
    return [
        (
            u.input_tokens,
            u.cache_read_tokens,
            u.cache_write_tokens,
            u.output_tokens,
            u.reasoning_tokens,
        )
        for u in usages
    ]


def times(cli: str, number: int) -> tuple[int, ...]:
    return tuple(number * count for count in ONE[cli])


def total(usages: list[Usage]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*tokens(usages), strict=True))


# --- going well ----------------------------------------------------------------------------------


@cli
def test_test_shows_the_version_and_the_login(bench: Bench) -> None:
    config = bench.adapter.Config.model_validate(config_of(bench.cli, bench.server.url))

    checks = asyncio.run(bench.adapter.test(config, {}, hello=True))

    assert all(check.ok for check in checks), checks
    assert VERSIONS[bench.cli] in checks[0].message
    assert "_API_KEY is set" in checks[1].message
    assert "Hello from the mock" in checks[-1].message
    assert bench.posts == 1


def test_hello(bench: Bench) -> None:
    played = bench.run("[[mock:text=Hello there.]]")

    assert played.error is None, played.error
    assert played.done is not None
    assert played.done.summary == "Hello there."
    assert tokens(played.usages) == [ONE[bench.cli]]
    assert bench.posts == 1
    note(bench, "hello", outcome_of(played), played.usages)


def test_a_tool_is_a_step(bench: Bench) -> None:
    played = bench.run("[[mock:run=echo from-the-tool]]")

    assert played.done is not None, played.error
    start, end = played.steps
    assert "echo from-the-tool" in str(start.input)
    assert "from-the-tool" in end.output
    assert not end.is_error
    assert total(played.usages) == times(bench.cli, 2)
    note(bench, "tool", outcome_of(played), played.usages)


@cli
def test_a_session_is_resumed_and_only_the_new_use_is_booked(bench: Bench) -> None:
    first = bench.run("[[mock:text=One.]]")
    assert first.done is not None, first.error
    played = first
    for _ in range(2):
        assert played.done is not None
        played = bench.run("[[mock:text=Two.]]", session=dict(played.done.result["session"]))
        assert played.done is not None, played.error
        assert played.done.session_id == first.done.session_id
        assert tokens(played.usages) == [ONE[bench.cli]]
    assert "One." in str(bench.server.state.posts[-1].body)
    note(bench, "third run of a session", outcome_of(played), played.usages)


@cli
def test_an_isolated_agent_works_as_well(bench: Bench) -> None:
    if REFUSAL:
        pytest.skip(f"NO ISOLATION: {REFUSAL}")
    played = bench.run("[[mock:run=echo from-the-tool]]", isolation="bubblewrap")

    assert played.done is not None, played.error
    _, end = played.steps
    assert "from-the-tool" in end.output
    assert total(played.usages) == times(bench.cli, 2)
    note(bench, "tool, behind bubblewrap", outcome_of(played), played.usages)


@cli
def test_an_unknown_session_is_dropped_within_the_run(bench: Bench) -> None:
    session = {"id": UNKNOWN_SESSION[bench.cli], "cwd": str(bench.root / "workspace")}

    played = bench.run("[[mock:text=Here.]]", session=session)

    assert played.done is not None, played.error
    assert played.done.summary == "Here."
    assert played.done.session_id not in ("", session["id"])
    assert "does not know the old one" in played.text("stderr")
    assert tokens(played.usages) == [ONE[bench.cli]]
    note(bench, "unknown session", outcome_of(played), played.usages)


@cli
def test_an_agent_may_report_though_nothing_is_bypassed(bench: Bench) -> None:
    careful = {
        "claude": {"dangerouslySkipPermissions": False},
        "codex": {"networkAccess": True},
        "opencode": {},
        "gemini": {"yolo": False},
    }[bench.cli]

    played = bench.run("[[mock:run=paperclip GET /api/issues/{issue}]]", **careful)

    assert played.done is not None, played.error
    (call,) = [r for r in bench.server.state.requests if r.path.startswith("/api/")]
    assert call.path == "/api/issues/issue-1"
    assert call.headers["authorization"] == "Bearer pcr_the_token_of_this_run"
    note(bench, "reports by `paperclip`, nothing bypassed", outcome_of(played), played.usages)


# --- going wrong ---------------------------------------------------------------------------------

STATUS = {401: Code.AUTH_FAILED, 429: Code.RATE_LIMITED, 500: Code.PROVIDER_OVERLOADED}


@cli
@pytest.mark.parametrize("status", STATUS)
def test_a_provider_that_refuses(bench: Bench, status: int) -> None:
    played = bench.run(f"[[mock:status={status};retry_after=1]]")

    assert played.error is not None
    assert played.error.code is STATUS[status], played.error.message
    assert not played.error.acted
    assert played.usages == []
    assert bench.posts <= 9
    note(bench, f"HTTP {status}", outcome_of(played), played.usages)


@cli
@pytest.mark.parametrize("fault", ["reset", "trunc"])
def test_an_answer_that_breaks_off(bench: Bench, fault: str) -> None:
    played = bench.run(f"[[mock:{fault}=1]]")

    if bench.cli == "claude":  # asks again without streaming, and gets a whole answer
        assert played.done is not None, played.error
        assert tokens(played.usages) == [ONE["claude"]]
    else:
        assert played.error is not None
        assert played.error.code is Code.STREAM_BROKEN, played.error.message
        assert played.usages
    assert bench.posts <= 9
    name = {"reset": "connection reset", "trunc": "answer cut off"}[fault]
    note(bench, name, outcome_of(played), played.usages)


@cli
def test_turns_have_a_limit(bench: Bench) -> None:
    played = bench.run("[[mock:run=echo again;loop=1]]", maxTurnsPerRun=3)

    assert played.error is not None
    assert played.error.code is Code.TURN_LIMIT, played.error.message
    assert played.error.acted
    told = [usage for usage in played.usages if usage.source == "reported"]
    assert total(told)[0] % 1150 == 0
    assert 3 <= bench.posts <= 8
    note(bench, "three turns allowed", outcome_of(played), played.usages)


# --- cancelled in every state --------------------------------------------------------------------

Ready = Callable[[Bench, Brief, list[Event]], bool]


def asked(bench: Bench, brief: Brief, events: list[Event]) -> bool:
    return bench.posts > 0


def streaming(bench: Bench, brief: Brief, events: list[Event]) -> bool:
    said = any(isinstance(event, Text) and event.channel == "answer" for event in events)
    return said or (bench.posts > 0 and bench.cli in ("codex", "opencode"))


def sleeping(bench: Bench, brief: Brief, events: list[Event]) -> bool:
    return any("sleep 3" in line for line in bench.left())


STATES: dict[str, tuple[str, Ready]] = {
    "thinking": ("[[mock:ttft=60]]", asked),
    "streaming": ("[[mock:chunks=30;delay=0.5]]", streaming),
    "tool running": ("[[mock:run=sleep 300]]", sleeping),
    "background child": (
        "[[mock:run=sleep 301 >/dev/null 2>&1 & echo started;chunks=30;delay=0.5]]",
        sleeping,
    ),
}


SHORT = "tool running"


@pytest.mark.parametrize(
    "state", [pytest.param(one, marks=() if one == SHORT else cli) for one in STATES]
)
def test_cancelling_leaves_no_process(bench: Bench, state: str) -> None:
    said, ready = STATES[state]
    spent: list[Usage] = []
    brief = dataclasses.replace(bench.brief(said, graceSec=4), book_usage=spent.append)

    async def work() -> float:
        events: list[Event] = []

        async def follow() -> None:
            async with aclosing(bench.adapter.run(brief)) as run:
                async for event in run:
                    events.append(event)

        task = asyncio.create_task(follow())
        deadline = time.monotonic() + 60
        while not await asyncio.to_thread(ready, bench, brief, events):
            if task.done():
                await task
            assert time.monotonic() < deadline, events
            assert not task.done(), events
            await asyncio.sleep(0.2)
        await asyncio.sleep(1.0)  # let it get into the state, and not only to its door
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        spent.extend(event for event in events if isinstance(event, Usage))
        return time.monotonic() - began

    try:
        asyncio.run(work())
    except AdapterError as error:
        pytest.fail(f"it ended before it was cancelled: {error.message}")

    if state != "thinking":
        assert spent
    note(bench, f"cancelled: {state}", "cancelled", spent)
