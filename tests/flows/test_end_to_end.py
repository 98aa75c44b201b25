"""From an issue to its result on a whole instance: the real web server, the real workers, the real
database, and an agent of each kind. Only the model and the web service stand in for others."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import aclosing
from decimal import ROUND_HALF_UP, Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import mock_llm
from tests.bench.client import Client
from tests.flows.office import PRICES, Office
from tests.house.instance import ROOT, manage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

Event = tuple[str, str, dict[str, Any]]
ANSWER = "Anvils are forged, not born: naïve café ☕ 日本. " * 6


def priced(model: str, **tokens: int) -> int:
    """Micro-dollars of one call: dollars for a million tokens are micro-dollars a token; summed
    exactly, rounded once, half up."""
    rates = PRICES[model]
    exact = sum(Decimal(str(rates[kind])) * count for kind, count in tokens.items())
    return int(Decimal(exact).quantize(Decimal(1), ROUND_HALF_UP))


# What the stand-in reports: 1150 tokens in, 1000 of them from the cache, 25 out; for Anthropic's
# protocol 120 beside 1000 read and 30 written.
OPENAI_CALL = priced("gpt-4o-mini", input=150, cache_read=1000, output=25)
ANTHROPIC_CALL = priced("claude-haiku-4-5", input=120, cache_read=1000, cache_write=30, output=25)


def say(text: str = ANSWER, **more: object) -> str:
    """The directive with which the stand-in answers `text`."""
    parts = {"text": text, **more}
    return "[[mock:" + ";".join(f"{key}={value}" for key, value in parts.items()) + "]]"


async def watch(office: Office, run: str, *, cut_after: int) -> tuple[list[Event], int]:
    """All events of a run over a connection that dies after every `cut_after` events, and how many
    connections it took."""
    seen: list[Event] = []
    for connection in range(1, 100):
        client = Client(office.instance.port, {"authorization": f"Bearer {office.key}"})
        last = next((id for id, _, _ in reversed(seen) if id), "")
        extra = f"last-event-id: {last}\r\n" if last else ""
        try:
            stream = client.events(f"/api/heartbeat-runs/{run}/stream", extra)
            async with aclosing(stream) as events:  # type: ignore[type-var]
                count = 0
                async for event in events:
                    seen.append(event)
                    count += 1
                    if event[1] == "done":
                        return seen, connection
                    if count == cut_after:
                        assert client.writer is not None
                        client.writer.transport.abort()
                        break
        finally:
            await client.close()
    raise AssertionError("the stream did not end")


def test_an_issue_is_streamed_over_a_broken_line_and_done(
    office: Office, model: mock_llm.Served
) -> None:
    ada = office.hire(
        "Ada",
        "openai",
        {"baseUrl": model.url, "model": "gpt-4o-mini", "tools": False},
        onFinish="in_review",
    )
    issue = office.give(ada, "Praise the anvil", say(chunks=30, delay=0.1))
    assert issue["status"] == "todo"
    run = office.run_of(issue)
    events, connections = asyncio.run(watch(office, run, cut_after=5))
    assert connections >= 3
    assert "".join(d["text"] for _, kind, d in events if kind == "text") == ANSWER
    seqs = [int(id) for id, _, _ in events if id]
    assert seqs == list(range(1, len(seqs) + 1))
    done = events[-1][2]
    assert (done["status"], done["costMicros"]) == ("succeeded", OPENAI_CALL)

    reached = office.see_through(issue)
    assert reached.issue["status"] == "in_review"
    assert reached.issue["checkoutRunId"] is None
    assert reached.words == [ANSWER.strip()]
    assert [one["createdByRunId"] for one in reached.comments] == [run]
    assert [(one["id"], one["status"], one["attempt"]) for one in reached.runs] == [
        (run, "succeeded", 1)
    ]
    assert (reached.cost_micros, reached.unpriced) == (OPENAI_CALL, 0)
    usage = reached.runs[0]["usageJson"]
    assert (usage["inputTokens"], usage["cachedInputTokens"], usage["outputTokens"]) == (
        1150,
        1000,
        25,
    )


def test_a_late_viewer_sees_all_of_it_from_the_beginning(
    office: Office, model: mock_llm.Served
) -> None:
    config = {"baseUrl": model.url, "model": "gpt-4o-mini", "tools": False}
    agent = office.hire("Late", "openai", config, onFinish="done")
    issue = office.give(agent, "Say it", say())
    run = office.see_through(issue).runs[0]["id"]
    events, connections = asyncio.run(watch(office, run, cut_after=1000))
    assert connections == 1
    assert "".join(d["text"] for _, kind, d in events if kind == "text") == ANSWER


def test_a_model_with_tools_closes_the_issue_itself(office: Office, model: mock_llm.Served) -> None:
    config = {"baseUrl": model.url, "model": "gpt-4o-mini"}
    agent = office.hire("Tess", "openai", config, onFinish="in_review")
    args = json.dumps({"status": "done", "result": "Forged and cooled."})
    issue = office.give(agent, "Forge it", say("Ready.", tool="set_status", args=args))
    reached = office.see_through(issue)
    assert reached.issue["status"] == "done", reached
    assert reached.words == ["Forged and cooled."]
    assert reached.cost_micros is not None
    assert reached.cost_micros % OPENAI_CALL == 0  # every call is rounded by itself
    assert reached.cost_micros > 0


def test_an_anthropic_agent_does_its_issue(office: Office, model: mock_llm.Served) -> None:
    agent = office.hire(
        "Claude",
        "anthropic",
        {"baseUrl": model.url.removesuffix("/v1"), "model": "claude-haiku-4-5", "tools": False},
        onFinish="done",
    )
    issue = office.give(agent, "Write a poem", say(chunks=10, delay=0.02))
    reached = office.see_through(issue)
    assert reached.issue["status"] == "done"
    assert reached.words == [ANSWER.strip()]
    assert (reached.cost_micros, reached.unpriced) == (ANTHROPIC_CALL, 0)


def test_a_model_without_a_price_is_unpriced_and_not_free(
    office: Office, model: mock_llm.Served
) -> None:
    config = {"baseUrl": model.url, "model": "nobody-knows", "tools": False}
    agent = office.hire("Noname", "openai", config, onFinish="done")
    reached = office.see_through(office.give(agent, "Say it", say("Yes.")))
    assert reached.issue["status"] == "done"
    assert (reached.cost_micros, reached.unpriced) == (None, 1)
    used = reached.runs[0]["usageJson"]
    assert (used["costMicros"], used["unpricedCalls"]) == (None, 1)


# --- a program ---------------------------------------------------------------------------------


@pytest.fixture
def repository(office: Office) -> Path:
    """A small Git repository with two commits of this week."""
    folder = office.instance.data_dir.parent / "repository"
    folder.mkdir(mode=0o755)
    author = ["-c", "user.name=Ines", "-c", "user.email=ines@example.com"]
    subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
    for name in ("hammer", "tongs"):
        (folder / f"{name}.txt").write_text(f"{name}\n")
        subprocess.run(["git", "-C", folder, "add", "."], check=True)
        subprocess.run(
            ["git", "-C", folder, *author, "commit", "-q", "-m", f"Add the {name}"], check=True
        )
    return folder


def test_a_program_reads_a_real_repository_and_reports(office: Office, repository: Path) -> None:
    agent = office.hire(
        "Reporter",
        "process",
        {
            "command": sys.executable,
            "args": [str(ROOT / "examples" / "weekly_changes.py")],
            "cwd": str(repository),
            # The repository may belong to somebody else than the program.
            "env": {
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
            },
        },
    )
    reached = office.see_through(office.give(agent, "What changed this week?"))
    assert reached.issue["status"] == "done", reached
    (report,) = reached.words
    assert report.startswith("**2 commits in the last 7 days**, 2 lines added and 0 removed.")
    assert "Add the hammer" in report
    assert "Add the tongs" in report
    assert "Ines (2)" in report
    log = office.get(f"/heartbeat-runs/{reached.runs[0]['id']}/log")["content"]
    assert "2 commits found." in log


# --- a web service -----------------------------------------------------------------------------


class Service:
    """A web service that answers at once at /now, and by calling back at /later."""

    def __init__(self, api: str) -> None:
        self.api = api
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.url = ""

    def take(self, path: str, key: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.calls.append((path, body))
        if path == "/now":
            return 200, {"summary": "Counted: 12 boats.", "status": "done", "cost": 0.0125}
        threading.Thread(target=self.report, args=(key, body["runId"])).start()
        return 202, {}

    def report(self, key: str, run: str) -> None:
        with httpx.Client(
            base_url=self.api, headers={"authorization": key}, timeout=10, trust_env=False
        ) as http:
            # Each once: they may overtake our 202.
            http.post(f"/heartbeat-runs/{run}/lease", json={"seconds": 60}).raise_for_status()
            result = {"summary": "Counted later: 13 boats.", "status": "done", "cost": "0.0000015"}
            http.post(f"/heartbeat-runs/{run}/result", json=result).raise_for_status()


@pytest.fixture
def service(office: Office) -> Iterator[Service]:
    made = Service(f"http://127.0.0.1:{office.instance.port}/api")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, content = made.take(self.path, self.headers["authorization"], body)
            sent = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_web_service_answers_at_once(office: Office, service: Service) -> None:
    agent = office.hire("Counter", "http", {"url": f"{service.url}/now"})
    issue = office.give(agent, "Count the boats")
    reached = office.see_through(issue)
    assert reached.issue["status"] == "done", reached
    assert reached.words == ["Counted: 12 boats."]
    assert reached.cost_micros == 12_500
    ((_, body),) = service.calls
    assert body["context"]["taskId"] == issue["id"]


def test_a_web_service_calls_back_later(office: Office, service: Service) -> None:
    config = {"url": f"{service.url}/later", "mode": "callback"}
    agent = office.hire("Slow counter", "http", config)
    reached = office.see_through(office.give(agent, "Count the boats twice"))
    assert reached.issue["status"] == "done", reached
    assert reached.words == ["Counted later: 13 boats."]
    assert reached.cost_micros == 2  # one and a half, rounded half up
    assert len(service.calls) == 1


# --- a simulated agent -------------------------------------------------------------------------


def test_a_simulated_agent_does_its_issue_for_nothing(office: Office) -> None:
    config = {"pace": 0, "questions": False, "failRate": 0, "onFinish": "done"}
    agent = office.hire("Simon", "demo", config)
    reached = office.see_through(office.give(agent, "Draft a blog post"))
    assert reached.issue["status"] == "done"
    assert len(reached.words) == 1
    assert "[Simulated]" in reached.words[0]
    assert (reached.cost_micros, reached.unpriced) == (0, 0)


def test_the_books_balance_after_all_of_it(office: Office) -> None:
    done = manage("billing_check", env=office.instance.env)
    assert done.returncode == 0, done.stdout + done.stderr
    month = office.get(f"/companies/{office.company}/costs/summary")
    by_agent = office.get(f"/companies/{office.company}/costs/by-agent")
    known = [line["costMicros"] for line in by_agent if line["costMicros"] is not None]
    assert month["spendMicros"] == sum(known) > 0
    assert len(known) == len(by_agent) - 1  # one has used a model whose price nobody knows
