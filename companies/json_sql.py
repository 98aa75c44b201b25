"""JSON that a statement writes by itself, field by field, for rows that Python need not see.

`json_build_object` and its like look up how to write each value of each row; here the statement
says it, which costs a third. Every `column` is a name of ours, never a caller's word.
"""

from __future__ import annotations

from collections.abc import Mapping

# PostgreSQL takes a hundred arguments; a name and a value are two.
_FIELDS_A_CALL = 45


def record(fields: Mapping[str, str], *, end: str = "}") -> str:
    """The SQL of an object with these fields, each an expression of this module."""
    calls: list[str] = []
    names = list(fields)
    for start in range(0, len(names), _FIELDS_A_CALL):
        parts: list[str] = []
        for name in names[start : start + _FIELDS_A_CALL]:
            parts += [f"'{'{' if name == names[0] else ','}\"{name}\":'", fields[name]]
        calls.append(f"concat({', '.join(parts)})")
    calls.append(f"'{end}'")
    return " || ".join(calls)


def words(column: str) -> str:
    """Text that anybody may have written."""
    return f"to_json({column})"


def words_or_null(column: str) -> str:
    """The same; empty text is null."""
    return f"coalesce(to_json(nullif({column}, ''))::text, 'null')"


def plain(column: str) -> str:
    """A UUID, or a word of ours that needs no escaping. Never null."""
    return f"'\"' || {column} || '\"'"


def plain_or_null(column: str) -> str:
    return f"coalesce({plain(column)}, 'null')"


def moment(column: str) -> str:
    """ISO 8601 in UTC with milliseconds and Z, as `wire.moment` writes it. Never null."""
    # The quotes stand in the pattern.
    return f"""to_char({column} AT TIME ZONE 'UTC', '"\\""YYYY-MM-DD"T"HH24:MI:SS.MS"Z\\""')"""


def moment_or_null(column: str) -> str:
    return f"coalesce({moment(column)}, 'null')"


def boolean(condition: str) -> str:
    return f"CASE WHEN {condition} THEN 'true' ELSE 'false' END"


def choice(column: str, names: Mapping[int, str]) -> str:
    """A name of ours for a number."""
    cases = " ".join(f"""WHEN {number} THEN '"{name}"'""" for number, name in names.items())
    return f"CASE {column} {cases} END"
