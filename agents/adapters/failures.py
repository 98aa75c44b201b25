"""From what a provider answers to a code that people and the engine can act on.

Knows the HTTP statuses, the error objects and the waiting times of the providers; knows no
streams. Read next: `agents/adapters/chat.py`.
"""

from __future__ import annotations

import email.utils
import json
import random
import re
import time
from collections.abc import Iterable, Mapping
from datetime import tzinfo
from typing import Any

import httpx
import orjson

from agents.adapters import resets
from agents.adapters.base import AdapterError, Code

BODY_SHOWN = 2048  # bytes of a foreign error body that are kept
LONGEST_WAIT_SECONDS = 60.0  # longer ones are for the schedule, not for a sleeping run
RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})

KEY_LIKE = re.compile(r"\b(?:sk|pk|rk|gsk|xai|key|whsec|ppk)[-_][A-Za-z0-9_\-]{8,}")
BEARER = re.compile(r"(?i)\bbearer\s+[A-Za-z0-9._~+/\-]{8,}=*")

# Types and codes of error objects, by the words of OpenAI, Anthropic, llama.cpp and others.
BY_WORD: dict[str, Code] = {
    "overloaded_error": Code.PROVIDER_OVERLOADED,
    "api_error": Code.PROVIDER_OVERLOADED,
    "server_error": Code.PROVIDER_OVERLOADED,
    "internal_server_error": Code.PROVIDER_OVERLOADED,
    "service_unavailable": Code.PROVIDER_OVERLOADED,
    "unavailable_error": Code.PROVIDER_OVERLOADED,
    "timeout_error": Code.PROVIDER_OVERLOADED,
    "rate_limit_error": Code.RATE_LIMITED,
    "rate_limit_exceeded": Code.RATE_LIMITED,
    "insufficient_quota": Code.QUOTA_EXHAUSTED,
    "usage_limit_reached": Code.QUOTA_EXHAUSTED,
    "billing_error": Code.QUOTA_EXHAUSTED,
    "billing_hard_limit_reached": Code.QUOTA_EXHAUSTED,
    "billing_not_active": Code.QUOTA_EXHAUSTED,
    "insufficient_balance": Code.QUOTA_EXHAUSTED,
    "authentication_error": Code.AUTH_FAILED,
    "permission_error": Code.AUTH_FAILED,
    "invalid_api_key": Code.AUTH_FAILED,
    "model_not_found": Code.MODEL_NOT_FOUND,
    "context_length_exceeded": Code.CONTEXT_TOO_LONG,
    "exceed_context_size_error": Code.CONTEXT_TOO_LONG,
    "request_too_large": Code.CONTEXT_TOO_LONG,
    "content_filter": Code.REFUSED,
    "content_policy_violation": Code.REFUSED,
    "invalid_request_error": Code.BAD_REQUEST,
}
PRECISE = frozenset(
    {
        Code.QUOTA_EXHAUSTED,
        Code.MODEL_NOT_FOUND,
        Code.CONTEXT_TOO_LONG,
        Code.REFUSED,
    }
)
# After these it is worth looking for words that say when it will be better.
PASSING = frozenset({Code.RATE_LIMITED, Code.QUOTA_EXHAUSTED, Code.PROVIDER_OVERLOADED})
# A limit that lasts longer is no rate but a quota.
LONGEST_RATE_SECONDS = 24 * 3600.0

BY_PHRASE: tuple[tuple[re.Pattern[str], Code], ...] = (
    (
        re.compile(r"prompt is too long|maximum context length|context (?:size|window)", re.I),
        Code.CONTEXT_TOO_LONG,
    ),
    (
        re.compile(
            r"credit balance|insufficient (?:balance|quota|credits)|your current quota", re.I
        ),
        Code.QUOTA_EXHAUSTED,
    ),
    (
        re.compile(r"unknown model|\bmodel\b.{0,120}(?:not found|not exist)", re.I | re.S),
        Code.MODEL_NOT_FOUND,
    ),
)


