"""When a limit is lifted is read from fields, headers and words, and nonsense is ignored."""

import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import httpx
import pytest

from agents import adapters
from agents.adapters import failures, resets
from agents.adapters.base import Code
from agents.adapters.cli_reader import Expectation
from agents.adapters.codex_local import CodexReader
from agents.adapters.gemini_local import GeminiReader
from agents.adapters.opencode_local import OpenCodeReader
from tests.adapters.conftest import make_brief, play
from tests.mock_llm import Served

NOW = datetime(2026, 8, 20, 12, 0, tzinfo=UTC).timestamp()  # a Thursday
HOUR, DAY, WEEK = 3600, 24 * 3600, 7 * 24 * 3600


def told(text: str, zone: str = "UTC") -> float | None:
    return resets.told(text, now=NOW, zone=ZoneInfo(zone))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ('{"error": {"type": "usage_limit_reached", "resets_at": 1787227263}}', 63),
        (r'"{\"resets_at\":1787227263,\"resets_in_seconds\":63}"', 63),
        ('{"status":"rejected","resetsAt":1787227263}', 63),
        ('{"resets_at": 1787227263000}', 63),
        ('{"reset_at": "2026-08-20T12:01:03Z"}', 63),
        ('{"quotaResetTimeStamp": "2026-08-20T14:01:03+02:00"}', 63),
        ("Claude AI usage limit reached|1787227263", 63),
        ('{"@type": "…/google.rpc.RetryInfo", "retryDelay": "34.07s"}', 34.07),
        ('{"error": {"retry_after_ms": 1500}}', 1.5),
        ('{"resets_in_seconds": 9568}', 9568),
        ('{"retry-after": "7"}', 7),
    ],
)
def test_a_field_tells_it(text: str, seconds: float) -> None:
    assert told(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Limit 30000, Used 1. Please try again in 1m3.5s.", 63.5),
        ("Please try again in 7.66s. Need more tokens?", 7.66),
        ("Rate limit reached. Please try again in 820ms.", 0.82),
        ("or try again in 5 days 22 hours 11\nminutes.", 5 * DAY + 22 * HOUR + 11 * 60),
        ("or try again in 2 hours, 5 minutes and 1 second", 2 * HOUR + 301),
        ("Your quota will reset after 16h29m9s.", 16 * HOUR + 29 * 60 + 9),
        ("Please retry in 34.074824224s.", 34.074824224),
        ("The limit resets in about 3 hours", 3 * HOUR),
        ("try again in an hour", HOUR),
    ],
)
def test_a_span_in_words_tells_it(text: str, seconds: float) -> None:
    assert told(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("You've hit your limit · resets 4 a.m. (Asia/Tokyo)", 7 * HOUR),
        ("You've hit your session limit · resets 2pm (UTC)", 2 * HOUR),
        ("5-hour limit reached ∙ resets 3pm", 3 * HOUR),
        ("limit resets at 3:45 PM UTC", 3 * HOUR + 45 * 60),
        ("Your limit will reset at 1pm (Etc/GMT+5).", 6 * HOUR),
        ("resets at midnight Pacific Time", 19 * HOUR),
        ("resets 10am (America/New_York)", 2 * HOUR),
        ("resets 11:50am (UTC)", 24 * HOUR - 600),
        ("try again at 23:30 UTC+2", 9 * HOUR + 1800),
        ("resets Thursday 5pm", 5 * HOUR),
        ("resets Wed at 11am (UTC)", 6 * DAY - HOUR),
        ("try again at Aug 23rd, 2026 9:30 AM.", 3 * DAY - 2.5 * HOUR),
        ("try again at Aug 20, 2026, 7:38 PM", 7 * HOUR + 38 * 60),
        ("Weekly limit reached ∙ resets Aug 23, 10am", 3 * DAY - 2 * HOUR),
        ("resets Aug 23 at 6pm (Europe/Paris)", 3 * DAY + 4 * HOUR),
        ("try again at 23 Aug 2026, 11:52", 3 * DAY - 480),
        ("limit resets at: 2026-08-20T14:13:01+0000", 2 * HOUR + 781),
    ],
)
def test_a_moment_in_words_tells_it(text: str, seconds: float) -> None:
    assert told(text) == pytest.approx(seconds)


