"""Every recording of a real program says what it says: the outcome, the use, the session.

The recordings were made by real programs against a protocol server that plays one part each:
their names tell which. Exact figures come from the server's constant answer.
"""

from dataclasses import dataclass, field

import pytest

from agents.adapters.base import Code, Started, Step
from agents.adapters.cli_reader import Lines, Tokens
from tests.adapters.cli.replay import cases, exit_code, replay

# input, cache read, cache written, output, reasoning
ONE = (1150, 1000, 30, 25, 0)
TWO = (2300, 2000, 60, 50, 0)
ONE_REASONED = (1150, 1000, 0, 25, 5)
TWO_REASONED = (2300, 2000, 0, 50, 10)
ONE_THOUGHT = (1150, 1000, 0, 30, 5)


@dataclass(frozen=True)
class Reading:
    """What a recording must be understood as. `code` None: it went well."""

    code: Code | None = None
    gone: bool = False
    used: list[tuple[int, ...]] = field(default_factory=list)
    estimated: int = 0  # model calls whose use nobody told
    micros: int | None = None
    steps: int = 0
    denied: int = 0
    session: str = ""


READINGS: dict[str, Reading] = {
    "claude/api400": Reading(Code.BAD_REQUEST, session="e9fafbfd-16a"),
    "claude/api401": Reading(Code.AUTH_FAILED, session="ae2aaa3b-b17"),
    "claude/api404model": Reading(Code.MODEL_NOT_FOUND, session="8b7742ae-d84"),
    "claude/api429": Reading(Code.RATE_LIMITED, session="36f7ae94-e6a"),
    "claude/api429_recover": Reading(used=[ONE], micros=1912, session="6fdb1991-42f"),
    "claude/api500": Reading(Code.PROVIDER_OVERLOADED, session="f468d8eb-ed1"),
    "claude/api529": Reading(Code.PROVIDER_OVERLOADED, session="dacc6ea8-231"),
    "claude/badflag": Reading(Code.CONFIG_INVALID),
    "claude/badresume": Reading(Code.BAD_REQUEST, gone=True),
    "claude/badresume2": Reading(Code.BAD_REQUEST, gone=True),
    "claude/basic": Reading(used=[ONE], micros=1912, session="db3f3627-6d6"),
    "claude/budget": Reading(
        Code.BUDGET, used=[(3450, 3000, 90, 75, 0)], micros=5737, steps=3, session="694196ab-4f5"
    ),
    "claude/connrefused": Reading(Code.CONNECT_FAILED, session="b08cd852-e7b"),
    "claude/default_denied": Reading(
        used=[TWO], micros=3825, steps=1, denied=1, session="e3941bdd-59c"
    ),
    "claude/fork": Reading(used=[ONE], micros=1912, session="fcf06b61-c52"),
    "claude/json": Reading(used=[ONE], micros=1912),
    "claude/maxtokens": Reading(
        Code.TRUNCATED_OUTPUT, used=[(4600, 4000, 120, 100, 0)], micros=7650, session="0e2b16ab-4ea"
    ),
    "claude/maxturns": Reading(
        Code.TURN_LIMIT, used=[TWO], micros=3825, steps=2, session="f97ca643-ce5"
    ),
    "claude/midstream": Reading(used=[ONE], micros=1912, session="71850219-70f"),
    "claude/model": Reading(used=[ONE], micros=1147, session="ef2d9a0b-0af"),
    "claude/noprompt": Reading(Code.EXIT_NONZERO),
    "claude/notlogged": Reading(Code.AUTH_FAILED, session="300f007a-a28"),
    "claude/notlogged_baseurl": Reading(Code.AUTH_FAILED, session="e7a4ef77-8ef"),
    "claude/noverbose": Reading(Code.CONFIG_INVALID),
    "claude/partial": Reading(used=[ONE], micros=1912, session="d362cd76-873"),
    "claude/permmode_bypass": Reading(Code.CONFIG_INVALID),
    "claude/permmode_dontask": Reading(
        used=[TWO], micros=3825, steps=1, denied=1, session="6baddfe3-b24"
    ),
    "claude/real_llm": Reading(used=[(167, 3, 0, 32, 0)], micros=1622, session="58a895dc-3e4"),
    "claude/refusal": Reading(Code.REFUSED, used=[ONE], micros=1912, session="e2ea0491-a19"),
    "claude/reset": Reading(used=[ONE], micros=1912, session="4507da3f-1e9"),
    "claude/resume": Reading(used=[ONE], micros=1912, session="db3f3627-6d6"),
    "claude/resume_othercwd": Reading(Code.BAD_REQUEST, gone=True),
    "claude/sessionid": Reading(used=[ONE], micros=1912, session="0b5f6c1e-111"),
    "claude/sessionid_again": Reading(Code.BAD_REQUEST, gone=True),
    "claude/sigint_stream": Reading(Code.EXIT_NONZERO, estimated=1, session="2efb0e3e-308"),
    "claude/sigint_tool": Reading(
        Code.EXIT_NONZERO, used=[ONE], micros=1912, steps=1, session="acd45c2e-e91"
    ),
    "claude/sigkill_tool": Reading(Code.EXIT_NONZERO, estimated=1, steps=1, session="d3fd90f0-ad1"),
    "claude/sigterm_stream": Reading(Code.EXIT_NONZERO, session="7bf7415d-512"),
    "claude/sigterm_tool": Reading(Code.EXIT_NONZERO, estimated=1, steps=1, session="511216af-17f"),
    "claude/skipperm": Reading(Code.CONFIG_INVALID),
    "claude/skipperm_sandbox": Reading(used=[TWO], micros=3825, steps=1, session="475a2c6a-005"),
    "claude/stdin_prompt": Reading(used=[ONE], micros=1912, session="135b2bb7-050"),
    "claude/text": Reading(Code.BAD_RESULT),
    "claude/tool_allowed": Reading(used=[TWO], micros=3825, steps=1, session="00178874-a6a"),
    "claude/tool_denied": Reading(
        used=[TWO], micros=3825, steps=1, denied=1, session="2bd2b8d2-904"
    ),
    "claude/trunc": Reading(used=[ONE], micros=1912, session="dd66deb5-79b"),
    "claude/version": Reading(Code.BAD_RESULT),
    "codex/api400": Reading(Code.BAD_REQUEST, session="01a22e3f-303"),
    "codex/api401": Reading(Code.AUTH_FAILED, session="01a22e3f-0bf"),
    "codex/api429": Reading(Code.RATE_LIMITED, session="01a22e3f-162"),
    "codex/api500": Reading(Code.PROVIDER_OVERLOADED, session="01a22e3f-236"),
    "codex/badflag": Reading(Code.CONFIG_INVALID),
    "codex/badresume": Reading(Code.BAD_REQUEST, gone=True),
    "codex/basic": Reading(used=[ONE_REASONED], session="01a22e3e-b87"),
    "codex/codexapikey": Reading(used=[ONE_REASONED], session="01a22e40-ea7"),
    "codex/failed": Reading(Code.STREAM_BROKEN, estimated=1, session="01a22e3f-37c"),
    "codex/failed_ctx": Reading(Code.CONTEXT_TOO_LONG, session="01a22e3f-423"),
    "codex/incomplete": Reading(Code.TRUNCATED_OUTPUT, estimated=1, session="01a22e3f-49d"),
    "codex/nokey": Reading(Code.AUTH_FAILED, session="01a22e3f-4ba"),
    "codex/notlogged": Reading(Code.CONNECT_FAILED, session="01a22e3f-4dd"),
    "codex/notlogged_local": Reading(Code.AUTH_FAILED, session="01a22e40-b43"),
    "codex/real_llm": Reading(used=[(4584, 4102, 0, 12, 0)], session="01a22e55-fef"),
    "codex/reset": Reading(Code.STREAM_BROKEN, estimated=1, session="01a22e3f-32e"),
    "codex/resume": Reading(used=[TWO_REASONED], session="01a22e3e-b87"),
    "codex/resume2": Reading(used=[(3450, 3000, 0, 75, 15)], session="01a22e3e-b87"),
    "codex/sigint_stream": Reading(Code.EXIT_NONZERO, estimated=1, session="01a22e41-6cd"),
    "codex/sigint_tool": Reading(Code.EXIT_NONZERO, estimated=1, steps=1, session="01a22e41-229"),
    "codex/sigint_tool_pg": Reading(
        Code.EXIT_NONZERO, estimated=1, steps=1, session="01a22e41-54d"
    ),
    "codex/sigterm_tool": Reading(Code.EXIT_NONZERO, estimated=1, steps=1, session="01a22e41-09b"),
    "codex/sigterm_tool_pg": Reading(
        Code.EXIT_NONZERO, estimated=1, steps=1, session="01a22e41-3b9"
    ),
    "codex/tool": Reading(used=[TWO_REASONED], steps=1, session="01a22e3e-f7d"),
    "codex/tool_bypass": Reading(used=[TWO_REASONED], steps=1, session="01a22e3f-02b"),
    "codex/trunc": Reading(Code.STREAM_BROKEN, estimated=1, session="01a22e58-811"),
    "codex/wire_chat": Reading(Code.CONFIG_INVALID),
    "gemini/api400": Reading(Code.BAD_REQUEST, session="bad5668f-352"),
    "gemini/api401": Reading(Code.AUTH_FAILED, session="ee8d8f40-8ea"),
    "gemini/api429": Reading(Code.RATE_LIMITED, session="e6fce8d5-1ae"),
    "gemini/api500": Reading(Code.PROVIDER_OVERLOADED, session="3d2727a2-c8e"),
    "gemini/badflag": Reading(Code.CONFIG_INVALID),
    "gemini/badresume": Reading(Code.BAD_REQUEST, gone=True),
    "gemini/basic": Reading(used=[ONE_THOUGHT], session="3b2c8fe9-a55"),
    "gemini/json": Reading(Code.BAD_RESULT),
    "gemini/length": Reading(used=[ONE_THOUGHT], session="3ab98f4b-378"),
    "gemini/norelaunch_sigint_tool": Reading(
        Code.BAD_RESULT, estimated=1, steps=1, session="0ecad827-993"
    ),
    "gemini/norelaunch_sigterm_tool": Reading(
        Code.BAD_RESULT, estimated=1, steps=1, session="eda7b7db-cf0"
    ),
    "gemini/notlogged": Reading(Code.AUTH_FAILED),
    "gemini/notrust": Reading(Code.CONFIG_INVALID),
    "gemini/pg_sigterm_tool": Reading(
        Code.BAD_RESULT, estimated=1, steps=1, session="878f3161-14f"
    ),
    "gemini/reset": Reading(Code.STREAM_BROKEN, estimated=1, session="23530ae5-54e"),
    "gemini/resume": Reading(used=[ONE_THOUGHT], session="3b2c8fe9-a55"),
    "gemini/safety": Reading(used=[ONE_THOUGHT], session="c8a294cd-525"),
    "gemini/sessionid": Reading(used=[ONE_THOUGHT], session="0b5f6c1e-111"),
    "gemini/sigint_stream": Reading(Code.EXIT_NONZERO, estimated=1, session="ab149e46-ab7"),
    "gemini/sigint_tool": Reading(Code.EXIT_NONZERO, estimated=1, steps=1, session="8add77f7-a9e"),
    "gemini/sigterm_stream": Reading(Code.EXIT_NONZERO, estimated=1, session="19fbf659-67c"),
    "gemini/sigterm_tool": Reading(Code.EXIT_NONZERO, estimated=1, steps=1, session="c9d6aadb-665"),
    "gemini/tool": Reading(used=[(2300, 2000, 0, 60, 10)], steps=1, session="f83928ea-8bb"),
    "gemini/tool_denied": Reading(used=[ONE_THOUGHT], session="499531b1-2b9"),
    "gemini/trunc": Reading(
        Code.STREAM_BROKEN, used=[(4600, 4000, 0, 120, 20)], session="11277a9d-500"
    ),
    "opencode/api401": Reading(Code.AUTH_FAILED, session="ses_dd1bcb5c"),
    "opencode/api429": Reading(Code.RATE_LIMITED, session="ses_dd1bc9ef"),
    "opencode/api429_recover": Reading(used=[ONE_REASONED], session="ses_dd1bcaa7"),
    "opencode/api500": Reading(Code.EXIT_NONZERO),
    "opencode/badflag": Reading(Code.CONFIG_INVALID),
    "opencode/badmodel": Reading(Code.CONFIG_INVALID, session="ses_dd1bac43"),
    "opencode/badprov": Reading(Code.CONFIG_INVALID, session="ses_dd1bab99"),
    "opencode/badresume": Reading(Code.BAD_REQUEST, gone=True),
    "opencode/basic": Reading(used=[ONE_REASONED], session="ses_dd1bd3f7"),
    "opencode/content_filter": Reading(Code.REFUSED, used=[ONE_REASONED], session="ses_dd1bad21"),
    "opencode/length": Reading(Code.TRUNCATED_OUTPUT, used=[ONE_REASONED], session="ses_dd1bade1"),
    "opencode/midstream": Reading(Code.STREAM_BROKEN, estimated=2, session="ses_dd1bc1f3"),
    "opencode/noconfig": Reading(Code.EXIT_NONZERO),
    "opencode/real_llm": Reading(used=[(2216, 5, 0, 9, 0)], session="ses_dd1a98f1"),
    "opencode/reset": Reading(Code.EXIT_NONZERO),
    "opencode/resume": Reading(used=[ONE_REASONED], session="ses_dd1bd3f7"),
    "opencode/sigint_stream": Reading(Code.EXIT_NONZERO, estimated=1, session="ses_dd1b9971"),
    "opencode/sigint_tool": Reading(Code.EXIT_NONZERO, estimated=1, session="ses_dd1b9af4"),
    "opencode/sigterm_tool": Reading(Code.EXIT_NONZERO, estimated=1, session="ses_dd1b9c7b"),
    "opencode/tool": Reading(used=[ONE_REASONED, ONE_REASONED], steps=1, session="ses_dd1bcd00"),
    "opencode/tool_outside": Reading(
        Code.BAD_RESULT, used=[ONE_REASONED], steps=1, denied=1, session="ses_dd1bcc3f"
    ),
    "opencode/trunc": Reading(Code.STREAM_BROKEN, estimated=4, session="ses_dd1a7740"),
}


