"""How a figure is stated: the machine, the date, the load, and the median of several runs."""

from __future__ import annotations

import os
import platform
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


@dataclass(slots=True)
class Table:
    """What one benchmark has to say. `name` is its marker in docs/benchmarks.md."""

    name: str
    title: str
    columns: Sequence[str]
    rows: list[Sequence[object]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        self.rows.append(cells)
        print("  ", " | ".join(map(str, cells)), flush=True)

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", "| " + " | ".join(self.columns) + " |"]
        lines.append("|" + "---|" * len(self.columns))
        lines += ["| " + " | ".join(map(str, row)) + " |" for row in self.rows]
        lines += ["", *(f"{note}" for note in self.notes), "", f"*{circumstances()}*"]
        return "\n".join(lines) + "\n"


def circumstances() -> str:
    """One line: when, on what, and how busy it was."""
    model = "unknown processor"
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
        model = found.group(1) if found else model
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC · {model}, {os.cpu_count()} cores, "
        f"{memory:.0f} GiB · Python {platform.python_version()} · load {load}"
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, max(0, round(percent / 100 * len(ordered) + 0.5) - 1))]


def spread(values: Sequence[float], digits: int = 0) -> str:
    """`median (least to most)` of several runs."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.1f}" if seconds < 0.1 else f"{seconds * 1000:,.0f}"


def quantiles(values: Sequence[float]) -> tuple[str, str, str]:
    """p50, p95 and p99 of durations in seconds, as milliseconds."""
    low, high, top = (milliseconds(percentile(values, p)) for p in (50, 95, 99))
    return low, high, top


def write(table: Table) -> None:
    """Put the table between its markers in docs/benchmarks.md; a new one goes to the end."""
    start, end = f"<!-- bench:{table.name} -->", f"<!-- /bench:{table.name} -->"
    page = PAGE.read_text() if PAGE.exists() else "# Benchmarks\n"
    block = f"{start}\n{table.markdown()}{end}"
    if start in page:
        page = re.sub(
            re.escape(start) + ".*?" + re.escape(end), lambda _: block, page, flags=re.DOTALL
        )
    else:
        page = page.rstrip() + "\n\n" + block + "\n"
    PAGE.write_text(page)
