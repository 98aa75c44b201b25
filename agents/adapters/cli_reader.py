"""What a command-line agent says, line by line, and how its run ended by what it said.

A CLI's own file brings a `Reader` that knows its words; what they share stands here. Pure: no
process, no clock. The exit code is only asked when the stream said nothing.
Read next: `agents/adapters/claude_local.py`.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import orjson

from agents.adapters import failures
from agents.adapters.base import Code, Event, Step, Text, Usage

MAX_LINE_CHARS = 8 * 1024**2
MAX_TOOL_OUTPUT_CHARS = 60_000
STDERR_TAIL_CHARS = 8_000
CHARS_PER_TOKEN = 4
ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")


class Lines:
    """Pieces of text in, whole lines out; what is too long for a line is cut, and says so."""

    def __init__(self, *, limit: int = MAX_LINE_CHARS) -> None:
        self._limit = limit
        self._tail = ""
        self._cut = 0

    def feed(self, text: str) -> list[str]:
        lines = text.split("\n")  # never splitlines(): U+2028 stands inside JSON strings
        lines[0] = self._tail + lines[0]
        self._tail = ""
        whole = [self._ended(line) for line in lines[:-1]]
        rest = lines[-1]
        if len(rest) > self._limit:
            self._cut += len(rest) - self._limit
            rest = rest[: self._limit]
        self._tail = rest
        return whole

    def close(self) -> list[str]:
        last, self._tail = self._tail, ""
        return [self._ended(last)] if last else []

    def _ended(self, line: str) -> str:
        line = line.removesuffix("\r")
        over = self._cut + max(0, len(line) - self._limit)
        self._cut = 0
        return f"{line[: self._limit]} [cut {over} characters]" if over else line


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, by what was said. `code` None means: well."""

    code: Code | None = None
    message: str = ""
    retry_after: float | None = None
    waits: str = ""  # beside the message: in what a reset may be told
    session_gone: bool = False  # the session to resume is unknown: a fresh one will do


