"""Attempts per key and window, counted in the database so that all instances share them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import connection

from companies.errors import RateLimited
from companies.models import Throttle


def hit(key: str, *, limit: int, window_seconds: int, now: datetime) -> int:
    """Count one attempt and return how many are left. Raises RateLimited past `limit`."""
    seconds = int(now.timestamp()) // window_seconds * window_seconds
    start = datetime.fromtimestamp(seconds, UTC)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO companies_throttle (key, window_start, count) VALUES (%s, %s, 1) "
            "ON CONFLICT (key, window_start) DO UPDATE SET count = companies_throttle.count + 1 "
            "RETURNING count",
            [key[:200], start],
        )
        (count,) = cursor.fetchone()
    if count > limit:
        wait = (start + timedelta(seconds=window_seconds) - now).total_seconds()
        raise RateLimited("Too many attempts; wait a little.", retry_after=max(1, int(wait) + 1))
    return limit - count


def sweep(*, now: datetime, older_than: timedelta = timedelta(days=1)) -> int:
    """Forget windows that are long over; returns how many."""
    return Throttle.objects.filter(window_start__lt=now - older_than).delete()[0]