def test_every_recording_has_its_reading() -> None:
    assert cases() == sorted(READINGS)


@pytest.mark.parametrize("case", sorted(READINGS))
def test_a_recording_is_read(case: str) -> None:
    expected, read = READINGS[case], replay(case)

    assert read.ending.code == expected.code, read.ending.message
    assert read.ending.session_gone is expected.gone
    assert bool(read.ending.message) is (expected.code is not None)
    told = [u for u in read.usages if u.source == "reported"]
    assert [
        (
            u.input_tokens,
            u.cache_read_tokens,
            u.cache_write_tokens,
            u.output_tokens,
            u.reasoning_tokens,
        )
        for u in told
    ] == expected.used
    guessed = [u for u in read.usages if u.source == "estimated"]
    assert len(guessed) == expected.estimated
    assert all(u.input_tokens > 1000 and u.cost_micros is None for u in guessed)
    costs = [u.cost_micros for u in read.usages if u.cost_micros is not None]
    assert (sum(costs) if costs else None) == expected.micros
    assert [u.call for u in read.usages] == list(range(1, len(read.usages) + 1))
    assert len(read.steps("start")) == expected.steps
    assert len(read.reader.denied) == expected.denied
    assert read.reader.session_id.startswith(expected.session)
    assert bool(read.reader.session_id) is bool(expected.session)


