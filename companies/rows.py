"""Rows that are written all the time: an INSERT without building the statement anew each time."""

from __future__ import annotations

import functools
from typing import Any

from django.db import connection
from django.db.models import Field, Model


def insert(row: Model) -> None:
    """Write a new row with all its fields, as `save(force_insert=True)` does, at a third of its
    price: no signals, no returned columns. Raises IntegrityError."""
    statement, fields = _insert(type(row))
    values = [
        field.get_db_prep_save(field.pre_save(row, True), connection=connection) for field in fields
    ]
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
    row._state.adding, row._state.db = False, connection.alias


@functools.cache
def _insert(model: type[Model]) -> tuple[str, list[Field[Any, Any]]]:
    meta = model._meta
    quote = connection.ops.quote_name
    fields = [field for field in meta.local_concrete_fields if not field.generated]
    columns = ", ".join(quote(str(field.column)) for field in fields)
    places = ", ".join(["%s"] * len(fields))
    return f"INSERT INTO {quote(meta.db_table)} ({columns}) VALUES ({places})", fields  # noqa: S608