class CallFailed(AdapterError):
    """A call to a provider failed. `retryable` says that the same call may do better soon."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(code, message, retry_after=retry_after, detail=detail)
        self.retryable = retryable


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without the given secrets and without anything that looks like a key."""
    for secret in sorted({s for s in secrets if len(s) >= 4}, key=len, reverse=True):
        text = text.replace(secret, "[redacted]")
    return BEARER.sub("[redacted]", KEY_LIKE.sub("[redacted]", text))


def retry_after(headers: httpx.Headers, *, now: float | None = None) -> float | None:
    """Seconds to wait as the answer asks: milliseconds, seconds or an HTTP date; else None."""
    millis = headers.get("retry-after-ms")
    if millis is not None:
        try:
            return _bounded(float(millis) / 1000)
        except ValueError:
            pass
    text = headers.get("retry-after")
    if text is None:
        return None
    if re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", text):
        return _bounded(float(text))
    try:
        moment = email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return _bounded(moment - (time.time() if now is None else now))


def _bounded(seconds: float) -> float:
    """Between at once and a week, whatever a header says; what is no number is at once."""
    return min(max(0.0, seconds), resets.WEEK_SECONDS)


def until_reset(
    code: Code, text: str, *, now: float | None = None, zone: tzinfo | None = None
) -> tuple[Code, float | None]:
    """When the limit that `text` tells of is lifted, in seconds, and the code that follows:
    who has to wait for more than a day has used up a quota."""
    wait = resets.told(text, now=now, zone=zone) if code in PASSING else None
    if wait is not None and wait > LONGEST_RATE_SECONDS:
        return Code.QUOTA_EXHAUSTED, wait
    return code, wait


def jitter(attempt: int) -> float:
    """Seconds before repeat number `attempt` (from 1): full jitter between 0.5 and 8."""
    return random.uniform(0.5, min(8.0, 2.0**attempt))  # noqa: S311 (nothing to guess)


def from_response(
    response: httpx.Response, body: bytes, *, secrets: Iterable[str] = ()
) -> CallFailed:
    """The failure that an answer other than 200 means."""
    status = response.status_code
    shown = redact(body[:BODY_SHOWN].decode("utf-8", "replace"), secrets).replace("\0", "")
    words, message = error_words(_parsed(body))
    message = redact(message, secrets) or _plain_text(shown)
    detail: dict[str, Any] = {"status": status, "body": shown}
    for header in ("request-id", "x-request-id", "x-generation-id"):
        if header in response.headers:
            detail["request_id"] = response.headers[header][:200]
            break
    code = _code(status, words, message)
    wait = retry_after(response.headers)
    if wait is None and code in PASSING:
        wait = resets.in_headers(response.headers)
    if wait is None:
        code, wait = until_reset(code, body[: resets.MAX_CHARS].decode("utf-8", "replace"))
    should = response.headers.get("x-should-retry", "").lower()
    retryable = (
        status in RETRYABLE_STATUSES
        and code not in PRECISE
        and code is not Code.AUTH_FAILED
        and should != "false"
    )
    return CallFailed(
        code,
        _sentence(status, code, message, response),
        retryable=retryable,
        retry_after=wait,
        detail=detail,
    )


def from_error_object(error: Any, *, secrets: Iterable[str] = ()) -> CallFailed:
    """The failure that an error object in the middle of a stream means."""
    words, message = error_words({"error": error})
    message = redact(message, secrets)[:BODY_SHOWN]
    code = next((BY_WORD[word] for word in words if word in BY_WORD), None)
    if code is None:
        code = next((_code(int(w), words, message) for w in words if _is_status(w)), None)
    if code is None:
        code = _by_phrase(message) or Code.STREAM_BROKEN
    code, wait = until_reset(code, _as_text(error))
    transient = {Code.PROVIDER_OVERLOADED, Code.RATE_LIMITED, Code.STREAM_BROKEN}
    return CallFailed(
        code,
        f"The provider ended the answer with an error: {message or ', '.join(words) or 'unknown'}",
        retryable=code in transient,
        retry_after=wait,
        detail={"words": words},
    )