def test_a_time_without_a_zone_is_told_in_the_programs_own() -> None:
    assert told("resets 3pm", zone="Asia/Tokyo") == 18 * HOUR
    assert resets.zone_of({"TZ": "Asia/Tokyo"}) == ZoneInfo("Asia/Tokyo")
    assert resets.zone_of({"TZ": "Mars/Base"}) == UTC
    assert resets.zone_of({}) == resets.of_machine()


def test_the_clock_may_be_put_forward_before_the_reset() -> None:
    eve = datetime(2026, 3, 28, 20, 0, tzinfo=ZoneInfo("Europe/Paris")).timestamp()
    wait = resets.told("resets 10am (Europe/Paris)", now=eve)
    assert wait == 13 * HOUR  # of fourteen on the wall


@pytest.mark.parametrize(
    "text",
    [
        "",
        "This is usually temporary; try again in a moment.",
        "limits reset every 5h and every week",
        "Attempt 3 failed after 20s",
        "resets at 25:61",
        "resets 13pm",
        "resets 0am",
        "resets Feb 30, 10am",
        "resets 4pm (Mars/Base)",
        "resets 4pm (UTC+99)",
        "try again at 4pm QQT",
        "resets 11:58am (UTC)",  # has just passed: the provider's clock or ours is off
        '{"resets_at": 1787227100}',
        '{"resets_at": "soon"}',
        '{"resets_at": "2026-13-45T99:00:00Z"}',
        '{"resets_at": 12}',
        '{"resets_at": -1787227263}',
        "try again at 10 de jul. de 2026, 11:52",
    ],
)
def test_what_is_nonsense_or_over_is_ignored(text: str) -> None:
    assert told(text) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"resets_at": 9999999999}',
        "resets Dec 25 at 6pm (Europe/Paris)",
        "try again in 900 days",
        "limit resets at: 9999-12-31T23:59:59Z",
    ],
)
def test_a_reset_far_away_is_a_week_away(text: str) -> None:
    assert told(text) == WEEK


