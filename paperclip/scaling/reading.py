"""One reading: green, amber or red, what was read, why that matters, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from django.db import connection


class Level(IntEnum):
    GREEN = 0
    AMBER = 1  # look at it in the coming days
    RED = 2  # it hurts now, or will very soon

    @property
    def word(self) -> str:
        return {Level.GREEN: "Fine", Level.AMBER: "Soon", Level.RED: "Now"}[self]

    @property
    def tone(self) -> str:
        """What the page's badges call it."""
        return {Level.GREEN: "ok", Level.AMBER: "warn", Level.RED: "bad"}[self]


@dataclass(frozen=True, slots=True)
class Reading:
    """`fix` is empty when there is nothing to do."""

    name: str
    level: Level
    value: str
    why: str
    fix: str = ""


def graded(value: float, *, amber: float, red: float) -> Level:
    """The level of a value that is better when it is smaller."""
    return Level.RED if value >= red else Level.AMBER if value >= amber else Level.GREEN


def rows(statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def one(statement: str, *values: Any) -> tuple[Any, ...]:
    return rows(statement, *values)[0]


def listed(names: Sequence[str], most: int = 4) -> str:
    """`a, b and 3 more`."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"