@dataclass(slots=True)
class Tokens:
    """Counted tokens, in the meaning of `Usage`: the totals include their parts."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    output: int = 0
    reasoning: int = 0

    def __bool__(self) -> bool:
        return bool(self.input or self.output)

    def add(self, other: Tokens) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def since(self, earlier: Tokens) -> Tokens:
        """What came on top of `earlier`; a total never runs backwards."""
        return Tokens(
            *(max(0, getattr(self, name) - getattr(earlier, name)) for name in self.__slots__)
        )

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, raw: Any) -> Tokens:
        known = raw if isinstance(raw, Mapping) else {}
        return cls(*(count(known.get(name)) for name in cls.__slots__))


@dataclass(slots=True)
class Expectation:
    """What is known before the first line: who is asked, and what was sent."""

    provider: str = ""
    model: str = ""
    prompt_chars: int = 0
    session_id: str = ""  # the one to resume, "" for a fresh one
    session_usage: Tokens = field(default_factory=Tokens)  # booked for that session before
    first_party: bool = False  # the vendor's own service: what it says of costs is true


class Reader(abc.ABC):
    """Base of the readers: turns lines into events and keeps what the end will need."""

    # Tokens that one model call sends beyond our prompt (measured): for estimates only.
    overhead_tokens: ClassVar[int] = 5_000

    def __init__(self, expected: Expectation) -> None:
        self.expected = expected
        self.model = expected.model
        self.session_id = ""
        self.version = ""
        self.finished = False  # the CLI said that it is done, whatever the process does
        self.give_up: Ending | None = None  # it will not get anywhere: end it
        self.acted = False  # a tool ran
        self.steps = 0  # model turns and tool calls, for the watchdog
        self.turns = 0  # model turns
        self.answer = ""  # the last words to whoever reads the run
        self.output_chars = 0
        self.denied: list[str] = []  # what it was not allowed to do
        self.context_tokens = 0  # size of the last model call's input
        self.stderr = ""
        self.calls = 0  # booked model calls
        self.in_tool = False  # it was cut short while a tool ran, so no model call was open
        self._open: dict[str, str] = {}  # started steps: id -> name

    # --- lines -------------------------------------------------------------------------------

    def line(self, text: str) -> list[Event]:
        """The events of one line of standard output; what is not understood is kept raw."""
        if not text.strip():
            return []
        try:
            parsed = orjson.loads(text)
        except orjson.JSONDecodeError:
            parsed = None
        if isinstance(parsed, dict):
            try:
                events = self.read(parsed)
            except (AttributeError, KeyError, TypeError, ValueError, IndexError):
                events = None  # a known line in an unknown form
            if events is not None:
                return events
        return [Text(text + "\n", "stdout")]

    def error_line(self, text: str) -> list[Event]:
        """The events of one line of standard error."""
        self.stderr = (self.stderr + ANSI.sub("", text) + "\n")[-STDERR_TAIL_CHARS:]
        return [Text(text + "\n", "stderr")]

    @abc.abstractmethod
    def read(self, said: dict[str, Any]) -> list[Event] | None:
        """The events of one JSON line; None when it is not known."""

    @abc.abstractmethod
    def ending(self, exit_code: int | None) -> Ending:
        """How it ended, asked once after the last line."""

    @abc.abstractmethod
    def usages(self) -> list[Usage]:
        """Usage not yielded with a line; asked once after the last line, however it ended."""

    def session_usage(self) -> Tokens:
        """What to remember as booked when the session goes on."""
        return Tokens()

    # --- help for those who read ---------------------------------------------------------------

    def say(self, text: str) -> list[Event]:
        self.output_chars += len(text)
        return [Text(text)] if text else []

    def think(self, text: str) -> list[Event]:
        self.output_chars += len(text)
        return [Text(text, "thinking")] if text else []

    def note(self, text: str) -> list[Event]:
        return [Text(text.rstrip("\n") + "\n", "stderr")] if text else []

    def begin_step(self, id_: str, name: str, input_: Any) -> list[Event]:
        self.steps += 1
        self.acted = True
        self._open[id_] = name
        given = input_ if isinstance(input_, Mapping) else {"input": input_}
        self.output_chars += len(str(given))
        return [Step(id=id_, name=name, phase="start", input=given)]

    def end_step(self, id_: str, output: Any, *, is_error: bool = False) -> list[Event]:
        name = self._open.pop(id_, "")
        text = output if isinstance(output, str) else "" if output is None else dumps(output)
        if len(text) > MAX_TOOL_OUTPUT_CHARS:
            over = len(text) - MAX_TOOL_OUTPUT_CHARS
            text = f"{text[:MAX_TOOL_OUTPUT_CHARS]}\n[cut {over} characters]"
        return [Step(id=id_, name=name or "tool", phase="end", output=text, is_error=is_error)]

    def open_steps(self) -> list[tuple[str, str]]:
        """Steps that began and did not end, as (id, name); they are forgotten now."""
        left = list(self._open.items())
        self.in_tool = bool(left)
        self._open.clear()
        return left

    def book(self, tokens: Tokens, **facts: Any) -> Usage:
        """The next `Usage` of this run."""
        self.calls += 1
        return Usage(
            call=self.calls,
            provider=facts.pop("provider", self.expected.provider),
            model=facts.pop("model", self.model or self.expected.model),
            input_tokens=tokens.input,
            cache_read_tokens=tokens.cache_read,
            cache_write_tokens=tokens.cache_write,
            cache_write_1h_tokens=tokens.cache_write_1h,
            output_tokens=tokens.output,
            reasoning_tokens=tokens.reasoning,
            **facts,
        )

    def estimate(self, *, calls: int = 1) -> Tokens:
        """What `calls` model calls without a count have likely used."""
        sent = self.overhead_tokens + _tokens(self.expected.prompt_chars)
        return Tokens(
            input=calls * sent + (calls - 1) * _tokens(self.output_chars) // 2,
            output=_tokens(self.output_chars),
        )

    def wordless(self, exit_code: int | None, known: Sequence[Phrase]) -> Ending:
        """The ending when the stream did not tell: by standard error, then by exit code."""
        said = self.stderr.strip()
        for phrase in known:
            if phrase.pattern.search(said):
                return phrase.ending(said)
        if exit_code in (126, 127):
            return Ending(Code.NOT_INSTALLED, last_line(said) or "The program did not start.")
        if exit_code == 0 and not self.steps and not self.output_chars:
            return Ending(Code.BAD_RESULT, "The program ended without saying or doing anything.")
        if exit_code == 0:
            return Ending(Code.BAD_RESULT, "The program ended without an answer.")
        told = f": {last_line(said)}" if said else "."
        return Ending(Code.EXIT_NONZERO, f"The program ended with exit code {exit_code}{told}")


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words on standard error that tell what happened."""

    pattern: re.Pattern[str]
    code: Code
    message: str = ""  # "" shows the last line of what was said
    session_gone: bool = False

    def ending(self, said: str) -> Ending:
        found = self.pattern.search(said)
        shown = self.message or (_line_around(said, found.start()) if found else last_line(said))
        return Ending(self.code, shown, session_gone=self.session_gone)


