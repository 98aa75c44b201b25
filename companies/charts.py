"""Charts as SVG made on the server. Each has a title and a description for those who cannot see
it; the page that shows one shows its numbers as text or a table as well."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe


def tone(fraction: float, warn: float = 0.8) -> str:
    """`bad` at the limit, `warn` near it, else nothing."""
    return "bad" if fraction >= 1 else "warn" if fraction >= warn else ""


def bar(fraction: float, title: str, warn: float = 0.8) -> SafeString:
    """A horizontal bar, `fraction` of it filled; it stops at the end but says so by its colour."""
    return format_html(
        '<svg class="bar" data-tone="{}" viewBox="0 0 100 6" preserveAspectRatio="none" role="img">'
        '<title>{}</title><rect width="{}" height="6"/></svg>',
        tone(fraction, warn),
        title,
        round(min(max(fraction, 0), 1) * 100, 2),
    )


def ring(fraction: float, title: str, css: str = "", warn: float = 0.8) -> SafeString:
    """A ring, filled clockwise from the top."""
    length = 2 * 3.14159265 * 20
    filled = min(max(fraction, 0), 1) * length
    arc: SafeString = mark_safe("")
    if filled >= 1:  # a shorter arc would be a dot
        arc = format_html(
            '<circle cx="24" cy="24" r="20" stroke-dasharray="{} {}"'
            ' transform="rotate(-90 24 24)"/>',
            round(filled, 2),
            round(length, 2),
        )
    return format_html(
        '<svg class="ring {}" data-tone="{}" viewBox="0 0 48 48" role="img"><title>{}</title>'
        '<circle cx="24" cy="24" r="20"/>{}</svg>',
        css,
        tone(fraction, warn),
        title,
        arc,
    )


def throughput(days: Sequence[tuple[str, int, int]], *, height: int = 64) -> SafeString:
    """Stacked bars, one a day: (label, succeeded, failed)."""
    top = max((ok + bad for _, ok, bad in days), default=0) or 1
    width, gap = 280, 4
    step = (width + gap) / max(len(days), 1)
    parts = []
    for index, (day, ok, bad) in enumerate(days):
        x, w = round(index * step, 2), round(step - gap, 2)
        ok_h, bad_h = round(ok / top * height, 2), round(bad / top * height, 2)
        floor = (x, height - 2, w)
        good = (x, round(height - ok_h, 2), w, ok_h)
        poor = (x, round(height - ok_h - bad_h, 2), w, max(bad_h - 1, 0) if bad else 0)
        parts.append((day, ok, bad, *floor, *good, *poor))
    bars = format_html_join(
        "",
        "<g><title>{}: {} succeeded, {} failed</title>"
        '<rect class="b-none" x="{}" y="{}" width="{}" height="2" rx="1"/>'
        '<rect class="b-ok" x="{}" y="{}" width="{}" height="{}" rx="1.5"/>'
        '<rect class="b-bad" x="{}" y="{}" width="{}" height="{}" rx="1.5"/></g>',
        parts,
    )
    total_ok, total_bad = sum(d[1] for d in days), sum(d[2] for d in days)
    return format_html(
        '<svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img">'
        "<title>Runs a day</title>"
        "<desc>{} succeeded and {} failed in {} days</desc>{}</svg>",
        width,
        height,
        total_ok,
        total_bad,
        len(days),
        bars,
    )


def sparkline(values: Sequence[float], title: str) -> SafeString:
    """A small line without axes."""
    if len(values) < 2:
        values = [*values, *([values[-1] if values else 0] * (2 - len(values)))]
    top = max(values) or 1
    points = " ".join(
        f"{round(i / (len(values) - 1) * 100, 1)},{round(22 - v / top * 20, 1)}"
        for i, v in enumerate(values)
    )
    return format_html(
        '<svg class="chart" viewBox="0 0 100 24" preserveAspectRatio="none" role="img">'
        '<title>{}</title><polyline class="path" points="{}"/></svg>',
        title,
        points,
    )


def burn_up(
    totals: Sequence[int], *, days: int, limit: int | None, forecast: int | None
) -> SafeString:
    """Spend so far by day (running totals from the 1st), the budget's line and the forecast.

    All amounts in micro-dollars; `days` is the length of the month.
    """
    width, height = 560, 140
    top = max([*totals, limit or 0, forecast or 0, 1]) * 1.08

    def x(day: int) -> float:
        return round(day / days * width, 1)

    def y(value: float) -> float:
        return round(height - value / top * height, 1)

    points = ["0," + str(height)] + [f"{x(i + 1)},{y(v)}" for i, v in enumerate(totals)]
    line = " ".join(points)
    ceiling = format_html('<path class="limit" d="M0 {}H{}"/>', y(limit), width) if limit else ""
    ahead: SafeString | str = ""
    if totals and forecast and len(totals) < days:
        ahead = format_html(
            '<path class="forecast" d="M{} {}L{} {}"/>',
            x(len(totals)),
            y(totals[-1]),
            width,
            y(forecast),
        )
    return format_html(
        '<svg class="chart chart-tall" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img">'
        "<title>Spend this month</title>"
        "<desc>Running total by day, the budget as a dashed line and the forecast</desc>"
        '<path class="grid" d="M0 {}H{}"/><polygon class="area" points="{} {},{}"/>'
        '<polyline class="path" points="{}"/>{}{}</svg>',
        width,
        height,
        height,
        width,
        line,
        x(len(totals)),
        height,
        line,
        ceiling,
        ahead,
    )
