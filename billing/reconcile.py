"""Beside the provider's own bill: a usage file by day and model against what was booked.

Reads only. What the bill says and the ledger does not is answered by a correction
(`ledger.correct`), never by changing what was booked.
"""

from __future__ import annotations

import csv
import io
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation

from django.db.models import Sum
from django.db.models.functions import Coalesce, Lower

from billing.models import DayCost
from companies.errors import Invalid

MAX_LINES = 200_000
DAY = ("date", "day", "usage_date", "start_time", "start_time_iso")
MODEL = ("model", "model_name", "line_item", "model_version")
COST = ("cost", "cost_usd", "amount", "amount_usd", "usd", "cost_in_usd")


@dataclass(frozen=True, slots=True)
class Drift:
    """One day and model: what the bill says and what was booked, in micro-dollars."""

    day: date
    model: str
    billed_micros: int
    booked_micros: int

    @property
    def difference_micros(self) -> int:
        return self.billed_micros - self.booked_micros


def compare(*, company_id: uuid.UUID, provider: str, text: str) -> list[Drift]:
    """Every day and model of a provider's CSV beside what was booked for that provider in the
    days that the file spans; those that agree are included.

    The file needs columns for day, model and cost in USD, under any of the usual names. Raises
    Invalid for a file that cannot be read, with the line.
    """
    billed = _billed(text)
    if not billed:
        return []
    days = [day for day, _ in billed]
    booked = {
        (row["day"], row["name"]): int(row["spent"])
        for row in DayCost.objects.for_company(company_id)
        .filter(provider__iexact=provider, day__range=(min(days), max(days)))
        .order_by()
        .values("day", name=Lower("model"))
        .annotate(spent=Coalesce(Sum("spent_micros"), 0))
    }
    return [
        Drift(day, model, billed.get((day, model), 0), booked.get((day, model), 0))
        for day, model in sorted(billed.keys() | booked.keys())
    ]


def unreadable(message: str) -> Invalid:
    """The refusal of a file."""
    return Invalid("file_invalid", message, field="file")


def _billed(text: str) -> dict[tuple[date, str], int]:
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    names = [name.strip().lower() for name in reader.fieldnames or ()]
    reader.fieldnames = names
    day_name, model_name, cost_name = (_column(names, known) for known in (DAY, MODEL, COST))
    exact: dict[tuple[date, str], Decimal] = {}
    try:
        for number, row in enumerate(reader, 2):
            if number > MAX_LINES:
                raise Invalid("file_too_long", f"At most {MAX_LINES} lines.", field="file")
            key = (_day(row[day_name], number), (row[model_name] or "").strip().lower())
            exact[key] = exact.get(key, Decimal(0)) + _usd(row[cost_name], number)
    except csv.Error as error:
        raise Invalid("file_invalid", f"This is not CSV: {error}.", field="file") from error
    return {key: int((usd * 1_000_000).to_integral_value()) for key, usd in exact.items()}


def _column(names: Iterable[str], known: tuple[str, ...]) -> str:
    found = next((name for name in known if name in names), None)
    if found is None:
        raise Invalid(
            "column_missing", f"The file needs a column named {known[0]!r}.", field="file"
        )
    return found


def _day(text: str | None, number: int) -> date:
    try:
        return date.fromisoformat((text or "").strip()[:10])
    except ValueError as error:
        raise Invalid("file_invalid", f"Line {number}: no day.", field="file") from error


def _usd(text: str | None, number: int) -> Decimal:
    try:
        amount = Decimal((text or "0").strip().lstrip("$") or "0")
    except InvalidOperation as error:
        raise Invalid("file_invalid", f"Line {number}: no amount.", field="file") from error
    if not amount.is_finite() or abs(amount) > 10**6:
        raise Invalid("file_invalid", f"Line {number}: that amount cannot be.", field="file")
    return amount
