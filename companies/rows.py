"""Rows that are read and written all the time: statements that are not built anew each time.

`fetch` gives whole rows of models for a statement of one's own, which names their columns with
`columns`; `insert` and `update` write one row. No signals, no validation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Field, Model

M = TypeVar("M", bound=Model)


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


def update(row: Model, fields: Collection[str]) -> None:
    """Write these fields of a row that is there, as `save(update_fields=…)` does."""
    statement, chosen = _update(type(row), tuple(sorted(fields)))
    values = [
        field.get_db_prep_save(field.pre_save(row, False), connection=connection)
        for field in chosen
    ]
    with connection.cursor() as cursor:
        cursor.execute(statement, [*values, row.pk])


@functools.cache
def _update(model: type[Model], names: tuple[str, ...]) -> tuple[str, list[Field[Any, Any]]]:
    meta, quote = model._meta, connection.ops.quote_name
    fields = [
        field for field in meta.local_concrete_fields if {field.name, field.attname} & {*names}
    ]
    assert len(fields) == len(names), f"{model.__name__} has not all of {names}"
    places = ", ".join(f"{quote(str(field.column))} = %s" for field in fields)
    key = quote(str(meta.pk.column))
    return f"UPDATE {quote(meta.db_table)} SET {places} WHERE {key} = %s", fields  # noqa: S608


@functools.cache
def columns(model: type[Model], alias: str) -> str:
    """The columns of a whole row, for the SELECT list of a statement of one's own."""
    quote = connection.ops.quote_name
    return ", ".join(f"{alias}.{quote(str(field.column))}" for field in _fields(model))


def fetch(statement: str, values: Mapping[str, Any], *models: type[Model]) -> list[list[Any]]:
    """Rows of a statement that selects the `columns` of these models in turn: an instance of
    each, None where an outer join found nothing, then what the statement selects behind them."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        found = cursor.fetchall()
    return [_instances(row, models) for row in found]


def fetch_one(statement: str, values: Mapping[str, Any], model: type[M]) -> list[M]:
    """The instances of one model that a statement selects."""
    return [row[0] for row in fetch(statement, values, model)]


def _instances(row: Sequence[Any], models: Sequence[type[Model]]) -> list[Any]:
    made: list[Any] = []
    start = 0
    for model in models:
        names, converters, key = _shape(model)
        values = list(row[start : start + len(names)])
        start += len(names)
        if values[key] is None:
            made.append(None)
            continue
        for place, convert in converters:
            values[place] = convert(values[place])
        made.append(model.from_db(connection.alias, names, values))
    return [*made, *row[start:]]


@functools.cache
def _shape(model: type[Model]) -> tuple[list[str], list[tuple[int, Callable[[Any], Any]]], int]:
    """Attribute names, how to read the columns that need it, and where the key is."""
    fields = _fields(model)
    converters: list[tuple[int, Callable[[Any], Any]]] = []
    for place, field in enumerate(fields):
        column = field.get_col(model._meta.db_table)
        for convert in (
            *connection.ops.get_db_converters(column),
            *field.get_db_converters(connection),
        ):
            converters.append((place, functools.partial(_convert, convert, column)))
    names = [field.attname for field in fields]
    return names, converters, names.index(model._meta.pk.attname)


def _convert(convert: Callable[..., Any], column: Any, value: Any) -> Any:
    return convert(value, column, connection)


def _fields(model: type[Model]) -> list[Field[Any, Any]]:
    return list(model._meta.concrete_fields)


def find(model: type[M], **equal: Any) -> M | None:
    """The row whose columns have these values, together unique; None when there is none."""
    found = fetch_one(_find(model, tuple(equal)), equal, model)
    return found[0] if found else None


@functools.cache
def _find(model: type[Model], names: tuple[str, ...]) -> str:
    meta, quote = model._meta, connection.ops.quote_name
    same = " AND ".join(f"t.{quote(_column(model, name))} = %({name})s" for name in names)
    return f"SELECT {columns(model, 't')} FROM {quote(meta.db_table)} t WHERE {same}"  # noqa: S608


def _column(model: type[Model], name: str) -> str:
    field = model._meta.get_field(name)
    assert isinstance(field, Field)
    return str(field.column)
