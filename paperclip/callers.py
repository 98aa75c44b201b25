"""Who is calling: one class a credential, one `access.Principal` for all of them.

A credential that is given must hold: a bad token is 401, never a fall-back to the cookie beside
it. A session proves an unsafe request with the CSRF token; tokens need none, a browser does not
send them by itself.
"""

from __future__ import annotations

import dataclasses
import uuid

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja.security import APIKeyCookie, HttpBearer
from ninja.utils import check_csrf

from agents import auth
from agents.models import HeartbeatRun
from companies import access, idempotency, keys, quota, throttle, wire
from companies.errors import Forbidden, Invalid, RateLimited, Refusal

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
BAD_TOKENS_A_MINUTE = 60


WHY_NOT = {
    "unauthenticated": "A valid credential is needed.",
    "token_expired": "This key has expired; ask for a new one.",
    "run_ended": "The run of this token is not running, so the token is worthless.",
}


class HeardAgain(Exception):
    """A POST of a run that has ended, which was answered before and gets that answer."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__()
        self.response = response


class Token(HttpBearer):
    """A bearer token whose prefix says what kind of caller it stands for.

    Headers are read where they lie: `request.headers` makes a mapping of all of them first.
    """

    prefix = ""

    def __call__(self, request: HttpRequest) -> access.Principal | None:
        token = bearer(request.META.get("HTTP_AUTHORIZATION"))
        if token is None or not token.startswith(f"{self.prefix}_"):
            return None
        return self.authenticate(request, token)

    def authenticate(self, request: HttpRequest, token: str) -> access.Principal | None:
        principal = auth.principal_for_token(token)
        if principal is None:
            if self.prefix == keys.RUN:
                _hear_again(request, token)
            address = request.META.get("REMOTE_ADDR", "")
            throttle.hit(
                f"bad-token:{address}",
                limit=BAD_TOKENS_A_MINUTE,
                window_seconds=60,
                now=timezone.now(),
            )
            code = auth.why_not(token)
            raise Refusal(code, WHY_NOT[code], status=401)
        if principal.scopes and request.method not in SAFE and "write" not in principal.scopes:
            raise Forbidden("scope_missing", "This key may only read.")
        count(principal, request)
        return bind_to_run(principal, request.META.get("HTTP_X_PAPERCLIP_RUN_ID"))


class OperatorKey(Token):
    """A person's own key, `pcb_…`."""

    prefix = keys.OPERATOR


class AgentKey(Token):
    """An agent's long-lived key, `pcp_…`."""

    prefix = keys.AGENT


class RunToken(Token):
    """The token of one run, `pcr_…`, dead as soon as the run has ended."""

    prefix = keys.RUN


class Session(APIKeyCookie):
    """A signed-in person; unsafe methods need `X-CSRFToken`."""

    param_name = settings.SESSION_COOKIE_NAME

    def __call__(self, request: HttpRequest) -> access.Principal | None:
        if "HTTP_AUTHORIZATION" in request.META:
            return None
        return self.authenticate(request, request.COOKIES.get(self.param_name))

    def authenticate(self, request: HttpRequest, key: str | None) -> access.Principal | None:
        if not request.user.is_authenticated:
            return None
        if request.method not in SAFE and check_csrf(request) is not None:
            raise Forbidden("csrf_failed", "The CSRF token is missing or wrong.")
        principal = access.for_user(request.user)
        count(principal, request)
        return principal


ALL = (OperatorKey(), AgentKey(), RunToken(), Session())


def bearer(header: str | None) -> str | None:
    """The token of an Authorization header, or None."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def repeats_as(request: HttpRequest) -> str:
    """Whose repetitions a POST's Idempotency-Key is about. A run's are its token's: that outlives
    the run, which its own result ends, and proves who asks for the lost answer."""
    principal = wire.principal(request)
    if principal.kind == "run" and (token := bearer(request.META.get("HTTP_AUTHORIZATION"))):
        return f"token:{keys.digest(token)}"
    return principal.key


def _hear_again(request: HttpRequest, token: str) -> None:
    if "Idempotency-Key" not in request.headers or keys.parse(token) is None:
        return
    response = idempotency.stored(request, principal=f"token:{keys.digest(token)}")
    if response is not None:
        raise HeardAgain(response)


def count(principal: access.Principal, request: HttpRequest | None = None) -> None:
    """Count a call of this caller. Raises RateLimited when the minute's calls are used up.

    The request remembers what is left, as `allowance`, for the answer's headers.
    """
    person = principal.kind == "user"
    limit = settings.API_CALLS_A_MINUTE if person else settings.AGENT_CALLS_A_MINUTE
    if not limit:
        return
    try:
        allowance = quota.take(principal.key, limit=limit, now=timezone.now())
    except RateLimited as over:
        if request is not None:
            _remember(request, quota.Allowance(limit, 0, over.retry_after))
        raise
    if request is not None:
        _remember(request, allowance)


def _remember(request: HttpRequest, allowance: quota.Allowance) -> None:
    request.allowance = allowance  # type: ignore[attr-defined]


def bind_to_run(principal: access.Principal, header: str | None) -> access.Principal:
    """The principal with the run that the header names: its own, or one of the same agent.

    Raises Refusal 422 when the run is somebody else's or has ended. People do not act in runs:
    for them the header means nothing.
    """
    if not header or principal.agent_id is None:
        return principal
    try:
        run_id = uuid.UUID(header)
    except ValueError:
        raise Invalid("invalid_run_id", "X-Paperclip-Run-Id is not a UUID.") from None
    if principal.kind == "run":
        if run_id != principal.run_id:
            raise Refusal("run_mismatch", "X-Paperclip-Run-Id is not the run of this token.")
        return principal
    live = HeartbeatRun.objects.filter(
        id=run_id, agent_id=principal.agent_id, status=HeartbeatRun.Status.RUNNING
    )
    if not live.exists():
        raise Refusal("run_mismatch", "X-Paperclip-Run-Id is not a running run of this agent.")
    return dataclasses.replace(principal, run_id=run_id)
