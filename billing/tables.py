"""Tables as CSV, for spreadsheets: exact to the micro-dollar."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.http import HttpResponse

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def answer(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> HttpResponse:
    """A file `name`.csv of these rows."""
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    writer = csv.writer(response)
    writer.writerow(header)
    for row in rows:
        writer.writerow([_cell(each) for each in row])
    return response


def usd(micros: int | None) -> str:
    """Dollars with all six places; empty when unknown."""
    if micros is None:
        return ""
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    return f"{sign}{micros // 1_000_000}.{micros % 1_000_000:06}"


def _cell(value: object) -> object:
    """Text that a spreadsheet will not take for a formula."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    is_formula = isinstance(value, str) and value[:1] in _FORMULA and not _is_number(value)
    return f"'{value}" if is_formula else value


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()
