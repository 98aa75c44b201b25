"""A run's output as a page shows it: numbered lines in chunks, steps folded, errors open.

Pieces of text arrive as they were streamed, cut anywhere; they are joined into lines again here.
A chunk of 200 lines never changes once it is full, so a browser may skip what it does not show.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from agents.ansi import Painter, plain
from agents.models import RunEvent
from companies import format

CHUNK_LINES = 200
STEP_LINES = 400  # of one step's output on the page; the download has all
LINE_CHARS = 8_000
KINDS = ("status", "text", "stdout", "stderr", "step", "usage", "system")


@dataclass(slots=True)
class Transcript:
    """HTML of what was written, and where it stands."""

    html: SafeString = field(default_factory=lambda: mark_safe(""))
    lines: int = 0
    last_seq: int = 0
    errors: int = 0
    open_kind: str = ""  # of the last line, when it is not at its end yet


def render(events: Iterable[RunEvent], *, first_line: int = 1) -> Transcript:
    """The transcript of `events`, which are in order of `seq`."""
    writer = _Writer(first_line)
    for event in events:
        writer.add(event)
    return writer.close()


class _Writer:
    def __init__(self, first_line: int) -> None:
        self.number = first_line - 1
        self.items: list[str] = []
        self.open_kind = ""
        self.open_text: list[str] = []
        self.painter = Painter()
        self.steps: dict[str, tuple[int, dict[str, Any]]] = {}
        self.result = Transcript()

    def add(self, event: RunEvent) -> None:
        self.result.last_seq = event.seq
        data = event.data or {}
        if event.kind == RunEvent.Kind.TEXT:
            self._text("thinking" if data.get("channel") == "thinking" else "text", event.text)
        elif event.kind in (RunEvent.Kind.OUT, RunEvent.Kind.ERR):
            self._text(str(event.kind), event.text)
        elif event.kind == RunEvent.Kind.SYSTEM:
            self._end_line()
            self._text("system", event.text)
            self._end_line()
        elif event.kind == RunEvent.Kind.STEP:
            self._end_line()
            self._step(data, event.text)

    def close(self) -> Transcript:
        self.result.open_kind = self.open_kind if self.open_text else ""
        self._end_line()
        for index, data in self.steps.values():
            self.items[index] = self._fold(data, None, "")
        chunks = []
        for start in range(0, len(self.items), CHUNK_LINES):
            piece = self.items[start : start + CHUNK_LINES]
            full = " data-full" if len(piece) == CHUNK_LINES else ""
            chunks.append(f'<div class="chunk"{full}>{"".join(piece)}</div>')
        self.result.html = mark_safe("".join(chunks))  # noqa: S308 - escaped piece by piece
        self.result.lines = self.number
        return self.result

    def _text(self, kind: str, text: str) -> None:
        if kind != self.open_kind:
            self._end_line()
            self.open_kind = kind
        first, *rest = text.split("\n")
        if first:
            self.open_text.append(first)
        for piece in rest:
            self._line()
            if piece:
                self.open_text.append(piece)

    def _end_line(self) -> None:
        if self.open_text:
            self._line()
        self.open_kind = ""

    def _line(self) -> None:
        text = "".join(self.open_text)
        self.open_text = []
        if "\r" in text:
            # A progress bar paints over itself: its last state is what a terminal would show.
            text = text.rstrip("\r").rpartition("\r")[2]
        cut = len(text) - LINE_CHARS
        if cut > 0:
            text = f"{text[:LINE_CHARS]} … {cut} characters more"
        self.number += 1
        n = self.number
        self.items.append(
            f'<div class="ln" id="L{n}" data-k="{self.open_kind}"><a href="#L{n}">{n}</a>'
            f'<span class="tx">{self.painter.html(text)}</span></div>'
        )

    def _step(self, data: dict[str, Any], output: str) -> None:
        key = str(data.get("id", ""))
        if data.get("phase") == "end":
            index, start = self.steps.pop(key, (len(self.items), data))
            if index == len(self.items):
                self.items.append("")
            self.items[index] = self._fold(
                {**start, **data, "input": start.get("input")}, data, output
            )
            return
        self.steps[key] = (len(self.items), data)
        self.items.append("")

    def _fold(self, data: dict[str, Any], end: dict[str, Any] | None, output: str) -> str:
        failed = bool(end and end.get("isError"))
        if failed:
            self.result.errors += 1
        state = "" if end is None else "failed" if failed else "succeeded"
        took = (end or {}).get("durationMs")
        words = (
            "" if took is None else f"{took} ms" if took < 1_000 else format.duration(took / 1000)
        )
        lines = output.rstrip("\n").split("\n") if output else []
        kind = "error" if failed else "text"
        painter = Painter()
        body = "".join(
            f'<div class="ln" data-k="{kind}"><a></a>'
            f'<span class="tx">{painter.html(line[:LINE_CHARS])}</span></div>'
            for line in lines[:STEP_LINES]
        )
        if len(lines) > STEP_LINES:
            body += (
                '<div class="ln" data-k="system"><a></a><span class="tx">'
                f"{len(lines) - STEP_LINES} lines more are in the download</span></div>"
            )
        mark = format.icon("chevron-right", "chev") if end else format.glyph("run", "running")
        return (
            f'<details class="fold" data-s="{state}" data-step="{escape(data.get("id"))}"'
            f"{' open' if failed else ''}><summary>"
            f'<span></span><span class="tx">{mark}<span class="name">{escape(data.get("name"))}'
            f'</span><span class="args">{escape(arguments(data.get("input")))}</span>'
            f'<span class="took">{words}</span></span></summary>{body}</details>'
        )


def arguments(given: Any) -> str:
    """A step's input on one line."""
    if not given:
        return ""
    return json.dumps(given, ensure_ascii=False, default=str)[:400]


def summary(data: dict[str, Any]) -> str:
    """A step as a run's line shows it: `comment(body=Here is…)`."""
    given = data.get("input") or {}
    words = ", ".join(f"{k}={str(v)[:40]}" for k, v in list(given.items())[:3]) if given else ""
    return f"{data.get('name', '')}({words})"


def last_step(event: RunEvent | None) -> str:
    """What a run is at, from its latest event."""
    if event is None:
        return "Starting"
    data = event.data or {}
    if event.kind == RunEvent.Kind.STEP:
        return summary(data)
    if event.kind == RunEvent.Kind.TEXT:
        return "Thinking" if data.get("channel") == "thinking" else "Writing the answer"
    if event.kind in (RunEvent.Kind.OUT, RunEvent.Kind.ERR):
        lines = plain(event.text).strip().splitlines()
        return lines[-1][:200] if lines else "Running"
    return event.text[:200] or "Running"