def phrase(pattern: str, code: Code, message: str = "", *, session_gone: bool = False) -> Phrase:
    return Phrase(re.compile(pattern, re.IGNORECASE), code, message, session_gone)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return failures.redact(lines[-1])[:500] if lines else ""


def _line_around(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return last_line(text[start : end if end >= 0 else None])


def _tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)


def count(value: Any) -> int:
    """A token count as programs write it; what cannot be one is 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < 2**53 else 0


def micros(dollars: Any) -> int | None:
    """Dollars as micro-dollars; None for what is no amount."""
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    return round(dollars * 1_000_000) if 0 <= dollars < 1_000_000 else None


def dumps(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()


# --- what an error message means --------------------------------------------------------------

_STATUS = re.compile(
    r"(?:last status:?|unexpected status|status(?:code)?|API Error:?|rejected|\bHTTP)"
    r"\D{0,3}\b([45]\d\d)\b|\"code\"\s*:\s*([45]\d\d)\b",
    re.IGNORECASE,
)
_PRECISE: tuple[tuple[re.Pattern[str], Code], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (
            r"prompt is too long|context window|maximum context|context_length|context length|"
            r"input token count",
            Code.CONTEXT_TOO_LONG,
        ),
        (
            r"credit balance|usage limit|hit your (?:[\w-]+ )?limit|"
            r"(?:hour|weekly|session|plan) limit|insufficient.(?:quota|balance|credit)|"
            r"exceeded your current quota|billing",
            Code.QUOTA_EXHAUSTED,
        ),
        (r"output token maximum|max_output_tokens|max.?tokens", Code.TRUNCATED_OUTPUT),
        (r"usage policy|content.?filter|prohibited|safety", Code.REFUSED),
        (r"not logged in|please run /login|missing environment variable", Code.AUTH_FAILED),
        (
            r"model\b.{0,120}(?:not found|not exist|not supported|no access)|selected model",
            Code.MODEL_NOT_FOUND,
        ),
    )
)
_LOOSE: tuple[tuple[re.Pattern[str], Code], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (r"authenticat|unauthori[sz]ed|api.?key|log.?in\b|forbidden", Code.AUTH_FAILED),
        (r"rate.?limit|too many requests|resource_exhausted", Code.RATE_LIMITED),
        (r"high demand|overloaded|server.?error|unavailable|internal", Code.PROVIDER_OVERLOADED),
        (
            r"unable to connect|connection.?refused|econnrefused|enotfound|lookup address|"
            r"error sending request|connection failed|fetch failed",
            Code.CONNECT_FAILED,
        ),
        (
            r"stream disconnected|terminated|finish reason|econnreset|socket|stream closed|"
            r"connection (?:closed|reset|error)|decoding response",
            Code.STREAM_BROKEN,
        ),
        (r"invalid_request|invalid_argument|bad request", Code.BAD_REQUEST),
    )
)
_BY_STATUS: dict[int, Code] = {
    400: Code.BAD_REQUEST,
    401: Code.AUTH_FAILED,
    402: Code.QUOTA_EXHAUSTED,
    403: Code.AUTH_FAILED,
    404: Code.MODEL_NOT_FOUND,
    413: Code.CONTEXT_TOO_LONG,
    422: Code.BAD_REQUEST,
    429: Code.RATE_LIMITED,
}


def classify(message: str, *, status: Any = None, default: Code = Code.EXIT_NONZERO) -> Code:
    """What kind of failure a CLI's message is about, by its words and the HTTP status in it."""
    for pattern, code in _PRECISE:
        if pattern.search(message):
            return code
    if not isinstance(status, int) or isinstance(status, bool):
        found = _STATUS.search(message)
        status = int(found[1] or found[2]) if found else None
    if status is not None:
        return _BY_STATUS.get(
            status, Code.PROVIDER_OVERLOADED if status >= 500 else Code.BAD_REQUEST
        )
    for pattern, code in _LOOSE:
        if pattern.search(message):
            return code
    return default
