"""A conversation goes on while it is sound, and is handed over when it is not."""

import re
from typing import Any

import pytest

from agents.adapters import cli_session
from agents.adapters.cli_reader import Expectation, Tokens
from agents.adapters.codex_local import CodexReader

NOW = 1_796_000_000.0
KEPT: dict[str, Any] = {
    "id": "abc",
    "cwd": "/work",
    "fingerprint": "mark",
    "usage": {"input": 3450, "output": 75},
    "runs": 3,
    "startedAt": int(NOW) - 3600,
    "contextTokens": 20_000,
    "note": "Counted to seven.",
}


def plan(**changes: Any) -> cli_session.Plan:
    return cli_session.plan(
        {**KEPT, **changes}, id_pattern=re.compile("[a-z]+"), cwd="/work", mark="mark", now=NOW
    )


def test_a_sound_session_goes_on_with_what_was_booked() -> None:
    assert (plan().id, plan().reason) == ("abc", "")
    assert plan().usage == Tokens(input=3450, output=75)


def test_without_a_session_there_is_nothing_to_explain() -> None:
    assert plan(id="") == cli_session.Plan()


@pytest.mark.parametrize("missing", ["cwd", "fingerprint", "runs", "startedAt", "contextTokens"])
def test_what_was_never_kept_is_no_reason_to_begin_anew(missing: str) -> None:
    assert plan(**{missing: None}).id == "abc"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": "--help"}, "its id is not one of this program"),
        ({"cwd": "/elsewhere"}, "the folder is another one"),
        ({"fingerprint": "other"}, "the configuration changed"),
        ({"contextTokens": 150_001}, "it has grown too long"),
        ({"runs": 50}, "it went on for 50 runs"),
        ({"startedAt": int(NOW) - 15 * 24 * 3600}, "it is too old"),
    ],
)
def test_an_unsound_session_is_left_with_its_reason_and_its_last_words(
    change: dict[str, Any], reason: str
) -> None:
    found = plan(**change)

    assert (found.id, found.reason, found.note) == ("", reason, "Counted to seven.")
    assert found.usage == Tokens()


def test_a_session_in_any_state_of_decay_breaks_nothing() -> None:
    for rubbish in (7, "x", [], {"a": []}, True, -1, 1e300, None):
        plan(usage=rubbish, runs=rubbish, startedAt=rubbish, contextTokens=rubbish, note=rubbish)


def test_what_is_kept_counts_on() -> None:
    reader = CodexReader(Expectation(session_id="abc"))
    reader.read({"type": "thread.started", "thread_id": "abc"})
    reader.read({"type": "item.completed", "item": {"type": "agent_message", "text": "Eight."}})
    reader.read({"type": "turn.completed", "usage": {"input_tokens": 4600, "output_tokens": 100}})

    kept = cli_session.keep(plan(), reader, cwd="/work", mark="mark", now=NOW)

    assert kept["runs"] == 4
    assert kept["startedAt"] == KEPT["startedAt"]
    assert kept["usage"]["input"] == 4600
    assert kept["note"] == "Eight."


def test_a_program_that_named_no_session_leaves_none() -> None:
    reader = CodexReader(Expectation())

    assert cli_session.keep(plan(), reader, cwd="/work", mark="mark", now=NOW) == {}
