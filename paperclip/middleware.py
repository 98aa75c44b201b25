"""Middleware that pages and sessions need, passed by for calls of the API with a token.

Such a call has no session, no messages and no forms, and its answer is data: preparing all that for
it cost a third of a short request. A call with a token never falls back to the cookie beside it
(`paperclip/callers.py`), so it misses nothing. What protects every answer is done for it here in
one step, and by Django's own middleware for all others; a test holds the two together.
"""

from __future__ import annotations

from typing import Any

from csp.middleware import CSPMiddleware
from django.conf import settings
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import DisallowedHost
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest
from django.middleware.security import SecurityMiddleware
from django.urls import Resolver404, get_resolver
from django_htmx.middleware import HtmxMiddleware

# For data: nothing may be loaded by it, whoever opens it as a page.
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"


def carries_token(request: HttpRequest) -> bool:
    """Is this a call of the API that says by a header who is calling?"""
    return "HTTP_AUTHORIZATION" in request.META and request.path_info.startswith("/api/")


class Tokens:
    """Carries a call with a token straight to its operation, past all middleware behind this one.

    What is not plain (a strange host, http where https is wanted, an address that leads nowhere)
    goes the usual way, and so does everything when the settings have middleware that is not known
    here.
    """

    KNOWN = frozenset(
        {
            "paperclip.middleware.Tokens",
            "django.middleware.security.SecurityMiddleware",
            "whitenoise.middleware.WhiteNoiseMiddleware",
            "paperclip.middleware.ContentPolicy",
            "paperclip.middleware.Sessions",
            "django.middleware.common.CommonMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "paperclip.middleware.Users",
            "paperclip.middleware.Messages",
            "django.middleware.clickjacking.XFrameOptionsMiddleware",
            "paperclip.middleware.Htmx",
        }
    )

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response
        self._is_short = self.KNOWN.issuperset(settings.MIDDLEWARE)
        self._security = SecurityMiddleware(get_response)
        self._carry_out = convert_exception_to_response(_carry_out)

    def __call__(self, request: HttpRequest) -> Any:
        if not (self._is_short and carries_token(request) and self._is_plain(request)):
            return self.get_response(request)
        return self._protected(request, self._carry_out(request))

    def _is_plain(self, request: HttpRequest) -> bool:
        try:
            request.get_host()
            match = get_resolver().resolve(request.path_info)
        except (DisallowedHost, Resolver404):
            return False
        request.resolver_match = match
        is_exempt = getattr(match.func, "csrf_exempt", False)
        return is_exempt and self._security.process_request(request) is None

    def _protected(self, request: HttpRequest, response: Any) -> Any:
        headers = response.headers
        headers.setdefault("Content-Security-Policy", DATA_POLICY)
        headers.setdefault("X-Frame-Options", settings.X_FRAME_OPTIONS)
        if not response.streaming and "Content-Length" not in headers:
            headers["Content-Length"] = str(len(response.content))
        return self._security.process_response(request, response)


def _carry_out(request: HttpRequest) -> Any:
    match = request.resolver_match
    assert match is not None
    return match.func(request, *match.args, **match.kwargs)


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
