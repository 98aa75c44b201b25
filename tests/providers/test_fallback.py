"""The table of fallbacks: when the next provider is asked, and when a failure stands."""

from __future__ import annotations

from typing import Any

import pytest

from agents.adapters.anthropic import Anthropic
from agents.adapters.base import AdapterError, Code, Done, Route, Started, Text, Throttled, Usage
from agents.adapters.legs import passes_elsewhere
from agents.adapters.openai import OpenAI
from tests.adapters.conftest import Played, make_brief, play
from tests.mock_llm import Served

MAIN, SPARE = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
TRIES = 3  # of one call: the first and two repeats


class Desk:
    """What the engine does for a run, noted down."""

    def __init__(self, *, refuses: Any = None, moves: bool = True) -> None:
        self.asked: list[tuple[str, str]] = []
        self.granted: list[str] = []
        self.reports: list[tuple[str, bool, str]] = []
        self.diverted: list[str] = []
        self._refuses = refuses or {}
        self._moves = moves

    async def admit(self, route: Route, *, tokens: int) -> None:
        self.asked.append((route.name, "tokens" if tokens > 0 else ""))
        if route.name in self._refuses:
            raise self._refuses[route.name]

    async def grant(self, *, provider, model, input_tokens, max_output_tokens) -> None:
        self.granted.append(model)
        if f"grant {model}" in self._refuses:
            raise self._refuses[f"grant {model}"]

    def report(self, route, *, taken, tokens, answered, error) -> None:
        self.reports.append((route.name, answered, str(error.code) if error else ""))

    async def divert(self, route: Route, because: AdapterError) -> bool:
        self.diverted.append(f"{route.name}: {because.code}")
        return self._moves


def run(mock_llm: Served, prompt: str, desk: Desk | None = None, **routes: Any) -> Played:
    desk = desk or Desk()
    base, spare_kind = mock_llm.url, routes.pop("spare_kind", "openai")
    dead = "http://127.0.0.1:9/v1"
    ways = (
        Route(
            connection_id=MAIN,
            name="Main",
            kind="openai",
            model="mock-1",
            base_url=dead if routes.pop("main_is_dead", False) else base,
            key="sk-main-key-0001",
        ),
        Route(
            connection_id=SPARE,
            name="Spare",
            kind=spare_kind,
            model="mock-2",
            base_url=base,
            key="sk-spare-key-0001",
            position=1,
        ),
    )
    brief = make_brief(
        prompt,
        config={
            "connectionId": MAIN,
            "model": "mock-1",
            "headers": {"X-Team": "{{secret:KEY}}"},
            **routes,
        },
        routes=ways,
        admit_call=desk.admit,
        grant_call=desk.grant,
        report_call=desk.report,
        divert=desk.divert,
    )
    return play(OpenAI(), brief)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 529])
def test_after_the_repeats_the_next_provider_is_asked(mock_llm, status):
    desk = Desk()
    played = run(mock_llm, f"[[mock:status={status};times={TRIES}]]", desk)
    assert played.done is not None
    assert [one.body["model"] for one in mock_llm.state.posts] == ["mock-1"] * TRIES + ["mock-2"]
    assert desk.granted == ["mock-1", "mock-2"]  # priced and checked anew
    assert [name for name, _, _ in desk.reports] == ["Main", "Spare"]
    assert played.done.result["fallback"] == {
        "connectionId": SPARE,
        "connection": "Spare",
        "model": "mock-2",
        "because": "rate_limited" if status == 429 else "provider_overloaded",
    }


def test_so_it_is_when_there_is_no_connection(mock_llm):
    played = run(mock_llm, "Hello", main_is_dead=True)
    assert played.done is not None
    assert played.done.result["fallback"]["because"] == "connect_failed"


def test_the_model_that_answers_is_announced_and_billed(mock_llm):
    played = run(mock_llm, f"[[mock:status=529;times={TRIES}]]")
    assert [event.model for event in played.of(Started)] == ["mock-2"]
    assert [usage.model for usage in played.of(Usage)] == ["mock-2"]


