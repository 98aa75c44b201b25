"""What a token costs, and so what a call costs: the operator's own price, else the bundled one,
else nothing is known, which is never 0.

Prices are integer pico-dollars (1e-12 USD) a token. A call's cost is summed exactly and rounded
once, half up, to micro-dollars. The bundled data comes from scripts/refresh_prices.py; what was
booked is never recomputed. What the provider itself reports beats any price: see `ledger.py`.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from django.db import IntegrityError, connection, transaction

from agents.adapters import base
from billing.models import CostEvent, ModelPrice
from companies import activity, moments
from companies.errors import Conflict, Invalid
from companies.models import Company

BUNDLE = Path(__file__).with_name("prices.json")
PICO_A_MICRO = 1_000_000
MAX_PICO = 10**12  # a dollar a token: anything above is a slip of the pen

Kind = Literal[
    "input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning", "request"
]
# A kind without a price of its own costs what the next wider kind costs.
WIDER: dict[Kind, Kind] = {
    "cache_write_1h": "cache_write",
    "cache_write": "input",
    "cache_read": "input",
    "reasoning": "output",
}
Tiers = Sequence[tuple[int, int]]  # (holds above so many input tokens, pico), ascending from 0


@dataclass(frozen=True, slots=True)
class Rates:
    """The price of one model at one moment. `since` is None when it was always so."""

    source: Literal["operator", "genai-prices"]
    version: str
    provider: str
    model: str
    pico: Mapping[str, Tiers]
    since: date | None = None

    def rate(self, kind: Kind, input_tokens: int = 0) -> int | None:
        """Pico-dollars for one token of a call with so many input tokens; None when unknown."""
        wanted: Kind | None = kind
        while wanted is not None:
            tiers = self.pico.get(wanted)
            if tiers is not None:
                above = [pico for start, pico in tiers if input_tokens > start]
                return above[-1] if above else tiers[0][1]
            wanted = WIDER.get(wanted)
        return None


@dataclass(frozen=True, slots=True)
class Priced:
    """What a call costs. `cost_micros` is None exactly when `status` is unpriced."""

    cost_micros: int | None
    status: str
    source: str = ""
    version: str = ""


UNPRICED = Priced(None, CostEvent.CostStatus.UNPRICED)


def price(
    *, company_id: uuid.UUID, provider: str, model: str, usage: base.Usage, now: datetime
) -> Priced:
    """What `usage` costs by the prices that hold at `now`."""
    found = rates(company_id=company_id, provider=provider, model=model, now=now)
    pico = None if found is None else cost_pico(found, usage)
    if found is None or pico is None:
        return UNPRICED
    return Priced(to_micros(pico), CostEvent.CostStatus.ESTIMATED, found.source, found.version)


def rates(*, company_id: uuid.UUID, provider: str, model: str, now: datetime) -> Rates | None:
    """The price of a model at `now`: the operator's own, else the bundled one, else None."""
    return own(company_id=company_id, provider=provider, model=model, now=now) or bundled(
        provider=provider, model=model, now=now
    )


def cost_pico(found: Rates, usage: base.Usage) -> int | None:
    """The exact cost in pico-dollars, None when a kind of token that was used has no price.

    Cached and cache-written tokens are inside `input_tokens`, those written for an hour inside
    the written ones, reasoning inside `output_tokens`.
    """
    for_an_hour = usage.cache_write_1h_tokens
    written = max(usage.cache_write_tokens, for_an_hour)
    cached = usage.cache_read_tokens + written
    reasoning = min(usage.reasoning_tokens, usage.output_tokens)
    counts: dict[Kind, int] = {
        "input": max(0, usage.input_tokens - cached),
        "cache_read": usage.cache_read_tokens,
        "cache_write": written - for_an_hour,
        "cache_write_1h": for_an_hour,
        "output": usage.output_tokens - reasoning,
        "reasoning": reasoning,
    }
    total = found.rate("request") or 0
    for kind, count in counts.items():
        if count:
            each = found.rate(kind, usage.input_tokens)
            if each is None:
                return None
            total += count * each
    return total


