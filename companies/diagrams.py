"""Diagrams as SVG made on the server: who worked when, who reports to whom.

The page that shows one shows the same as a list or a table. Text stands in HTML beside the picture
where it can, so that it never stretches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

WIDTH = 1_000  # units of a lane, whatever its size on the screen


@dataclass(frozen=True, slots=True)
class Span:
    """One bar of a lane. `start` and `end` are fractions of the window, 0 to 1."""

    start: float
    end: float
    status: str
    title: str
    href: str


def lane(spans: Iterable[Span], name: str) -> SafeString:
    """One row of a Gantt chart. A bar is a link, at least wide enough to be hit."""
    bars = format_html_join(
        "",
        '<a href="{}"><title>{}</title>'
        '<rect data-s="{}" x="{}" width="{}" y="3" height="14" rx="2"/></a>',
        (
            (
                span.href,
                span.title,
                span.status,
                round(max(span.start, 0) * WIDTH, 1),
                round(max(min(span.end, 1) - max(span.start, 0), 0.006) * WIDTH, 1),
            )
            for span in spans
        ),
    )
    return format_html(
        '<svg class="lane" viewBox="0 0 {} 20" preserveAspectRatio="none" role="group"'
        ' aria-label="Runs of {}">{}{}</svg>',
        WIDTH,
        name,
        mark_safe('<path class="grid" d="M0 0V20M250 0V20M500 0V20M750 0V20M1000 0V20"/>'),
        bars,
    )


@dataclass(slots=True)
class Node:
    """Somebody in a tree, with those below."""

    name: str
    title: str
    status: str
    href: str
    below: list[Node] = field(default_factory=list)


BOX_W, BOX_H, GAP_X, GAP_Y = 176, 52, 20, 44
# Those who lead nobody stand below each other: side by side, a team would be wider than a screen.
STACK_FROM, STACK_GAP, INDENT = 3, 10, 24
ALONE = 4  # of those who report to nobody and lead nobody, below each other


@dataclass(frozen=True, slots=True)
class _Placed:
    node: Node
    x: float
    y: float
    edge: str = ""  # the path from its manager


def tree(tops: Sequence[Node], title: str) -> SafeString:
    """A top-down tree of boxes with links. Each parent stands over the middle of its own; a team
    whose people lead nobody stands in a column below its lead."""
    placed: list[_Placed] = []
    alone = [node for node in tops if not node.below]
    columns = alone if len(alone) >= STACK_FROM else []
    width = _place([node for node in tops if node not in columns], 0.0, 0.0, placed)
    for start in range(0, len(columns), ALONE):
        x = width + GAP_X if width else 0.0
        for n, node in enumerate(columns[start : start + ALONE]):
            placed.append(_Placed(node, x, n * (BOX_H + STACK_GAP)))
        width = x + BOX_W
    if not placed:
        return mark_safe("")
    height = max(one.y for one in placed) + BOX_H
    edges = ((one.edge,) for one in placed if one.edge)
    lines = format_html_join("", '<path class="edge" d="{}"/>', edges)
    boxes = format_html_join(
        "",
        '<a href="{}" class="box" data-s="{}"><title>{}, {}: {}</title>'
        '<rect x="{}" y="{}" width="{}" height="{}" rx="8"/>'
        '<circle cx="{}" cy="{}" r="4"/>'
        '<text class="name" x="{}" y="{}">{}</text><text class="role" x="{}" y="{}">{}</text></a>',
        (
            (
                p.node.href, p.node.status, p.node.name, p.node.title,
                p.node.status.replace("_", " "),
                p.x, p.y, BOX_W, BOX_H,
                p.x + 16, p.y + 20,
                p.x + 28, p.y + 24, _short(p.node.name, 19),
                p.x + 14, p.y + 41, _short(p.node.title, 25),
            )
            for p in placed
        ),
    )  # fmt: skip
    return format_html(
        '<svg class="org" viewBox="-1 -1 {} {}" width="{}" height="{}" role="group"'
        ' aria-label="{}">{}{}</svg>',
        round(width + 2), round(height + 2), round(width + 2), round(height + 2),
        title, lines, boxes,
    )  # fmt: skip


def _place(
    nodes: Sequence[Node],
    left: float,
    top: float,
    placed: list[_Placed],
    above: tuple[float, float] | None = None,
) -> float:
    """Place nodes side by side from `left`; returns the width they take with all below them."""
    x = left
    for node in nodes:
        # A parent's place is known only after its children's width.
        width, stacks = _width(node), _stacks(node)
        middle = x + (BOX_W if stacks else width) / 2
        edge = _down(above, middle, top) if above else ""
        placed.append(_Placed(node, round(middle - BOX_W / 2, 1), top, edge))
        if stacks:
            _stack(node.below, placed[-1], placed)
        else:
            below = (middle - _width_of(node.below) / 2, top + BOX_H + GAP_Y)
            _place(node.below, *below, placed, (middle, top + BOX_H))
        x += width + GAP_X
    return max(x - left - GAP_X, 0)


def _stack(nodes: Sequence[Node], lead: _Placed, placed: list[_Placed]) -> None:
    """Place nodes in a column below their lead, on a line that goes down at its left."""
    bottom = lead.y + BOX_H
    for n, node in enumerate(nodes):
        x, y = lead.x + INDENT, bottom + STACK_GAP + n * (BOX_H + STACK_GAP)
        edge = f"M{lead.x + INDENT / 2:g} {bottom:g}V{y + BOX_H / 2:g}H{x:g}"
        placed.append(_Placed(node, x, y, edge))


def _stacks(node: Node) -> bool:
    return len(node.below) >= STACK_FROM and not any(one.below for one in node.below)


def _width(node: Node) -> float:
    if _stacks(node):
        return BOX_W + INDENT
    return max(BOX_W, _width_of(node.below))


def _width_of(nodes: Sequence[Node]) -> float:
    return sum(map(_width, nodes)) + GAP_X * max(len(nodes) - 1, 0)


def _down(above: tuple[float, float], x: float, top: float) -> str:
    """The path from the middle of a manager's lower side to the middle of a box's upper one."""
    bend = (above[1] + top) / 2
    return f"M{above[0]:g} {above[1]:g}V{bend:g}H{x:g}V{top:g}"


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
