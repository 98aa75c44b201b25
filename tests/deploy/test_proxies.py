"""Whose word about a caller's address is believed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from paperclip import asgi

CLAIM = [(b"x-forwarded-for", b"198.51.100.9, 192.0.2.7"), (b"x-forwarded-proto", b"https")]


def seen(client: str, trusted: list[str]) -> tuple[str, str]:
    """The address and scheme that the application sees of a call from `client`."""
    scopes: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)

    app = asgi.behind(trusted, inner)
    scope = {"type": "http", "client": (client, 5), "scheme": "http", "headers": CLAIM}
    asyncio.run(app(scope, None, None))
    return scopes[0]["client"][0], scopes[0]["scheme"]


@pytest.mark.parametrize("trusted", [["10.0.0.0/8"], ["10.0.0.5"]])
def test_a_trusted_proxy_names_the_caller(trusted: list[str]) -> None:
    assert seen("10.0.0.5", trusted) == ("192.0.2.7", "https")


@pytest.mark.parametrize("trusted", [[], ["10.0.0.0/8"]])
def test_nobody_else_does(trusted: list[str]) -> None:
    assert seen("192.0.2.200", trusted) == ("192.0.2.200", "http")
