"""Where the API's addresses lead, by way of their tree."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver, path, resolve
from django.urls.resolvers import RoutePattern

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


def test_an_address_that_comes_again_is_not_searched_for_again() -> None:
    searched: list[str] = []
    shown: Any = view

    class Counting(RoutePattern):
        def match(self, path: str) -> Any:
            searched.append(path)
            return super().match(path)

    counting = URLPattern(Counting("<str:name>", is_endpoint=True), shown)
    found: Any = addresses.branch([path("a/<str:name>", shown)])
    found.url_patterns[0].url_patterns[0] = counting

    first, again, other = (found.resolve(asked) for asked in ("a/b", "a/b", "a/c"))

    assert (first.kwargs, again.kwargs, other.kwargs) == (
        {"name": "b"},
        {"name": "b"},
        {"name": "c"},
    )
    assert searched == ["b", "c"]
    long = "x" * addresses.LONGEST_KNOWN
    for _ in range(2):  # nobody fills the memory with what is too long to be one of ours
        found.resolve(f"a/{long}")
    assert searched == ["b", "c", long, long]
