"""Moments that come in from outside: one form, and bounds within which everybody can carry them.

Python's calendar ends with the year 9999, PostgreSQL's much later. A moment near the edge that is
written with an offset lies beyond it in UTC: stored without a look, it breaks every later read.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from companies.errors import Invalid

FIRST_YEAR, LAST_YEAR = 1900, 9999
BOUNDS = f"must lie in the years {FIRST_YEAR} to {LAST_YEAR}, in UTC"


def in_utc(value: datetime) -> datetime:
    """The same moment in UTC. Raises ValueError for one without an offset, or out of bounds."""
    if value.tzinfo is None:
        raise ValueError("must have an offset from UTC")
    try:
        value = value.astimezone(UTC)
    except OverflowError:
        raise ValueError(BOUNDS) from None
    if not FIRST_YEAR <= value.year <= LAST_YEAR:
        raise ValueError(BOUNDS)
    return value


def sound(value: datetime, field: str) -> datetime:
    """As `in_utc`. Raises Invalid with the field's name, for the verbs that store a moment."""
    try:
        return in_utc(value)
    except ValueError as error:
        raise Invalid("moment_out_of_range", f"{field} {error}.", field=field) from None


def parse(text: str) -> datetime | None:
    """The moment that an address or a cursor tells, in UTC; None for all that is none."""
    try:
        return in_utc(datetime.fromisoformat(text.replace(" ", "+")))
    except ValueError:
        return None


def day(text: str) -> tuple[datetime, datetime] | None:
    """The first moment of an ISO day in UTC and that of the next; None for all that is none."""
    try:
        start = datetime.combine(date.fromisoformat(text), time.min, UTC)
        return in_utc(start), start + timedelta(days=1)
    except (ValueError, OverflowError):
        return None