@pytest.mark.parametrize("case", sorted(READINGS))
@pytest.mark.parametrize("pieces", [7, 4096])
def test_the_cut_of_the_output_does_not_matter(case: str, pieces: int) -> None:
    assert replay(case, pieces=pieces).events == replay(case).events


@pytest.mark.parametrize(
    "case", [case for case, reading in READINGS.items() if reading.code is None]
)
def test_a_good_run_shows_its_answer_and_when_it_began(case: str) -> None:
    read = replay(case)

    if case != "claude/json":
        assert sum(isinstance(event, Started) for event in read.events) == 1
        assert read.text().strip() == read.reader.answer.strip()
    assert read.reader.answer.strip()


@pytest.mark.parametrize("case", sorted(READINGS))
def test_steps_that_end_were_begun(case: str) -> None:
    begun: set[str] = set()
    for event in replay(case).events:
        if isinstance(event, Step) and event.phase == "start":
            begun.add(event.id)
        elif isinstance(event, Step):
            assert event.id in begun
            assert event.name != "tool"


def test_text_that_came_in_pieces_is_shown_once() -> None:
    assert replay("claude/partial").text().count("Hello") == 1


def test_the_tool_of_each_program_shows_what_it_did() -> None:
    for case, said in (
        ("claude/tool_allowed", "hi-from-tool"),
        ("codex/tool", "hi-from-codex\n"),
        ("gemini/tool", "hi-from-gemini"),
        ("opencode/tool", "hi-from-opencode\n"),
    ):
        read = replay(case)
        assert [step.output for step in read.steps("end")] == [said]
        assert f"echo {said.strip()}" in str(read.steps("start")[0].input)


