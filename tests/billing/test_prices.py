"""What a call costs: exactly, rounded once, and never 0 for want of a price."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agents.adapters.base import Usage
from billing import prices
from companies import activity
from companies.errors import Conflict, Invalid
from companies.models import Company

NOVEMBER = datetime(2026, 11, 15, 20, 0, tzinfo=UTC)
SAME_USAGE = {
    "input_tokens": 1150,
    "cache_read_tokens": 1000,
    "cache_write_tokens": 30,
    "output_tokens": 25,
}


def bundled_cost(provider: str, model: str, **usage: int) -> int | None:
    """Pico-dollars by the bundled prices."""
    rates = prices.bundled(provider=provider, model=model, now=NOVEMBER)
    assert rates is not None, f"{provider}/{model} has no bundled price"
    return prices.cost_pico(rates, Usage(call=1, provider=provider, model=model, **usage))


@pytest.mark.parametrize(
    ("provider", "model", "pico"),
    [
        ("anthropic", "claude-sonnet-4-5", 1_147_500_000),
        ("anthropic", "claude-opus-4-8", 1_912_500_000),
        ("anthropic", "claude-opus-5-5", 1_330_000_000),
        ("openai", "gpt-5", 562_500_000),
        ("openai", "gpt-4o-mini", 112_500_000),
    ],
)
def test_the_same_call_costs_what_three_independent_sources_say(
    provider: str, model: str, pico: int
) -> None:
    assert bundled_cost(provider, model, **SAME_USAGE) == pico


def test_rounding_happens_once_and_half_up() -> None:
    assert [prices.to_micros(pico) for pico in (499_999, 500_000, 1_499_999, 1_500_000)] == [
        0,
        1,
        1,
        2,
    ]


def test_a_cache_write_for_an_hour_costs_more_than_one_for_five_minutes() -> None:
    """Anthropic's count of written tokens includes those for an hour."""
    written = {"input_tokens": 30, "cache_write_tokens": 30}
    short = bundled_cost("anthropic", "claude-opus-4-8", **written)
    long = bundled_cost("anthropic", "claude-opus-4-8", **written, cache_write_1h_tokens=30)
    mixed = bundled_cost("anthropic", "claude-opus-4-8", **written, cache_write_1h_tokens=10)
    assert (short, long) == (30 * 6_250_000, 30 * 10_000_000)
    assert mixed == 20 * 6_250_000 + 10 * 10_000_000


def test_the_same_call_with_writes_for_an_hour_costs_what_other_calculators_say() -> None:
    pico = bundled_cost("anthropic", "claude-opus-5-5", **SAME_USAGE, cache_write_1h_tokens=30)
    assert pico == 1_420_000_000


def test_a_long_context_makes_all_tokens_of_the_call_dearer() -> None:
    rates = prices.Rates(
        source="operator",
        version="",
        provider="",
        model="m",
        pico={"input": ((0, 1), (200_000, 2)), "output": ((0, 10), (200_000, 15))},
    )
    below = Usage(call=1, provider="", model="m", input_tokens=200_000, output_tokens=1)
    above = Usage(call=1, provider="", model="m", input_tokens=200_001, output_tokens=1)
    assert prices.cost_pico(rates, below) == 200_000 + 10
    assert prices.cost_pico(rates, above) == 400_002 + 15


def test_reasoning_is_inside_the_output_and_not_paid_twice() -> None:
    with_thoughts = bundled_cost("openai", "gpt-5", output_tokens=100, reasoning_tokens=80)
    assert with_thoughts == bundled_cost("openai", "gpt-5", output_tokens=100)


def test_a_token_without_a_price_makes_the_call_unpriced() -> None:
    rates = prices.Rates(
        source="operator", version="", provider="", model="m", pico={"input": ((0, 1),)}
    )
    used = Usage(call=1, provider="", model="m", input_tokens=5, output_tokens=5)
    assert prices.cost_pico(rates, used) is None


