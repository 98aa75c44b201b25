"""The instance's database for a command that people type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
from django.conf import settings
from django.core.management.base import CommandError
from django.db import ProgrammingError

from paperclip import postgres


@contextlib.contextmanager
def present() -> Iterator[None]:
    """Keeps the database of this instance at hand, started for the command if need be.

    A command makes none: where there is no database people have mistaken the data folder. Raises
    CommandError for that, for one that was never set up, and for one that does not start.
    """
    with contextlib.ExitStack() as stack:
        if not settings.DATABASE_URL:
            _embedded(stack)
        try:
            yield
        except ProgrammingError as error:
            if not isinstance(error.__cause__, psycopg.errors.UndefinedTable):
                raise
            raise CommandError(
                "The database is not set up yet: start this version once with `make run`."
            ) from None


def _embedded(stack: contextlib.ExitStack) -> None:
    if not (settings.PG_DIR / "PG_VERSION").exists():
        raise CommandError(
            f"There is no database in {settings.DATA_DIR}. Where `make run` was given"
            " PAPERCLIP_DATA_DIR or DATABASE_URL, give this command the same; else start it once."
        )
    try:
        stack.enter_context(postgres.available(settings.PG_DIR))
    except postgres.PostgresError as error:
        raise CommandError(str(error)) from None
