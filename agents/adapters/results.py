"""The result protocol: how a program or a web service says what a run amounted to.

One JSON object with any of: `summary` (text), `status` (a wish for the issue), `usage`
(`model`, `provider`, `inputTokens`, `cacheReadTokens`, `cacheWriteTokens`, `outputTokens`,
`reasoningTokens`), `cost` (US dollars), `session` (an id), `result` (any object) and `error` (a
text, or an object with `message`), which says that the work failed.
Other keys are ignored. Programs print it as the last JSON line of their output or write it to
the file named by PAPERCLIP_RESULT_FILE; services answer with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field, ValidationError

from agents.adapters import lenient
from agents.adapters.base import MAX_TOKENS, AdapterError, Code, Config, Done, Usage

RECOGNISED = frozenset(
    {"summary", "status", "usage", "cost", "costUsd", "session", "sessionId", "result"}
)
MAX_RESULT_BYTES = 1024**2
MAX_ERROR_CHARS = 2_000

Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


def _dollars(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | str):
        try:
            return Decimal(str(value))
        except InvalidOperation:
            return value
    return value


def _said(value: Any) -> Any:
    return value.get("message") if isinstance(value, Mapping) else value


def _session_id(value: Any) -> Any:
    return value.get("id") if isinstance(value, Mapping) else value


class ReportedUsage(Config, extra="ignore"):
    model: str = Field("", max_length=200)
    provider: str = Field("", max_length=200)
    input_tokens: Tokens = 0
    cache_read_tokens: Tokens = Field(
        0, validation_alias=AliasChoices("cacheReadTokens", "cachedInputTokens")
    )
    cache_write_tokens: Tokens = 0
    output_tokens: Tokens = 0
    reasoning_tokens: Tokens = 0


class Report(Config, extra="ignore", str_max_length=MAX_RESULT_BYTES):
    summary: str = ""
    status: Literal["done", "in_review", "blocked", "in_progress", "cancelled"] | None = None
    usage: ReportedUsage | None = None
    cost: Annotated[Decimal | None, BeforeValidator(_dollars), Field(ge=0, lt=1_000_000)] = Field(
        None, validation_alias=AliasChoices("cost", "costUsd")
    )
    session: Annotated[str | None, BeforeValidator(_session_id), Field(max_length=1000)] = Field(
        None, validation_alias=AliasChoices("session", "sessionId")
    )
    result: dict[str, Any] | None = None
    error: Annotated[str | None, BeforeValidator(_said), Field(min_length=1)] = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was used, and how it ended: `failure` is set when the agent says that it failed."""

    usage: Usage | None
    done: Done
    failure: AdapterError | None = None


def recognise(text: str | bytes, *, also: frozenset[str] = frozenset()) -> Mapping[str, Any] | None:
    """The object in `text` when a key of the protocol, or of `also`, shows it to be one.

    Lines of a log have an `error`, too: that alone makes a result of what has nothing else.
    """
    text = text.strip()
    opening: Any = text[:1]
    if opening not in ("{", b"{"):
        return None
    try:
        parsed = lenient.loads(text)
    except ValueError:
        return None
    if not isinstance(parsed, dict):
        return None
    is_result = bool((RECOGNISED | also) & parsed.keys()) or parsed.keys() == {"error"}
    return parsed if is_result else None


def read(raw: Mapping[str, Any], *, provider: str) -> Outcome:
    """The outcome that `raw` reports. Raises AdapterError(BAD_RESULT)."""
    try:
        report = Report.model_validate(dict(raw))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AdapterError(
            Code.BAD_RESULT, f"The reported result is not valid: {where}: {first['msg']}"
        ) from error
    done = Done(
        summary=report.summary.strip(),
        status=report.status,
        result=report.result or {},
        session_id=report.session or "",
    )
    failure = None
    if report.error is not None:
        # It may have done half of the work: a person decides whether it is done again.
        failure = AdapterError(Code.REPORTED, report.error.strip()[:MAX_ERROR_CHARS], acted=True)
    return Outcome(_usage(report, provider), done, failure)


def _usage(report: Report, provider: str) -> Usage | None:
    if report.usage is None and report.cost is None:
        return None
    counts = report.usage or ReportedUsage.model_validate({})
    cost = None if report.cost is None else int((report.cost * 1_000_000).to_integral_value())
    return Usage(
        call=1,
        provider=counts.provider or provider,
        model=counts.model,
        input_tokens=counts.input_tokens,
        cache_read_tokens=counts.cache_read_tokens,
        cache_write_tokens=counts.cache_write_tokens,
        output_tokens=counts.output_tokens,
        reasoning_tokens=counts.reasoning_tokens,
        cost_micros=cost,
    )
