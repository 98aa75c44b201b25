"""Prices over the API: what models cost, and setting a price of one's own."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from billing import answers, prices
from companies import wire

router = Router(by_alias=True)

# Dollars for a million tokens; six places make whole pico-dollars a token.
PerMillion = Annotated[Decimal, Field(ge=0, le=1_000_000, max_digits=13, decimal_places=6)]


class NewPrice(wire.Body):
    model: Annotated[wire.Text, Field(min_length=1, max_length=120)]
    provider: Annotated[wire.Text, Field(max_length=60)] = ""
    input_usd_per_million: PerMillion
    output_usd_per_million: PerMillion
    cache_read_usd_per_million: PerMillion | None = None
    cache_write_usd_per_million: PerMillion | None = None
    effective_at: wire.Moment | None = None


@router.get(
    "/companies/{company}/prices",
    response=list[answers.ModelPrice],
    summary="What models cost now",
)
def list_prices(
    request: HttpRequest,
    company: str,
    q: Annotated[wire.Text, Field(max_length=120)] = "",
    limit: wire.Limit = wire.DEFAULT_PAGE,
) -> HttpResponse:
    """The company's own prices first, then bundled ones; `q` narrows to names that contain it."""
    found = wire.company(request, company)
    rows = prices.catalogue(company_id=found.id, now=timezone.now(), query=q, limit=limit)
    return wire.answer([shape(row) for row in rows])


@router.post(
    "/companies/{company}/prices",
    response={201: answers.ModelPrice},
    summary="Say what a model costs from now, or a later moment, on",
)
def set_price(request: HttpRequest, company: str, body: NewPrice) -> HttpResponse:
    """Beats the bundled price for calls from then on; what is booked stays as it is. Without a
    provider it holds for the model at each of them. 0 says that it is free."""
    found, now = wire.company(request, company, "manage"), timezone.now()
    row = prices.set_price(
        company=found,
        model=body.model,
        provider=body.provider,
        input_pico=_pico(body.input_usd_per_million),
        output_pico=_pico(body.output_usd_per_million),
        cache_read_pico=_pico_or_none(body.cache_read_usd_per_million),
        cache_write_pico=_pico_or_none(body.cache_write_usd_per_million),
        effective_at=body.effective_at,
        actor=wire.principal(request).actor,
        now=now,
    )
    own = (row.provider, row.model, row.effective_at, row.input_pico, row.output_pico,
           row.cache_read_pico, row.cache_write_pico)  # fmt: skip
    return wire.answer(shape(prices.own_rates(own)), 201)


def _pico(usd_per_million: Decimal) -> int:
    return int(usd_per_million * prices.PICO_A_MICRO)


def _pico_or_none(usd_per_million: Decimal | None) -> int | None:
    return None if usd_per_million is None else _pico(usd_per_million)


def shape(row: prices.Rates) -> dict[str, Any]:
    """A model's price on the wire."""
    request = row.rate("request")
    return {
        "provider": row.provider,
        "model": row.model,
        "source": row.source,
        "version": row.version,
        "since": row.since,
        "prices": {
            kind: [
                {
                    "aboveInputTokens": above,
                    "usdPerMillion": pico / prices.PICO_A_MICRO,
                    "picoUsdPerToken": pico,
                }
                for above, pico in tiers
            ]
            for kind, tiers in row.pico.items()
            if kind != "request"
        },
        "requestUsd": None if request is None else request / 10**12,
    }
