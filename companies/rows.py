"""Rows that are read and written all the time: statements that are not built anew each time.

`ask` runs a statement of one's own without a cursor of Django's around it. `fetch` gives whole
rows of models for one that names their columns with `columns`; `insert` and `update` write one row.
No signals, no validation.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import (
    BooleanField,
    CharField,
    DateTimeField,
    Field,
    ForeignKey,
    IntegerField,
    Model,
    PositiveIntegerField,
    PositiveSmallIntegerField,
    SmallIntegerField,
    TextField,
    UUIDField,
)
from django.db.models.base import ModelState
from django.utils.asyncio import async_unsafe

M = TypeVar("M", bound=Model)


@async_unsafe
def ask(statement: str, values: Mapping[str, Any] | Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows that a statement gives; raises what a cursor of Django's raises.

    A short request is four statements, and Django's cursor around the driver's takes a third of
    what each costs Python. Whoever listens to statements or counts them gets to see these as well.
    """
    db = connections[DEFAULT_DB_ALIAS]
    if db.execute_wrappers or db.queries_logged:
        with db.cursor() as cursor:
            cursor.execute(statement, values)
            return cast(list[tuple[Any, ...]], cursor.fetchall())
    db.close_if_health_check_failed()
    db.ensure_connection()
    db.validate_thread_sharing()
    db.validate_no_broken_transaction()
    with db.wrap_database_errors, db.connection.cursor() as asked:
        asked.execute(statement, values)
        return cast(list[tuple[Any, ...]], asked.fetchall())


def insert(row: Model) -> None:
    """Write a new row with all its fields, as `save(force_insert=True)` does, at a third of its
    price: no signals, no returned columns. Raises IntegrityError."""
    with connection.cursor() as cursor:
        cursor.execute(insertion(type(row)), values(row))
    inserted(row)


@functools.cache
def insertion(model: type[Model]) -> str:
    """The INSERT of a row, also for a statement that writes more. Its parameters are `values`."""
    quote = connection.ops.quote_name
    fields = _written(model)
    columns = ", ".join(quote(str(field.column)) for field in fields)
    places = ", ".join(f"%({_place(field)})s" for field in fields)
    return f"INSERT INTO {quote(model._meta.db_table)} ({columns}) VALUES ({places})"  # noqa: S608


def values(row: Model) -> dict[str, Any]:
    """The parameters of `insertion`. Their names begin with `new_`."""
    given = row.__dict__
    found: dict[str, Any] = {}
    for place, attname, kind, field in _places(type(row)):
        value = given.get(attname, _ABSENT)
        plain = kind is not None and (value is None or type(value) is kind)
        if plain and kind is datetime and value is not None:
            plain = value.tzinfo is not None  # Django warns of a moment without one
        found[place] = value if plain else _value(field, row, True)
    return found


def inserted(row: Model) -> None:
    """A statement has written this row."""
    row._state.adding, row._state.db = False, connection.alias


@functools.cache
def _written(model: type[Model]) -> list[Field[Any, Any]]:
    return [field for field in model._meta.local_concrete_fields if not field.generated]


def _place(field: Field[Any, Any]) -> str:
    return f"new_{field.column}"


@functools.cache
def _places(model: type[Model]) -> list[tuple[str, str, type | None, Field[Any, Any]]]:
    """Of each field its parameter, its attribute and the values that need no preparation."""
    return [(_place(field), field.attname, _kind(field), field) for field in _written(model)]


def _kind(field: Field[Any, Any]) -> type | None:
    """The type of values that the driver takes as they are; it takes None as well, then."""
    if isinstance(field, DateTimeField):
        return None if field.auto_now or field.auto_now_add else datetime
    return _AS_IT_IS.get(type(field))


_ABSENT = object()  # not even None: a field that was not loaded


# What the driver takes as it is, and Django would only look at: most values of most rows.
_AS_IT_IS: dict[type[Field[Any, Any]], type] = {
    BooleanField: bool,
    CharField: str,
    ForeignKey: uuid.UUID,
    IntegerField: int,
    PositiveIntegerField: int,
    PositiveSmallIntegerField: int,
    SmallIntegerField: int,
    TextField: str,
    UUIDField: uuid.UUID,
}


