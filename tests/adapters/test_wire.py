"""The two wire formats read what real servers sent, and bear whatever any server may send."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.adapters import lenient, sse
from agents.adapters.anthropic import EventDecoder
from agents.adapters.base import Code
from agents.adapters.failures import CallFailed
from agents.adapters.openai import ChunkDecoder
from agents.adapters.wire import Answer

RECORDINGS = Path(__file__).parent / "recordings"
BAD = (AttributeError, KeyError, TypeError, ValueError, IndexError, CallFailed)  # as line.py says


def decode(decoder: Any, payloads: list[Any]) -> str:
    return "".join(text.text for payload in payloads for text in decoder.feed(payload))


def recorded(name: str) -> list[Any]:
    parser = sse.Parser()
    events = parser.feed((RECORDINGS / f"{name}.txt").read_bytes()) + parser.close()
    return [json.loads(event.data) for event in events if event.data != "[DONE]"]


@pytest.mark.parametrize(
    ("name", "begins", "stop", "usage"),
    [
        ("llamaserver-openai-stream-usage", "The capital of France", "stop", (41, 40, 8)),
        ("llamaserver-openai-stream-nousage", "The capital of France", "stop", None),
        ("llamaserver-openai-stream-length", "One day, in a", "length", (34, 24, 5)),
        ("openai-stream-real-usage", "The capital of France", "stop", None),
    ],
)
def test_recorded_chat_completions(
    name: str, begins: str, stop: str, usage: tuple[int, int, int] | None
) -> None:
    answer = Answer()
    text = decode(ChunkDecoder(answer), recorded(name))
    assert text == answer.text
    assert text.startswith(begins)
    assert answer.stop == stop
    assert answer.model == "smollm2-135m"
    counts = ("input_tokens", "cache_read_tokens", "output_tokens")
    assert (tuple(answer.usage[key] for key in counts) if answer.usage else None) == usage


def test_recorded_messages() -> None:
    answer = Answer()
    decoder = EventDecoder(answer)
    text = decode(decoder, recorded("llamaserver-anthropic-stream"))
    assert text == "The capital of France is Paris."
    assert (answer.stop, decoder.complete) == ("stop", True)
    # The last event has only output tokens: the input of the first one still holds.
    assert answer.usage["input_tokens"] == 41
    assert answer.usage["cache_read_tokens"] == 40
    assert answer.usage["output_tokens"] == 8


def chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def test_groq_reports_its_usage_in_a_place_of_its_own() -> None:
    answer = Answer()
    usage = {"prompt_tokens": 9, "completion_tokens": 3}
    ChunkDecoder(answer).feed({"choices": [], "x_groq": {"id": "r", "usage": usage}})
    assert answer.usage["input_tokens"] == 9


@pytest.mark.parametrize(
    "payload",
    [
        {"x_groq": {"error": {"message": "over capacity", "code": 503}}},
        {"error": {"message": "over capacity", "code": 503}, "choices": []},
        {"choices": [{"index": 0, "delta": {}, "error": {"code": 503, "message": "over"}}]},
    ],
)
def test_an_error_in_the_stream_is_one_wherever_it_stands(payload: dict[str, Any]) -> None:
    with pytest.raises(CallFailed) as caught:
        ChunkDecoder(Answer()).feed(payload)
    assert caught.value.code is Code.PROVIDER_OVERLOADED


def test_finish_reason_error_is_no_success() -> None:
    with pytest.raises(CallFailed):
        ChunkDecoder(Answer()).feed({"choices": [{"delta": {}, "finish_reason": "error"}]})


def test_content_may_come_in_parts_and_arguments_as_an_object() -> None:
    answer = Answer()
    decoder = ChunkDecoder(answer)
    decoder.feed(chunk(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]))
    decoder.feed(chunk(tool_calls=[{"id": "1", "function": {"name": "f", "arguments": {"x": 1}}}]))
    assert answer.text == "ab"
    assert (answer.calls[0].name, answer.calls[0].arguments) == ("f", '{"x":1}')


def test_tool_calls_interleave_by_index() -> None:
    answer = Answer()
    decoder = ChunkDecoder(answer)
    for index, name in ((1, "second"), (0, "first")):
        decoder.feed(chunk(tool_calls=[{"index": index, "function": {"name": name}}]))
    for part in ('{"a"', ": 1}"):
        for index in (0, 1):
            decoder.feed(chunk(tool_calls=[{"index": index, "function": {"arguments": part}}]))
    assert [(call.name, call.arguments) for call in answer.calls] == [
        ("first", '{"a": 1}'),
        ("second", '{"a": 1}'),
    ]


def test_half_a_character_is_no_failure() -> None:
    assert lenient.loads(r'{"a": "x\ud83d"}') == {"a": "x?"}
    assert lenient.loads(rb'{"a": "\ud83d\ude00"}') == {"a": "😀"}
    for broken in ("{", '{"a": "\\u12"}', '{"a": "\\ud83d", "b": NaN}'):
        with pytest.raises(ValueError):
            lenient.loads(broken)


KEYS = st.sampled_from(
    [
        *("type", "index", "delta", "message", "content", "text", "usage", "choices", "error"),
        *("x_groq", "finish_reason", "tool_calls", "function", "arguments", "name", "id"),
        *("content_block", "partial_json", "thinking", "stop_reason", "code", "input_tokens"),
        *("prompt_tokens", "cost", "prompt_tokens_details"),
    ]
)
WORDS = st.sampled_from(
    [
        *("message_start", "content_block_start", "content_block_delta", "message_delta"),
        *("message_stop", "error", "message", "text", "tool_use", "text_delta"),
        *("thinking_delta", "input_json_delta", "stop", "length"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@pytest.mark.parametrize("decoder", [ChunkDecoder, EventDecoder])
@settings(max_examples=400, deadline=None)
@given(payloads=st.lists(st.dictionaries(KEYS, JSON, max_size=6), max_size=4))
def test_any_payload_is_bearable(decoder: Any, payloads: list[dict[str, Any]]) -> None:
    answer = Answer()
    reader = decoder(answer)
    for payload in payloads:
        with suppress(*BAD):
            reader.feed(payload)
    assert isinstance(answer.chars, int)