def test_a_refused_tool_is_an_error_of_the_step_and_not_of_the_run() -> None:
    read = replay("claude/default_denied")

    assert read.ending.code is None
    assert read.steps("end")[0].is_error
    assert read.reader.denied == ["Bash: python3 -c 'print(1)'"]


def test_codex_counts_over_the_thread_and_a_run_costs_the_difference() -> None:
    thread = "01a22e3e-b878-7892-931a-503867b184c7"
    booked = Tokens()
    for case in ("codex/basic", "codex/resume", "codex/resume2"):
        read = replay(case, session_id=thread, session_usage=booked)
        (usage,) = read.usages
        assert (usage.input_tokens, usage.cache_read_tokens) == (1150, 1000)
        assert (usage.output_tokens, usage.reasoning_tokens) == (25, 5)
        booked = read.reader.session_usage()
    assert booked.input == 3450


def test_codex_does_not_subtract_another_threads_count() -> None:
    read = replay("codex/basic", session_id="another", session_usage=Tokens(input=1000))

    assert read.usages[0].input_tokens == 1150


def test_a_price_of_claude_is_believed_at_its_vendors_address_only() -> None:
    read = replay("claude/basic")
    read.reader.expected.first_party = False

    assert read.reader.usages()[0].cost_micros is None