@pytest.mark.parametrize(
    ("directive", "code"),
    [
        ("status=400", Code.BAD_REQUEST),
        ("status=401", Code.AUTH_FAILED),
        ("status=403", Code.AUTH_FAILED),
        ("status=404;code=model_not_found", Code.MODEL_NOT_FOUND),
        ("status=400;code=context_length_exceeded", Code.CONTEXT_TOO_LONG),
        ("status=429;code=insufficient_quota", Code.QUOTA_EXHAUSTED),
        ("stop=content_filter", Code.REFUSED),
        ("stop=length", Code.TRUNCATED_OUTPUT),
        ("reset=1", Code.STREAM_BROKEN),
        ("trunc=1", Code.STREAM_BROKEN),
        ("midstream=server_error", Code.PROVIDER_OVERLOADED),
    ],
)
def test_other_failures_stand_and_so_do_all_after_the_first_event(mock_llm, directive, code):
    desk = Desk()
    played = run(mock_llm, f"[[mock:{directive}]]", desk)
    assert played.error is not None
    assert played.error.code == code
    assert desk.diverted == []
    assert {one.body["model"] for one in mock_llm.state.posts} == {"mock-1"}


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        *((code, True) for code in (Code.RATE_LIMITED, Code.PROVIDER_OVERLOADED)),
        (Code.CONNECT_FAILED, True),
        *(
            (code, False)
            for code in Code
            if code not in (Code.RATE_LIMITED, Code.PROVIDER_OVERLOADED, Code.CONNECT_FAILED)
        ),
    ],
)
def test_the_causes_that_pass_elsewhere(code, passes):
    assert passes_elsewhere(AdapterError(code, "x")) is passes
    assert not passes_elsewhere(AdapterError(code, "x", acted=True))
    assert passes_elsewhere(Throttled(code, "x", retry_after=1, diverts=True)) is passes
    assert not passes_elsewhere(Throttled(code, "x", retry_after=1))


def test_a_breaker_that_is_open_diverts_without_asking(mock_llm):
    closed = Throttled(Code.PROVIDER_OVERLOADED, "open", retry_after=30, diverts=True)
    desk = Desk(refuses={"Main": closed})
    played = run(mock_llm, "Hello", desk)
    assert played.done is not None
    assert [one.body["model"] for one in mock_llm.state.posts] == ["mock-2"]
    assert [name for name, _, _ in desk.reports] == ["Spare"]


def test_our_own_limits_do_not(mock_llm):
    full = Throttled(Code.RATE_LIMITED, "full", retry_after=30)
    played = run(mock_llm, "Hello", Desk(refuses={"Main": full}))
    assert played.error is full
    assert mock_llm.state.posts == []


def test_a_fallback_that_the_budget_does_not_allow_is_not_asked(mock_llm):
    broke = AdapterError(Code.BUDGET, "no money")
    desk = Desk(refuses={"grant mock-2": broke})
    played = run(mock_llm, f"[[mock:status=529;times={TRIES}]]", desk)
    assert played.error is broke
    assert {one.body["model"] for one in mock_llm.state.posts} == {"mock-1"}
    assert desk.reports[-1] == ("Spare", False, "budget_exhausted")


def test_without_room_elsewhere_the_failure_stands(mock_llm):
    played = run(mock_llm, f"[[mock:status=529;times={TRIES}]]", Desk(moves=False))
    assert played.error is not None
    assert played.error.code == Code.PROVIDER_OVERLOADED


def test_when_all_fail_the_last_failure_stands(mock_llm):
    played = run(mock_llm, "[[mock:status=529]]")
    assert played.error is not None
    assert len(mock_llm.state.posts) == 2 * TRIES


def test_the_fallback_gets_neither_the_others_key_nor_its_headers(mock_llm):
    run(mock_llm, f"[[mock:status=529;times={TRIES}]]")
    first, *_, last = mock_llm.state.posts
    assert first.headers["authorization"] == "Bearer sk-main-key-0001"
    assert first.headers["x-team"] == "sk-test-not-a-real-key"
    assert last.headers["authorization"] == "Bearer sk-spare-key-0001"
    assert "x-team" not in last.headers


def test_it_may_speak_another_protocol_in_the_middle_of_a_conversation(mock_llm):
    """The first turn calls a tool at Main, the second fails there and goes on at Spare."""
    calls = []

    class Late(Desk):
        async def admit(self, route: Route, *, tokens: int) -> None:
            calls.append(route.name)
            if route.name == "Main" and len(calls) > 1:
                raise Throttled(Code.PROVIDER_OVERLOADED, "open", retry_after=30, diverts=True)

    played = run(mock_llm, '[[mock:tool=look;args={"body":"x"}]]', Late(), spare_kind="anthropic")
    assert played.done is not None
    main, spare = mock_llm.state.posts
    assert (main.path, spare.path) == ("/v1/chat/completions", "/v1/messages")
    blocks = next(m["content"] for m in spare.body["messages"] if m["role"] == "assistant")
    assert blocks[-1]["type"] == "tool_use"
    assert blocks[-1]["input"] == {"body": "x"}
    assert "".join(event.text for event in played.of(Text)).startswith("Hello")


def test_a_connection_that_is_gone_is_a_failure_of_the_configuration():
    brief = make_brief("Hello", config={"connectionId": MAIN, "model": "m"})
    played = play(Anthropic(), brief)
    assert played.error is not None
    assert played.error.code == Code.CONFIG_INVALID
    assert played.of(Done) == []
