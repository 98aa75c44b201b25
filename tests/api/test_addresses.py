"""Where the API's addresses lead, by way of their tree."""

from __future__ import annotations

import re
import uuid

import pytest
from django.urls import URLPattern, URLResolver, get_resolver, path, resolve

from paperclip import addresses
from paperclip.api import api


def view(request: object) -> None: ...


def leaves(patterns: list[URLPattern | URLResolver]) -> list[URLPattern]:
    found: list[URLPattern] = []
    for one in patterns:
        found += leaves(one.url_patterns) if isinstance(one, URLResolver) else [one]
    return found


@pytest.mark.django_db
def test_every_address_of_the_description_leads_to_its_own_operation() -> None:
    """Also where a word and a parameter stand at the same place."""
    described = api.get_openapi_schema()["paths"]
    assert len(described) > 100

    for address in described:
        asked = re.sub(r"\{\w+\}", str(uuid.uuid4()), address)
        led_to = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", resolve(asked).route)
        assert f"/{led_to}" == address


def test_finding_an_address_takes_few_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0
    match = URLPattern.resolve

    def counted(self: URLPattern, asked: str) -> object:
        nonlocal tried
        tried += 1
        return match(self, asked)

    monkeypatch.setattr(URLPattern, "resolve", counted)
    get_resolver().resolve(f"/api/companies/{uuid.uuid4()}/dashboard")

    assert tried < 60


def test_a_word_goes_before_a_parameter() -> None:
    flat = [path(route, view, name=route) for route in ("a/<x>/b", "a/<x>", "a/me", "a/me/c", "b")]
    grown = addresses.tree(flat)

    assert [one.name for one in leaves(grown)] == ["b", "a/me", "a/me/c", "a/<x>", "a/<x>/b"]
