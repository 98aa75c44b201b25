"""JSON that a statement writes by itself, field by field, for rows that Python need not see.

`json_build_object` and its like look up how to write each value of each row, and `concat` each of
its pieces; here the statement says it, and pieces are put together in pairs. Every `column` is a
name of ours, never a caller's word, and what is not called `…_or_null` must never be null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_Piece = tuple[bool, str]  # is it SQL, or text as it stands in the answer


@dataclass(frozen=True, slots=True)
class Value:
    """How a value is written. `absent` is the condition under which that is null."""

    pieces: tuple[_Piece, ...]
    absent: str = ""


def words(column: str) -> Value:
    """Text that anybody may have written."""
    return Value(((True, f"to_json({column})::text"),))


def words_or_null(column: str) -> Value:
    """The same; empty text is null."""
    sql = f"coalesce(to_json(nullif({column}, ''))::text, 'null')"
    return Value(((True, sql),), f"{column} = ''")


def plain(column: str) -> Value:
    """A UUID, or a word of ours that needs no escaping."""
    return Value(((False, '"'), (True, f"{column}::text"), (False, '"')))


def plain_or_null(column: str) -> Value:
    sql = f"coalesce('\"' || {column} || '\"', 'null')"
    return Value(((True, sql),), f"{column} IS NULL")


def number(column: str) -> Value:
    return Value(((True, f"{column}::text"),))


def moment(column: str) -> Value:
    """ISO 8601 in UTC with milliseconds and Z, as `wire.moment` writes it."""
    return Value(((True, _moment(column)),))


def moment_or_null(column: str) -> Value:
    return Value(((True, f"coalesce({_moment(column)}, 'null')"),), f"{column} IS NULL")


def _moment(column: str) -> str:
    # The quotes stand in the pattern.
    return f"""to_char({column} AT TIME ZONE 'UTC', '"\\""YYYY-MM-DD"T"HH24:MI:SS.MS"Z\\""')"""


def constant(word: str) -> Value:
    return Value(((False, f'"{word}"'),))


def boolean(condition: str) -> Value:
    return Value(((True, f"CASE WHEN {condition} THEN 'true' ELSE 'false' END"),))


def choice(column: str, names: Mapping[int, str]) -> Value:
    """A name of ours for a number."""
    cases = " ".join(f"""WHEN {number} THEN '"{name}"'""" for number, name in names.items())
    return Value(((True, f"CASE {column} {cases} END"),))


def sql(value: Value) -> str:
    """The expression of a value by itself."""
    return _joined(value.pieces)


@dataclass(frozen=True, slots=True)
class Rare:
    """Fields of which most rows have none: where all are null, that is written at once."""

    fields: Mapping[str, Value]


def record(*parts: Mapping[str, Value] | Rare, end: str = "}") -> str:
    """The expression of an object with these fields."""
    pieces: list[_Piece] = [(False, "{")]
    for part in parts:
        pieces += _rare(part.fields) if isinstance(part, Rare) else _fields(part)
    pieces.append((False, end))
    # The comma before the first field is one too many.
    return _joined([(False, "{" + pieces[1][1][1:]), *pieces[2:]])


def _fields(fields: Mapping[str, Value]) -> list[_Piece]:
    pieces: list[_Piece] = []
    for name, value in fields.items():
        pieces += [(False, f',"{name}":'), *value.pieces]
    return pieces


def _rare(fields: Mapping[str, Value]) -> list[_Piece]:
    absent = " AND ".join(value.absent for value in fields.values())
    nothing = "".join(f',"{name}":null' for name in fields)
    return [(True, f"CASE WHEN {absent} THEN '{nothing}' ELSE {_joined(_fields(fields))} END")]


def _joined(pieces: Sequence[_Piece]) -> str:
    """All pieces as one expression."""
    merged: list[_Piece] = []
    for is_sql, text in pieces:
        if merged and not is_sql and not merged[-1][0]:
            merged[-1] = (False, merged[-1][1] + text)
        else:
            merged.append((is_sql, text))
    return _tree([text if is_sql else f"'{text}'" for is_sql, text in merged if text])


def _tree(parts: Sequence[str]) -> str:
    """In pairs of pairs, so that no piece is copied once for each that comes after it."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return f"({_tree(parts[:middle])} || {_tree(parts[middle:])})"