def from_transport(error: httpx.HTTPError, host: str) -> CallFailed:
    """The failure of a connection: never made, or lost on the way."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        why = "did not answer in time" if isinstance(error, httpx.ConnectTimeout) else str(error)
        return CallFailed(
            Code.CONNECT_FAILED,
            f"Could not connect to {host}: {why or 'no connection'}",
            retryable=True,
        )
    what = str(error) or type(error).__name__
    return CallFailed(Code.STREAM_BROKEN, f"The connection to {host} broke: {what}", retryable=True)


def error_words(parsed: Any) -> tuple[list[str], str]:
    """Type and code words of an error body, most precise first, and its message."""
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]  # Google's form
    if not isinstance(parsed, Mapping):
        return [], ""
    error = parsed.get("error", parsed)
    if isinstance(error, str):
        return [], error
    if not isinstance(error, Mapping):
        return [], ""
    words = [str(error[key]).lower() for key in ("code", "type") if error.get(key)]
    message = error.get("message") or parsed.get("message") or parsed.get("detail") or ""
    return words, message if isinstance(message, str) else str(message)


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body.strip())
    except orjson.JSONDecodeError:
        return None


def _as_text(error: Any) -> str:
    return error if isinstance(error, str) else json.dumps(error, default=str)


def _is_status(word: str) -> bool:
    return word.isdecimal() and 400 <= int(word) < 600


def _by_phrase(message: str) -> Code | None:
    return next((code for pattern, code in BY_PHRASE if pattern.search(message)), None)


def _code(status: int, words: list[str], message: str) -> Code:
    named = next((BY_WORD[w] for w in words if BY_WORD.get(w) in PRECISE), None)
    if named is None and status in (400, 402, 403, 404, 413, 422, 429):
        named = _by_phrase(message)
    if named is not None:
        return named
    if 300 <= status < 400 or status in (405, 501):
        return Code.CONFIG_INVALID
    if status == 402:
        return Code.QUOTA_EXHAUSTED
    if status == 403 and re.search(r"moderation|flagged", message, re.I):
        return Code.REFUSED
    if status in (401, 403):
        return Code.AUTH_FAILED
    if status == 404:
        return Code.MODEL_NOT_FOUND if words else Code.CONFIG_INVALID
    if status == 413:
        return Code.CONTEXT_TOO_LONG
    if status == 429:
        return Code.RATE_LIMITED
    if status in RETRYABLE_STATUSES or status >= 500:
        return Code.PROVIDER_OVERLOADED
    return Code.BAD_REQUEST


def _plain_text(shown: str) -> str:
    text = re.sub(r"<[^>]*>", " ", shown) if "<" in shown else shown
    return " ".join(text.split())[:300]


def _sentence(status: int, code: Code, message: str, response: httpx.Response) -> str:
    if 300 <= status < 400:
        target = response.headers.get("location", "another address")
        return f"The server redirects to {redact(target)[:300]}; redirects are not followed."
    opening = {
        Code.AUTH_FAILED: "The provider does not accept the key",
        Code.MODEL_NOT_FOUND: "The provider does not know the model",
        Code.CONTEXT_TOO_LONG: "The conversation is too long for the model",
        Code.QUOTA_EXHAUSTED: "The account at the provider is used up",
        Code.RATE_LIMITED: "The provider asks to slow down",
        Code.PROVIDER_OVERLOADED: "The provider has trouble",
        Code.REFUSED: "The provider's filter refused the request",
        Code.CONFIG_INVALID: "The address does not answer like this kind of provider",
    }.get(code, "The provider refuses the request")
    return f"{opening} (HTTP {status}): {message}" if message else f"{opening} (HTTP {status})."