def test_unknown_lines_are_kept_as_they_are() -> None:
    read = replay("claude/text")

    assert read.text("stdout") == "Hello from the mock: naïve café ☕ 日本.\n"


def test_a_known_line_in_an_unknown_form_is_kept_and_breaks_nothing() -> None:
    reader = replay("claude/version").reader
    for line in (
        '{"type": "assistant", "message": 7}',
        '{"type": "stream_event"}',
        '{"type": "user", "message": {"content": [{"type": "tool_result"}]}}',
        '{"type": "result", "permission_denials": 3}',
        "[1, 2",
        "null",
    ):
        assert [event.channel for event in reader.line(line)] == ["stdout"]


def test_opencodes_circle_is_ended_at_its_third_turn() -> None:
    read = replay("opencode/trunc")

    assert read.reader.give_up is not None
    assert "keeps asking" in read.ending.message


def test_an_exit_code_above_128_is_no_signal() -> None:
    assert exit_code("gemini/api401") == 145
    assert replay("gemini/api401").ending.code is Code.AUTH_FAILED


def test_a_line_too_long_is_cut_and_says_so() -> None:
    lines = Lines(limit=10)

    assert lines.feed("abc\n" + "x" * 25) == ["abc"]
    assert lines.feed("yyy\nnext\u2028line\r\n") == [
        "xxxxxxxxxx [cut 18 characters]",
        "next\u2028line",
    ]
    assert lines.close() == []
