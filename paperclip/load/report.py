"""The table of a load: a column for each stage."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from paperclip.load.machine import Use, circumstances
from paperclip.load.scenario import Outcome

Column = tuple[Outcome, Use | None]
Row = tuple[str, Callable[[Outcome, Use | None], str]]


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed (nearest rank); nan without values."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _times(values: Sequence[float]) -> str:
    if not values:
        return "none"
    figures = (statistics.fmean(values), percentile(values, 95), percentile(values, 99))
    return " / ".join(f"{1000 * figure:,.0f}" for figure in figures)


def _memory(use: Use | None) -> str:
    if use is None or not use.memory:
        return "not on this machine"
    parts = ", ".join(f"{kind} {size / 2**20:.0f}" for kind, size in sorted(use.memory.items()))
    return f"{use.own_memory / 2**20:.0f} ({parts})"


def _connections(use: Use | None) -> str:
    if use is None or not use.connection_limit:
        return "not known"
    share = 100 * use.connections / use.connection_limit
    return f"{use.connections} of {use.connection_limit} ({share:.0f} %)"


ROWS: tuple[Row, ...] = (
    ("tasks counted / failed", lambda o, _: f"{len(o.responses)} / {len(o.failures)}"),
    ("tasks a second", lambda o, _: f"{o.throughput:.1f}"),
    (
        "of what pauses and model allow",
        lambda o, _: f"{100 * o.throughput / o.stage.allowed:.1f} % of {o.stage.allowed:.1f}",
    ),
    ("response, ms: average / p95 / p99", lambda o, _: _times(o.responses)),
    ("added to the first token, ms", lambda o, _: _times(o.first_delays)),
    ("added to the end, ms", lambda o, _: _times(o.done_delays)),
    ("memory, MiB (without the database)", lambda _, u: _memory(u)),
    ("database connections", lambda _, u: _connections(u)),
)


def table(columns: Sequence[Column]) -> str:
    """Markdown: rows of figures, a column for each stage."""
    names = [outcome.stage.name for outcome, _ in columns]
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for title, cell in ROWS:
        lines.append(f"| {title} | " + " | ".join(cell(o, u) for o, u in columns) + " |")
    return "\n".join([*lines, "", f"*{circumstances()}*"])
