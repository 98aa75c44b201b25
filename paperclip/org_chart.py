"""The org chart as a picture: a tree laid out from left to right, as SVG without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

WIDTH, HEIGHT = 200, 48
GAP_X, GAP_Y = 48, 12
MARGIN = 16
NAME_CHARS, ROLE_CHARS = 22, 28


@dataclass(slots=True)
class _Box:
    node: dict[str, Any]
    x: int
    y: float = 0.0
    below: list[_Box] = field(default_factory=list)


def svg(roots: list[dict[str, Any]]) -> SafeString:
    """The trees of `agent_shapes.org`, drawn. Names are text, never markup."""
    boxes, bottom = _laid_out(roots)
    width = max((box.x + WIDTH for box in boxes), default=WIDTH) + MARGIN
    height = max(bottom, MARGIN + HEIGHT + GAP_Y) - GAP_Y + MARGIN
    return format_html(
        '<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}"'
        ' role="img" font-family="sans-serif"><title>Who reports to whom</title>'
        "{lines}{boxes}</svg>",
        w=width,
        h=height,
        lines=format_html_join("", _LINE, _lines(boxes)),
        boxes=format_html_join("", _BOX, (_texts(box) for box in boxes)),
    )


_LINE = '<path d="M{} {}H{}V{}H{}" fill="none" stroke="#94a3b8"/>'
_BOX = (
    '<g><rect x="{}" y="{}" width="{}" height="{}" rx="6" fill="#fff" stroke="#64748b"/>'
    '<text x="{}" y="{}" font-size="13" fill="#0f172a">{}</text>'
    '<text x="{}" y="{}" font-size="11" fill="#475569">{}</text></g>'
)


def _laid_out(roots: list[dict[str, Any]]) -> tuple[list[_Box], int]:
    """All boxes, each manager in the middle of who reports to them; no recursion, so that a line
    of command may be as long as it likes."""
    boxes: list[_Box] = []
    tops = [_Box(root, MARGIN) for root in roots]
    waiting = list(reversed(tops))
    y = MARGIN
    while waiting:
        box = waiting.pop()
        boxes.append(box)
        box.below = [_Box(one, box.x + WIDTH + GAP_X) for one in box.node["reports"]]
        waiting.extend(reversed(box.below))
        if not box.below:
            box.y = y
            y += HEIGHT + GAP_Y
    for box in reversed(boxes):
        if box.below:
            box.y = (box.below[0].y + box.below[-1].y) / 2
    return boxes, y


def _lines(boxes: list[_Box]) -> Iterator[tuple[float, ...]]:
    for box in boxes:
        for one in box.below:
            right = box.x + WIDTH
            yield right, box.y + HEIGHT / 2, right + GAP_X / 2, one.y + HEIGHT / 2, one.x


def _texts(box: _Box) -> tuple[Any, ...]:
    node = box.node
    said = f"{node['title'] or node['role']} · {node['status']}"
    return (
        box.x, box.y, WIDTH, HEIGHT,
        box.x + 12, box.y + 20, _cut(node["name"], NAME_CHARS),
        box.x + 12, box.y + 37, _cut(said, ROLE_CHARS),
    )  # fmt: skip


def _cut(text: str, length: int) -> str:
    # A control character would make the whole picture unreadable as XML.
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= length else text[: length - 1] + "…"
