"""Configurations to look at: values of `env` and `headers` may be secrets in plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_PARTS = ("env", "headers")


def masked(value: Any) -> Any:
    """The same JSON with `***` for whatever may be a secret, however deep it lies.

    Names stay, and so do references to stored secrets, which say nothing.
    """
    if isinstance(value, Mapping):
        return {
            name: _hidden(item) if name in _PARTS else masked(item) for name, item in value.items()
        }
    return [masked(item) for item in value] if isinstance(value, list) else value


def unmasked(config: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration that a client read, changed and sends back: what it saw masked stays."""
    kept = dict(config)
    for part in _PARTS:
        values, before = kept.get(part), known.get(part)
        if isinstance(values, Mapping) and isinstance(before, Mapping):
            kept[part] = {
                name: before[name] if value == HIDDEN and name in before else value
                for name, value in values.items()
            }
    return kept


def _hidden(values: Any) -> Any:
    if not isinstance(values, Mapping):
        return HIDDEN if values else values
    return {name: item if _is_reference(item) else HIDDEN for name, item in values.items()}


def _is_reference(item: Any) -> bool:
    return isinstance(item, Mapping) and item.keys() == {"type", "secret"}
