"""Tables to take away: CSV that spreadsheets read as text, written while it is sent."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from django.http import StreamingHttpResponse

MOST = 10_000  # rows of one file; what is more belongs to the API
Cell = str | int | float | datetime | None


class _Echo:
    """A file that hands back what is written to it."""

    def write(self, text: str) -> str:
        return text


def respond(
    name: str, head: Sequence[str], rows: Iterable[Sequence[Cell]]
) -> StreamingHttpResponse:
    """An answer that downloads as `name`; moments are in UTC, nothing empty is written as None."""
    writer = csv.writer(_Echo())

    def lines() -> Iterator[str]:
        yield writer.writerow(head)
        for row in rows:
            yield writer.writerow([cell(value) for value in row])

    answer = StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def cell(value: Cell) -> str | int | float:
    """A value that a spreadsheet takes for what it is, and never for a formula."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


def dollars(micros: int | None) -> str:
    """Money exact to the micro-dollar; empty when nobody knows the price."""
    return "" if micros is None else f"{micros / 1_000_000:.6f}"
