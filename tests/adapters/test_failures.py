"""What a provider answers becomes a code, a waiting time and words without keys."""

import httpx
import pytest

from agents.adapters import failures
from agents.adapters.base import Code
from agents.adapters.openai import read_usage


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:20:00 GMT"}, 200.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:10:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"retry-after": "9" * 400}, 604_800.0),
        ({"retry-after-ms": "inf"}, 604_800.0),
        ({"retry-after-ms": "nan"}, 0.0),
        ({"retry-after-ms": "-inf"}, 0.0),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 -1200"}, 604_800.0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert failures.retry_after(httpx.Headers(headers), now=1000.0) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "key sk-abcdefghijklmnop is wrong",
        "Authorization: Bearer abcdefghijklmnopqrstuv",
        "you sent gsk_abcdefghijklmnop",
        "you sent hunter2hunter2",
    ],
)
def test_keys_are_taken_out(text: str) -> None:
    shown = failures.redact(text, ["hunter2hunter2"])
    assert "[redacted]" in shown
    assert "abcdefgh" not in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[]", b"null", b'{"error": null}', b'"x"'])
def test_any_body_is_bearable(body: bytes) -> None:
    failure = failures.from_response(httpx.Response(500), body)
    assert failure.code is Code.PROVIDER_OVERLOADED


def test_only_the_beginning_of_a_foreign_body_is_kept() -> None:
    failure = failures.from_response(httpx.Response(500), b"x" * 100_000)
    assert len(failure.detail["body"]) == failures.BODY_SHOWN
    assert len(failure.message) < 500


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, '{"error":{"code":400,"type":"exceed_context_size_error"}}', Code.CONTEXT_TOO_LONG),
        (503, '{"error":{"type":"unavailable_error","code":503}}', Code.PROVIDER_OVERLOADED),
        (403, '{"error":{"message":"flagged by moderation"}}', Code.REFUSED),
        (404, '{"detail":"Not Found"}', Code.CONFIG_INVALID),
        (400, '{"error":{"code":"content_filter","message":"x"}}', Code.REFUSED),
    ],
)
def test_the_words_of_other_servers(status: int, body: str, code: Code) -> None:
    assert failures.from_response(httpx.Response(status), body.encode()).code is code


def test_a_server_may_forbid_the_repeat() -> None:
    response = httpx.Response(503, headers={"x-should-retry": "false"})
    assert not failures.from_response(response, b"").retryable


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"type": "overloaded_error", "message": "x"}, Code.PROVIDER_OVERLOADED),
        ({"code": 502, "message": "x"}, Code.PROVIDER_OVERLOADED),
        ({"code": 429, "message": "x"}, Code.RATE_LIMITED),
        ({"code": "insufficient_quota"}, Code.QUOTA_EXHAUSTED),
        ("just words", Code.STREAM_BROKEN),
        (None, Code.STREAM_BROKEN),
    ],
)
def test_an_error_object_in_a_stream(error: object, code: Code) -> None:
    assert failures.from_error_object(error).code is code


def test_waits_are_jittered_within_their_bounds() -> None:
    waits = [failures.jitter(attempt) for attempt in range(1, 8) for _ in range(50)]
    assert min(waits) >= 0.5
    assert max(waits) <= 8.0
    assert len(set(waits)) > 100


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 8}, (10, 8, 2)),
        ({"prompt_tokens": "10", "completion_tokens": None}, (0, 0, 0)),
        ({"prompt_tokens": -1, "completion_tokens": True}, (0, 0, 0)),
        ({"prompt_tokens": 1e300, "completion_tokens": 3}, (0, 0, 3)),
    ],
)
def test_strange_usage_is_bearable(usage: dict, expected: tuple[int, int, int]) -> None:
    read = read_usage(usage)
    assert (read["input_tokens"], read["cache_read_tokens"], read["output_tokens"]) == expected


def test_what_openrouter_charged_is_taken_to_the_micro_dollar() -> None:
    assert read_usage({"prompt_tokens": 1, "cost": 0.0011475})["cost_micros"] == 1148