def _value(field: Field[Any, Any], row: Model, adding: bool) -> Any:
    """The value of a field, as the driver takes it."""
    value = getattr(row, field.attname)
    if type(value) is _AS_IT_IS.get(type(field)):
        return value
    return field.get_db_prep_save(field.pre_save(row, adding), connection=connection)


def update(row: Model, fields: Collection[str]) -> None:
    """Write these fields of a row that is there, as `save(update_fields=…)` does."""
    statement, chosen = _update(type(row), tuple(sorted(fields)))
    with connection.cursor() as cursor:
        cursor.execute(statement, [*(_value(field, row, False) for field in chosen), row.pk])


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


class Part(NamedTuple):
    """A model with some of its fields, by attribute name, its key among them. The others are read
    when they are asked for."""

    model: type[Model]
    only: tuple[str, ...] = ()


def part(model: type[Model], *only: str) -> Part:
    known = {field.attname for field in _fields(model)}
    assert known.issuperset(only), f"{model.__name__} has not all of {only}"
    return Part(model, only)


@functools.cache
def columns(model: type[Model] | Part, alias: str) -> str:
    """The columns of a row, or of a part of it, for the SELECT list of a statement of one's own."""
    quote = connection.ops.quote_name
    wanted = _fields(*(model if isinstance(model, Part) else (model,)))
    return ", ".join(f"{alias}.{quote(str(field.column))}" for field in wanted)


def fetch(
    statement: str, values: Mapping[str, Any], *models: type[Model] | Part
) -> list[list[Any]]:
    """Rows of a statement that selects the `columns` of these models in turn: an instance of
    each, None where an outer join found nothing, then what the statement selects behind them."""
    return [_instances(row, models) for row in ask(statement, values)]


def fetch_one(statement: str, values: Mapping[str, Any], model: type[M]) -> list[M]:
    """The instances of one model that a statement selects."""
    return [row[0] for row in fetch(statement, values, model)]


def _instances(row: Sequence[Any], models: Sequence[type[Model] | Part]) -> list[Any]:
    made: list[Any] = []
    start = 0
    for wanted in models:
        model, only = wanted if isinstance(wanted, Part) else (wanted, ())
        names, _, key = _shape(model, only)
        values = list(row[start : start + len(names)])
        start += len(names)
        made.append(None if values[key] is None else _instance(model, only, values))
    return [*made, *row[start:]]


def _instance(model: type[M], only: tuple[str, ...], values: list[Any]) -> M:
    names, converters, _ = _shape(model, only)
    for place, convert in converters:
        values[place] = convert(values[place])
    # What `from_db` gives, at a tenth of its price: no signals, no look at each field.
    made = model.__new__(model)
    made.__dict__.update(zip(names, values, strict=True))
    state = made._state = ModelState()
    state.adding, state.db = False, DEFAULT_DB_ALIAS
    return made


@functools.cache
def _shape(
    model: type[Model], only: tuple[str, ...]
) -> tuple[list[str], list[tuple[int, Callable[[Any], Any]]], int]:
    """Attribute names, how to read the columns that need it, and where the key is."""
    fields = _fields(model, only)
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


def _fields(model: type[Model], only: tuple[str, ...] = ()) -> list[Field[Any, Any]]:
    fields = list(model._meta.concrete_fields)
    return [field for field in fields if field.attname in only] if only else fields


def find(model: type[M], *only: str, **equal: Any) -> M | None:
    """The row whose columns have these values, together unique; None when there is none. With
    `only` just these fields of it (the key among them); the others are read when they are asked
    for."""
    for found in ask(_find(model, only, tuple(equal)), equal):
        return _instance(model, only, list(found))
    return None


@functools.cache
def _find(model: type[Model], only: tuple[str, ...], names: tuple[str, ...]) -> str:
    meta, quote = model._meta, connection.ops.quote_name
    same = " AND ".join(f"t.{quote(_column(model, name))} = %({name})s" for name in names)
    columns = ", ".join(f"t.{quote(str(field.column))}" for field in _fields(model, only))
    return f"SELECT {columns} FROM {quote(meta.db_table)} t WHERE {same}"  # noqa: S608


def _column(model: type[Model], name: str) -> str:
    field = model._meta.get_field(name)
    assert isinstance(field, Field)
    return str(field.column)