def worst_micros(found: Rates, *, input_tokens: int, max_output_tokens: int) -> int | None:
    """The most a call can cost, rounded up: nothing read from a cache, all of it written to the
    dearest one, the longest answer. None when the model has no price for that."""
    reading: tuple[Kind, ...] = ("input", "cache_write", "cache_write_1h")
    answering: tuple[Kind, ...] = ("output", "reasoning")
    dearest_in = [found.rate(kind, input_tokens) for kind in reading]
    dearest_out = [found.rate(kind, input_tokens) for kind in answering]
    if (input_tokens and None in dearest_in) or (max_output_tokens and None in dearest_out):
        return None
    pico = found.rate("request") or 0
    pico += input_tokens * max((each or 0) for each in dearest_in)
    pico += max_output_tokens * max((each or 0) for each in dearest_out)
    return -(-pico // PICO_A_MICRO)


def to_micros(pico: int) -> int:
    """Half up; the only rounding there is."""
    return (pico + PICO_A_MICRO // 2) // PICO_A_MICRO


# --- the operator's own prices -----------------------------------------------------------------


_OWN = "SELECT * FROM billing_own_price(%s, %s, %s, %s)"


def own(*, company_id: uuid.UUID, provider: str, model: str, now: datetime) -> Rates | None:
    """The company's own price: one for this very provider before one for any."""
    with connection.cursor() as cursor:
        cursor.execute(_OWN, [company_id, provider, model, now])
        row = cursor.fetchone()
    return None if row is None else own_rates(row)


def own_rates(row: Sequence[Any]) -> Rates:
    """What a row of the database's `billing_own_price` says."""
    of_provider, name, effective_at, *picos = row
    kinds: tuple[Kind, ...] = ("input", "output", "cache_read", "cache_write")
    known = zip(kinds, picos, strict=True)
    return Rates(
        source="operator",
        version=effective_at.isoformat(timespec="seconds"),
        provider=of_provider,
        model=name,
        pico={kind: ((0, pico),) for kind, pico in known if pico is not None},
        since=effective_at.date(),
    )


def set_price(
    *,
    company: Company,
    model: str,
    input_pico: int,
    output_pico: int,
    actor: activity.Actor,
    now: datetime,
    provider: str = "",
    cache_read_pico: int | None = None,
    cache_write_pico: int | None = None,
    effective_at: datetime | None = None,
) -> ModelPrice:
    """Set what a model costs from `effective_at` (now) on; 0 says that it is free.

    Raises Invalid for a price that cannot be, Conflict when that moment has a price already.
    """
    model, provider = model.strip(), provider.strip().lower()
    if not model or len(model) > 120 or len(provider) > 60:
        raise Invalid("model_invalid", "Name a model in at most 120 characters.", field="model")
    given = {
        "input_pico": input_pico,
        "output_pico": output_pico,
        "cache_read_pico": cache_read_pico,
        "cache_write_pico": cache_write_pico,
    }
    for field, pico in given.items():
        optional = pico is None and field.startswith("cache")
        if not optional and (type(pico) is not int or not 0 <= pico <= MAX_PICO):
            raise Invalid("price_invalid", "A price lies between 0 and 1 USD a token.", field=field)
    since = now if effective_at is None else moments.sound(effective_at, "effectiveAt")
    try:
        with transaction.atomic():
            row = ModelPrice.objects.create(
                company=company,
                provider=provider,
                model=model,
                effective_at=since,
                **given,
            )
            activity.record(
                company_id=company.id,
                actor=actor,
                action="price.set",
                entity_type="price",
                entity_id=row.id,
                entity_name=model,
                details=given,
                now=now,
            )
    except IntegrityError as error:
        raise Conflict("price_exists", "There is already a price for that moment.") from error
    return row


# --- the bundled prices ------------------------------------------------------------------------


def bundled(*, provider: str, model: str, now: datetime) -> Rates | None:
    """The bundled price of a model at `now`, or None."""
    found = _find(provider.strip().lower(), model.strip().lower())
    if found is None:
        return None
    return _rates(*found, now)


def _rates(provider: str, entry: Mapping[str, Any], now: datetime) -> Rates:
    chosen = _in_force(entry["prices"], now)
    kinds = {key: value for key, value in chosen.items() if key not in ("from", "hours")}
    return Rates(
        source="genai-prices",
        version=_book()["version"],
        provider=provider,
        model=entry["id"],
        pico={kind: _tiers(value) for kind, value in kinds.items()},
        since=date.fromisoformat(chosen["from"]) if "from" in chosen else None,
    )


def catalogue(
    *, company_id: uuid.UUID, now: datetime, query: str = "", limit: int = 100
) -> list[Rates]:
    """What models cost at `now`, for a page: the company's own prices first, then bundled ones
    whose provider or model contains `query`, at most `limit` in all."""
    wanted = query.strip().lower()
    rows = ModelPrice.objects.for_company(company_id).filter(effective_at__lte=now)
    names = sorted({(row.provider, row.model) for row in rows if wanted in _label(row)})
    found = [own(company_id=company_id, provider=p, model=m, now=now) for p, m in names]
    for name, provider in _book()["providers"].items():
        for entry in provider["models"]:
            if len(found) >= limit:
                break
            if wanted in f"{name}/{entry['id']}".lower():
                found.append(_rates(name, entry, now))
    return [each for each in found if each is not None][:limit]


def models(*, company_id: uuid.UUID, provider: str, now: datetime) -> list[str]:
    """Names of a provider's models that have a price at `now`, the company's own first."""
    mine = (
        ModelPrice.objects.for_company(company_id)
        .filter(effective_at__lte=now, provider__in=["", provider])
        .order_by("model")
        .values_list("model", flat=True)
    )
    listed = [entry["id"] for entry in _book()["providers"].get(provider, {}).get("models", ())]
    return list(dict.fromkeys([*mine, *listed]))


def _label(row: ModelPrice) -> str:
    return f"{row.provider}/{row.model}".lower()


def bundle_info() -> dict[str, str]:
    """Where the bundled prices come from: source, version, exported_on, license."""
    book = _book()
    return {key: book[key] for key in ("source", "version", "exported_on", "license")}


def _tiers(value: int | list[list[int]]) -> Tiers:
    return ((0, value),) if isinstance(value, int) else tuple((above, p) for above, p in value)


def _in_force(prices: Sequence[Mapping[str, Any]], now: datetime) -> Mapping[str, Any]:
    """The last price whose condition holds, in UTC; the first one when none does."""
    now = now.astimezone(UTC)
    for entry in reversed(prices):
        if "from" in entry and now.date() < date.fromisoformat(entry["from"]):
            continue
        if "hours" in entry:
            start, end = (time.fromisoformat(each).replace(tzinfo=None) for each in entry["hours"])
            clock = now.time()
            inside = start <= clock < end if start <= end else clock >= start or clock < end
            if not inside:
                continue
        return entry
    return prices[0]


@cache
def _book() -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = json.loads(BUNDLE.read_text(encoding="utf-8"))
    return loaded


@lru_cache(maxsize=4096)
def _find(provider: str, model: str) -> tuple[str, Mapping[str, Any]] | None:
    """The provider and the model's entry that these names mean."""
    head, slash, tail = model.partition("/")
    if provider == "litellm" and slash and _provider(head, tail):
        provider, model = head, tail
    name = _provider(provider, model)
    if name is None:
        return None
    entry = _entry(name, model, with_fallback=True)
    dated = _with_dashes(model)
    if entry is None and dated != model:
        entry = _entry(name, dated, with_fallback=True)
    return None if entry is None else (name, entry)


def _provider(provider: str, model: str) -> str | None:
    """By its name, by the host of its API, or, unnamed, by what its models are called."""
    book = _book()["providers"]
    if provider in book:
        return provider
    if not provider:
        rules = ((name, entry["model_match"]) for name, entry in book.items())
        return next((name for name, rule in rules if rule and _matches(rule, model)), None)
    if "." in provider or ":" in provider:
        url = provider if "://" in provider else f"https://{provider}"
        return next((name for name, entry in book.items() if re.match(entry["url"], url)), None)
    rules = ((name, entry["match"]) for name, entry in book.items())
    return next((name for name, rule in rules if rule and _matches(rule, provider)), None)


def _entry(provider: str, model: str, *, with_fallback: bool = False) -> Mapping[str, Any] | None:
    book = _book()["providers"]
    for entry in book[provider]["models"]:
        if _matches(entry["match"], model):
            return entry
    if with_fallback:
        for other in book[provider]["fallback"]:
            if other in book and (entry := _entry(other, model)) is not None:
                return entry
    return None


def _matches(rule: Sequence[Any], text: str) -> bool:
    """Does `text`, in lower case, follow a match rule of the bundle?"""
    operator, operand = rule
    match operator:
        case "or":
            return any(_matches(part, text) for part in operand)
        case "and":
            return all(_matches(part, text) for part in operand)
        case "equals":
            return text == operand.lower()
        case "starts":
            return text.startswith(operand.lower())
        case "ends":
            return text.endswith(operand.lower())
        case "contains":
            return operand.lower() in text
        case "regex":
            return re.search(operand, text) is not None
    return False


def _with_dashes(model: str) -> str:
    """Gateways write a model's date as 20251211 where the price list has 2025-12-11."""
    return re.sub(r"-(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)", r"-\1-\2-\3", model)
