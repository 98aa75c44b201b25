"""Middleware that pages and sessions need, passed by for calls of the API with a token.

Such a call has no session, no messages and no forms, and its answer is data: preparing all that for
it cost a quarter of a short request. A call with a token never falls back to the cookie beside it
(`paperclip/callers.py`), so it misses nothing. What protects every answer, and every form, stays in
the settings as it is.
"""

from __future__ import annotations

from typing import Any

from csp.middleware import CSPMiddleware
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest
from django_htmx.middleware import HtmxMiddleware

# For data: nothing may be loaded by it, whoever opens it as a page.
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"


def carries_token(request: HttpRequest) -> bool:
    """Is this a call of the API that says by a header who is calling?"""
    return "HTTP_AUTHORIZATION" in request.META and request.path_info.startswith("/api/")


class _ForPeople:
    """Steps aside for calls with a token."""

    get_response: Any

    def __call__(self, request: HttpRequest) -> Any:
        if carries_token(request):
            return self.get_response(request)
        return super().__call__(request)  # type: ignore[misc]


class ContentPolicy(CSPMiddleware):
    """The policy of the settings for pages, the strictest one for data."""

    def __call__(self, request: HttpRequest) -> Any:
        if not carries_token(request):
            return super().__call__(request)
        response: Any = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", DATA_POLICY)
        return response


class Sessions(_ForPeople, SessionMiddleware): ...


class Users(_ForPeople, AuthenticationMiddleware): ...


class Messages(_ForPeople, MessageMiddleware): ...


class Htmx(_ForPeople, HtmxMiddleware): ...
