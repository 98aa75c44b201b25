"""The log: one line a message, readable or JSON, with the ids of the run that it is about, and
never the same message more than once a second.

`PAPERCLIP_LOG_FORMAT=json` makes each line an object. What is bound by `about` goes onto every line
that is written meanwhile, also from the threads that work for a run.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import structlog

WINDOW_SECONDS = 1.0
MOST_REMEMBERED = 1_000
_IDS = ("run_id", "company_id", "agent_id", "issue_id")
# What ends a line, or moves a terminal's cursor, shown as it is written in a program.
_SHOWN = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
    if chr(code) != "\t"
}

Clock = Callable[[], float]
EventDict = MutableMapping[str, Any]


def about(**ids: object) -> None:
    """Binds ids (run_id, company_id, agent_id, issue_id) to what this task or thread logs from
    here on, and to what it has others do."""
    given = {name: str(value) for name, value in ids.items() if value is not None}
    structlog.contextvars.bind_contextvars(**given)


class Throttle(logging.Filter):
    """Lets the same message through once a second; the next one says how many there were.

    The same is: of one logger, one level, one text. Also usable as an ordinary filter; then what
    has no successor is never told. `overdue` gives those.
    """

    def __init__(self, window_seconds: float = WINDOW_SECONDS, clock: Clock = time.monotonic):
        super().__init__()
        self._window = window_seconds
        self._clock = clock
        # When it was last let through, how many were held back since, the last of them.
        self._seen: dict[tuple[str, int, str], tuple[float, int, logging.LogRecord | None]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._clock()
        key = (record.name, record.levelno, record.getMessage())
        at, held, _ = self._seen.get(key, (float("-inf"), 0, None))
        if now - at < self._window:
            self._seen[key] = (at, held + 1, record)
            return False
        self._make_room(now)
        self._seen.pop(key, None)  # the newest stands last
        self._seen[key] = (now, 0, None)
        if held:
            record.repeated = held
        return True

    def overdue(self) -> list[logging.LogRecord]:
        """What was held back and has had no successor for a while: each once, with its count."""
        now = self._clock()
        late = []
        for key, (at, held, record) in list(self._seen.items()):
            if now - at < self._window:
                continue
            if record is not None:
                record.repeated = held - 1
                late.append(record)
                self._seen[key] = (now, 0, None)
        return late

    def _make_room(self, now: float) -> None:
        """Forgets what is over; of too many distinct messages the oldest, told or not."""
        if len(self._seen) < MOST_REMEMBERED:
            return
        for key, (at, held, _) in list(self._seen.items()):
            if now - at >= self._window and not held:
                del self._seen[key]
        while len(self._seen) >= MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]


class Stderr(logging.StreamHandler[TextIO]):
    """Writes what the throttle lets through, and with it what has become overdue."""

    def __init__(self, stream: TextIO | None = None, throttle: Throttle | None = None) -> None:
        super().__init__(stream or sys.stderr)
        self.throttle = throttle or Throttle()

    def emit(self, record: logging.LogRecord) -> None:
        # Written later, perhaps, while something else is bound.
        record.bound = structlog.contextvars.get_contextvars()
        try:
            passes = self.throttle.filter(record)
        except Exception:  # a message that does not fit its arguments
            self.handleError(record)
            return
        for late in self.throttle.overdue():
            super().emit(late)
        if passes:
            super().emit(record)

    def close(self) -> None:
        """The last words of a process: what was held back."""
        try:
            self.throttle._clock = lambda: float("inf")
            for late in self.throttle.overdue():
                super().emit(late)
        finally:
            super().close()


def _add_count(_: Any, __: str, event: EventDict) -> EventDict:
    repeated = getattr(event.get("_record"), "repeated", 0)
    if repeated:
        event["repeated"] = repeated
    return event


def _add_context(_: Any, __: str, event: EventDict) -> EventDict:
    record = event.get("_record")
    for name, value in getattr(record, "bound", {}).items():
        event.setdefault(name, value)
    for name in _IDS:
        value = getattr(record, name, None)
        if value is not None:
            event[name] = str(value)
    return event


def _as_text(_: Any, __: str, event: EventDict) -> str:
    """One line: level, logger, message, then what is known besides."""
    text = str(event["event"]).translate(_SHOWN)
    ids = " ".join(
        f"{name.removesuffix('_id')}={event[name]}"
        for name in _IDS
        if name in event and str(event[name]) not in text
    )
    repeated = f"({event['repeated']} more like it)" if "repeated" in event else ""
    line = f"{event['level'].upper()} {event['logger']}: {text}"
    return " ".join(part for part in (line, ids, repeated) if part) + event.get("exception", "")


def _exception_below(_: Any, __: str, event: EventDict) -> EventDict:
    """For people: the traceback on lines of its own."""
    if "exception" in event:
        event["exception"] = "\n" + str(event["exception"])
    return event


def formatter(log_format: str) -> logging.Formatter:
    """The formatter of `text` or `json` lines."""
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _add_context,
        _add_count,
    ]
    if log_format == "json":
        last: list[Any] = [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(sort_keys=True, ensure_ascii=False),
        ]
    else:
        last = [
            structlog.processors.format_exc_info,
            _exception_below,
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _as_text,
        ]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last)


def config(*, log_format: str, level: str) -> dict[str, Any]:
    """Django's LOGGING."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "paperclip.logs.formatter", "log_format": log_format}},
        "handlers": {"stderr": {"class": "paperclip.logs.Stderr", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django.request": {"level": "ERROR"},
            # Anybody on the network can send a wrong host name, as often as they like.
            "django.security.DisallowedHost": {"level": "CRITICAL"},
            "django-q": {"level": "WARNING"},
            "httpx": {"level": "WARNING"},
        },
    }
