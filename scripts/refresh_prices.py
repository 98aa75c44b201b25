"""Write billing/prices.json from the `genai-prices` package (MIT), which this project does not need
at run time.

    python -m venv /tmp/prices && /tmp/prices/bin/pip install genai-prices==<version>
    /tmp/prices/bin/python scripts/refresh_prices.py --date 2026-11-30

Look at the diff before you commit: prices decide what an operator's limit means. What is booked
is never recomputed, so a new file changes only what comes after it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from importlib import metadata
from pathlib import Path
from typing import Any

from genai_prices import types
from genai_prices.data import providers

TARGET = Path(__file__).resolve().parent.parent / "billing" / "prices.json"

# What we know how many of: the price's name there, its name here, pico-dollars in its unit.
# Audio, images, searches and pages are not in a `Usage`, so their prices would never be used.
KINDS = (
    ("input_mtok", "input", 10**6),
    ("output_mtok", "output", 10**6),
    ("cache_read_mtok", "cache_read", 10**6),
    ("cache_write_mtok", "cache_write", 10**6),
    ("cache_write_1h_mtok", "cache_write_1h", 10**6),
    ("output_reasoning_mtok", "reasoning", 10**6),
    ("requests_kcount", "request", 10**9),
)


def pico(price: Decimal, factor: int) -> int:
    """Whole pico-dollars, half up: a few prices are thirds (0.08333…) or leftovers of binary
    floats (0.18000000000000002). The step is a millionth of a micro-dollar a token."""
    if price < 0:
        raise SystemExit(f"{price} is negative")
    return int((price * factor).to_integral_value(ROUND_HALF_UP))


def rate(price: Decimal | types.TieredPrices, factor: int) -> int | list[list[int]]:
    """One number, or [[from more than so many input tokens, price], …] beginning at 0."""
    if isinstance(price, types.TieredPrices):
        return [[0, pico(price.base, factor)]] + [
            [tier.start, pico(tier.price, factor)] for tier in price.tiers
        ]
    return pico(price, factor)


def rates(price: types.ModelPrice) -> dict[str, Any]:
    found = ((name, getattr(price, key), factor) for key, name, factor in KINDS)
    return {name: rate(value, factor) for name, value, factor in found if value is not None}


def clause(logic: Any) -> Any:
    """A match rule as [operator, text] or [operator, rules]."""
    if logic is None:
        return None
    ((name, value),) = dataclasses.asdict(logic).items()
    if name in ("or_", "and_"):
        return [name.rstrip("_"), [clause(part) for part in getattr(logic, name)]]
    return [{"starts_with": "starts", "ends_with": "ends"}.get(name, name), value]


def schedule(model: types.ModelInfo) -> list[dict[str, Any]]:
    """The prices with when they hold; of several that hold, the last one counts."""
    conditional = model.prices if isinstance(model.prices, list) else [model]
    entries = []
    for entry in conditional:
        item = rates(entry.prices)
        if "input" not in item and "output" not in item:
            continue
        constraint = getattr(entry, "constraint", None)
        if isinstance(constraint, types.StartDateConstraint):
            item["from"] = constraint.start_date.isoformat()
        elif isinstance(constraint, types.TimeOfDateConstraint):
            item["hours"] = [constraint.start_time.isoformat(), constraint.end_time.isoformat()]
        elif constraint is not None:
            raise SystemExit(f"unknown condition {constraint!r} of {model.id}")
        entries.append(item)
    return entries


def export(exported_on: date) -> dict[str, Any]:
    book = {}
    for provider in providers:
        models = [
            {"id": model.id, "match": clause(model.match), "prices": prices}
            | ({"context": model.context_window} if model.context_window else {})
            for model in provider.models
            if (prices := schedule(model))
        ]
        if models:
            book[provider.id] = {
                "name": provider.name,
                "url": provider.api_pattern,
                "match": clause(provider.provider_match),
                "model_match": clause(provider.model_match),
                "fallback": provider.fallback_model_providers or [],
                "models": models,
            }
    return {
        "source": "genai-prices",
        "version": metadata.version("genai-prices"),
        "exported_on": exported_on.isoformat(),
        "license": "MIT License, Copyright (c) Pydantic Services Inc. 2025 to present; "
        "https://github.com/pydantic/genai-prices",
        "unit": "pico-dollars (1e-12 USD) a token; request: a call",
        "providers": book,
    }


def write(data: dict[str, Any], target: Path) -> None:
    """One line a model, so that a diff shows which prices changed."""
    lines = ["{"]
    lines += [f'"{key}": {json.dumps(value)},' for key, value in data.items() if key != "providers"]
    lines.append('"providers": {')
    for index, (name, provider) in enumerate(data["providers"].items()):
        head = {key: value for key, value in provider.items() if key != "models"}
        lines.append(f"{json.dumps(name)}: {json.dumps(head)[:-1]}, " + '"models": [')
        rows = [json.dumps(model, separators=(",", ":")) for model in provider["models"]]
        lines.append(",\n".join(rows))
        lines.append("]}" + ("," if index < len(data["providers"]) - 1 else ""))
    lines.append("}}")
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--date", type=date.fromisoformat, required=True, help="today, ISO")
    write(export(parser.parse_args().date), TARGET)
