"""Terminal colours to spans. A parser that goes on over pieces: a colour lasts until it is reset.

Everything else a terminal understands (cursor moves, titles, links) is dropped; text is escaped.
The twin in `static/paperclip/js/log.js` does the same for output that arrives on an open page.
"""

from __future__ import annotations

import re
from html import escape

_ESCAPE = re.compile(
    r"\x1b\[([0-9;:]*)m"  # colours and weight
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # any other control sequence
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links
    r"|\x1b[@-Z\\-_]?"
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]"
)
_COLOURS = {str(code): f"a-{code}" for code in (*range(30, 38), *range(90, 98))}
_WEIGHTS = {1: "a-b", 2: "a-d", 3: "a-i", 4: "a-u"}
_WEIGHT_OFF = {22: ("a-b", "a-d"), 23: ("a-i",), 24: ("a-u",)}


class Painter:
    """Turns pieces of one stream into HTML, keeping the colour between them."""

    def __init__(self) -> None:
        self.colour = ""
        self.weights: tuple[str, ...] = ()

    def html(self, text: str) -> str:
        """Escaped HTML of `text`, coloured parts in spans."""
        if "\x1b" not in text and not self.colour and not self.weights:
            return escape(_ESCAPE.sub("", text))
        parts: list[str] = []
        at = 0
        for match in _ESCAPE.finditer(text):
            parts.append(self._paint(text[at : match.start()]))
            if match.group(1) is not None:
                self._set(match.group(1))
            at = match.end()
        parts.append(self._paint(text[at:]))
        return "".join(parts)

    def _paint(self, text: str) -> str:
        if not text:
            return ""
        names = " ".join((*self.weights, self.colour)).strip()
        return f'<span class="{names}">{escape(text)}</span>' if names else escape(text)

    def _set(self, codes: str) -> None:
        # Nearly all that programs write: one colour, and back to none.
        if codes in _COLOURS:
            self.colour = _COLOURS[codes]
            return
        if codes in ("", "0"):
            self.colour, self.weights = "", ()
            return
        numbers = [int(code[:6] or 0) for code in codes.replace(":", ";").split(";")]
        at = 0
        while at < len(numbers):
            code = numbers[at]
            if code == 0:
                self.colour, self.weights = "", ()
            elif code in _WEIGHTS:
                self.weights = (*(w for w in self.weights if w != _WEIGHTS[code]), _WEIGHTS[code])
            elif code in _WEIGHT_OFF:
                self.weights = tuple(w for w in self.weights if w not in _WEIGHT_OFF[code])
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.colour = f"a-{code}"
            elif code == 39:
                self.colour = ""
            elif code in (38, 48):
                # 256 colours (5;n) and true colour (2;r;g;b): the first sixteen have names here.
                kind = numbers[at + 1] if at + 1 < len(numbers) else 0
                if kind == 5 and code == 38 and at + 2 < len(numbers) and numbers[at + 2] < 16:
                    index = numbers[at + 2]
                    self.colour = f"a-{30 + index if index < 8 else 82 + index}"
                at += 2 if kind == 5 else 4 if kind == 2 else 0
            at += 1


def plain(text: str) -> str:
    """`text` without anything that only a terminal understands."""
    return _ESCAPE.sub("", text)