@pytest.mark.timeout(60)  # a runaway takes hours
@pytest.mark.parametrize("piece", ["resets ", "try again in 1 ", "resets_at: 1 ", "retry 1 "])
def test_only_the_beginning_of_a_long_text_is_read(piece: str) -> None:
    whole = piece * (resets.MAX_CHARS // len(piece) + 1)
    assert told(f"{whole} try again in 5s") is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "6m0s"}, None),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-08-20T12:01:03Z",
                "anthropic-ratelimit-tokens-remaining": "100",
                "anthropic-ratelimit-tokens-reset": "2026-08-20T18:00:00Z",
            },
            63,
        ),
        (
            {
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-reset": "1787227263",
            },
            63,
        ),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1787227263000"}, 63),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2615"}, 2615),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "whenever"}, None),
    ],
)
def test_a_header_tells_it_of_the_limit_that_is_used_up(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert resets.in_headers(httpx.Headers(headers), now=NOW) == seconds


# --- where failures are classified ----------------------------------------------------------------


def answer(status: int, body: str, **headers: str) -> failures.CallFailed:
    return failures.from_response(httpx.Response(status, headers=headers), body.encode())


def test_a_retry_after_goes_before_words() -> None:
    failure = answer(429, "Please try again in 20s", **{"retry-after": "7"})
    assert failure.retry_after == 7


def test_a_429_waits_as_its_body_says() -> None:
    failure = answer(429, '{"error": {"message": "Please try again in 1m3.5s"}}')
    assert (failure.code, failure.retry_after) == (Code.RATE_LIMITED, 63.5)


def test_googles_list_of_one_error_is_read() -> None:
    failure = answer(
        429,
        '[{"error": {"code": 429, "message": "You exceeded your current quota",'
        ' "details": [{"retryDelay": "38s"}]}}]',
    )
    assert (failure.code, failure.retry_after) == (Code.QUOTA_EXHAUSTED, 38)


def test_who_must_wait_for_days_has_used_up_a_quota() -> None:
    failure = answer(429, '{"error": {"message": "Slow down; try again in 3 days"}}')
    assert (failure.code, failure.retry_after) == (Code.QUOTA_EXHAUSTED, 3 * DAY)
    assert not failure.retryable


def test_a_failure_that_no_waiting_cures_has_no_wait() -> None:
    assert answer(400, '{"error": {"message": "try again in 20s"}}').retry_after is None


def test_an_error_in_the_middle_of_a_stream_tells_it() -> None:
    error = {"type": "usage_limit_reached", "resets_at": int(time.time()) + 63}
    failure = failures.from_error_object(error)
    assert failure.code is Code.QUOTA_EXHAUSTED
    assert failure.retry_after is not None
    assert 60 < failure.retry_after <= 63
    strange = failures.from_error_object({"type": "rate_limit_error", "message": "\udcff"})
    assert strange.retry_after is None


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_chat_model_leaves_a_long_wait_to_the_schedule(mock_llm: Served, kind: str) -> None:
    brief = make_brief(
        "[[mock:status=429;msg=Please try again in 1m3.5s]]",
        config={"baseUrl": mock_llm.url, "model": "m", "apiKeySecret": "KEY"},
    )
    played = play(adapters.get(kind), brief)
    assert played.error is not None
    assert (played.error.code, played.error.retry_after) == (Code.RATE_LIMITED, 63.5)
    assert len(mock_llm.state.posts) == 1


# --- what the programs say ------------------------------------------------------------------------


def wait_of(reader: object, line: str) -> tuple[Code | None, float | None]:
    reader.line(line)  # type: ignore[attr-defined]
    ending = reader.ending(1)  # type: ignore[attr-defined]
    return failures.until_reset(ending.code, f"{ending.waits}\n{ending.message}", now=NOW, zone=UTC)


def test_codex_tells_its_limit_in_words_and_in_fields() -> None:
    words = (
        '{"type":"turn.failed","error":{"message":"You\'ve hit your usage limit. Upgrade to Pro '
        '(https://example.org/pricing) or try again at Aug 23rd, 2026 9:30 AM."}}'
    )
    fields = (
        r'{"type":"turn.failed","error":{"message":"{\"error\":{\"type\":\"usage_limit_reached\",'
        r'\"message\":\"The usage limit has been reached\",\"resets_at\":1787227263}}"}}'
    )
    expected = 3 * DAY - 2.5 * HOUR
    assert wait_of(CodexReader(Expectation()), words) == (Code.QUOTA_EXHAUSTED, expected)
    assert wait_of(CodexReader(Expectation()), fields) == (Code.QUOTA_EXHAUSTED, 63)


def test_opencode_tells_the_providers_headers_and_body() -> None:
    line = (
        '{"type":"error","sessionID":"ses_12345678","error":{"name":"APIError","data":{"message":'
        '"slow","statusCode":429,"isRetryable":true,"responseHeaders":{HEADERS},'
        r'"responseBody":"{\"error\":{\"message\":\"Please try again in 1m3.5s\"}}"}}}'
    )
    header = line.replace("HEADERS", '"retry-after":"1"')
    assert wait_of(OpenCodeReader(Expectation()), header) == (Code.RATE_LIMITED, 1)
    words = line.replace("HEADERS", "")
    assert wait_of(OpenCodeReader(Expectation()), words) == (Code.RATE_LIMITED, 63.5)


def test_gemini_tells_the_providers_delay() -> None:
    line = (
        r'{"type":"result","status":"error","error":{"message":"[API Error: {\"error\":'
        r"{\"code\":429,\"message\":\"Resource exhausted\",\"details\":[{\"retryDelay\":\"38s\"}]"
        r'}}]"}}'
    )
    assert wait_of(GeminiReader(Expectation()), line) == (Code.RATE_LIMITED, 38)
