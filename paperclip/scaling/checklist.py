"""All readings, in the order in which one looks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.db import DatabaseError, transaction

from paperclip.scaling import database, engine, machine
from paperclip.scaling.reading import Level, Reading

log = logging.getLogger(__name__)

_GROUPS: tuple[tuple[str, Callable[[], Iterator[Reading]]], ...] = (
    ("Work", engine.readings),
    ("Database", database.readings),
    ("Processes and money", machine.readings),
)


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    readings: list[Reading]


def groups() -> list[Group]:
    """Everything that can be read now. What the database refuses to tell is a red reading."""
    return [Group(name, list(_read(name, read))) for name, read in _GROUPS]


def worst(found: list[Group]) -> Level:
    return max(
        (reading.level for group in found for reading in group.readings), default=Level.GREEN
    )


def _read(name: str, read: Callable[[], Iterator[Reading]]) -> Iterator[Reading]:
    try:
        with transaction.atomic():
            yield from read()
    except DatabaseError as error:
        log.warning("scaling: %s cannot be read: %s", name, error)
        yield Reading(
            name,
            Level.RED,
            str(error).splitlines()[0],
            "What cannot be read cannot be trusted.",
            "manage.py doctor",
        )