@pytest.mark.parametrize(
    ("provider", "model", "found"),
    [
        ("OpenAI", "GPT-5", "gpt-5"),
        ("api.openai.com", "gpt-5-2025-08-07", "gpt-5"),
        ("https://api.anthropic.com", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("", "claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("litellm", "anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("azure", "gpt-5", "gpt-5"),
        ("xai", "grok-3", "grok-3"),
        ("openrouter", "anthropic/claude-sonnet-4.5", "anthropic/claude-sonnet-4.5"),
    ],
)
def test_a_model_is_found_by_the_names_that_people_and_gateways_use(
    provider: str, model: str, found: str
) -> None:
    rates = prices.bundled(provider=provider, model=model, now=NOVEMBER)
    assert rates is not None
    assert rates.model == found


@pytest.mark.parametrize("provider", ["ollama", "llama-server", "127.0.0.1:8080", "localhost", ""])
def test_a_local_model_has_no_price(provider: str) -> None:
    assert prices.bundled(provider=provider, model="smollm2-135m", now=NOVEMBER) is None


def test_a_price_by_the_hour_follows_the_clock_in_utc() -> None:
    noon = prices.bundled(
        provider="deepseek", model="deepseek-chat", now=datetime(2025, 3, 1, 12, tzinfo=UTC)
    )
    night = prices.bundled(
        provider="deepseek", model="deepseek-chat", now=datetime(2025, 3, 1, 20, tzinfo=UTC)
    )
    assert noon is not None
    assert night is not None
    assert noon.rate("input") != night.rate("input")


def test_the_worst_case_is_never_below_what_a_call_can_cost() -> None:
    rates = prices.bundled(provider="anthropic", model="claude-opus-4-8", now=NOVEMBER)
    assert rates is not None
    worst = prices.worst_micros(rates, input_tokens=1000, max_output_tokens=500)
    assert worst is not None
    for kind in ("cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens"):
        used = Usage(
            call=1,
            provider="anthropic",
            model="",
            input_tokens=1000,
            output_tokens=500,
            **{kind: 1000},
        )
        assert prices.to_micros(prices.cost_pico(rates, used) or 0) <= worst


def test_the_bundle_says_where_it_comes_from() -> None:
    info = prices.bundle_info()
    assert info["source"] == "genai-prices"
    assert "MIT" in info["license"]
    assert datetime.fromisoformat(info["exported_on"])


# --- the operator's own ---------------------------------------------------------------------


def set_price(company: Company, now: datetime, **fields: object) -> None:
    prices.set_price(
        **{
            "company": company,
            "model": "gpt-5",
            "input_pico": 7,
            "output_pico": 9,
            "actor": activity.SYSTEM,
            "now": now,
            **fields,
        }
    )


def priced(company: Company, now: datetime, provider: str = "openai") -> prices.Priced:
    usage = Usage(call=1, provider=provider, model="gpt-5", input_tokens=1_000_000)
    return prices.price(
        company_id=company.id, provider=provider, model="gpt-5", usage=usage, now=now
    )


def test_the_operators_price_beats_the_bundled_one(acme: Company, now: datetime) -> None:
    set_price(acme, now)
    assert priced(acme, now) == prices.Priced(
        7, "estimated", "operator", now.isoformat(timespec="seconds")
    )


def test_a_price_counts_from_its_moment_on(acme: Company, now: datetime) -> None:
    set_price(acme, now, effective_at=now + timedelta(hours=1))
    assert priced(acme, now).source == "genai-prices"
    assert priced(acme, now + timedelta(hours=1)).source == "operator"


def test_a_price_for_this_provider_beats_one_for_any(acme: Company, now: datetime) -> None:
    set_price(acme, now, provider="OpenAI", input_pico=1)
    set_price(acme, now + timedelta(minutes=1), input_pico=2)
    later = now + timedelta(minutes=2)
    assert priced(acme, later, "openai").cost_micros == 1
    assert priced(acme, later, "azure").cost_micros == 2


def test_a_price_of_zero_is_a_price(acme: Company, now: datetime) -> None:
    set_price(acme, now, model="smollm2", input_pico=0, output_pico=0)
    usage = Usage(call=1, provider="ollama", model="smollm2", input_tokens=10, output_tokens=10)
    found = prices.price(
        company_id=acme.id, provider="ollama", model="smollm2", usage=usage, now=now
    )
    assert (found.cost_micros, found.status) == (0, "estimated")


def test_a_rivals_price_is_not_ours(acme: Company, globex: Company, now: datetime) -> None:
    set_price(globex, now)
    assert priced(acme, now).source == "genai-prices"


@pytest.mark.parametrize("pico", [-1, 2**63, 1.5, True, None])
def test_a_price_that_cannot_be_is_refused(acme: Company, now: datetime, pico: object) -> None:
    with pytest.raises(Invalid):
        set_price(acme, now, input_pico=pico)


def test_one_moment_has_one_price(acme: Company, now: datetime) -> None:
    set_price(acme, now)
    with pytest.raises(Conflict):
        set_price(acme, now)


def test_the_catalogue_shows_own_prices_first_and_finds_by_name(
    acme: Company, now: datetime
) -> None:
    set_price(acme, now, model="gpt-5-house")
    found = prices.catalogue(company_id=acme.id, now=now, query="gpt-5", limit=5)
    assert (found[0].source, found[0].model) == ("operator", "gpt-5-house")
    assert len(found) == 5
    assert {"gpt-5" in f"{each.provider}/{each.model}" for each in found} == {True}
    assert prices.catalogue(company_id=acme.id, now=now, query="no such model") == []
