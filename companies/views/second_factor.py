"""The second factor: its question at sign-in, and the page on which a person sets it up."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

import segno
from django.contrib import auth, messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import mark_safe
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from companies import second_factor
from companies.errors import Conflict, Invalid, RateLimited, Refusal
from companies.models import User

BACKEND = "django.contrib.auth.backends.ModelBackend"
WAITING = "second_factor"  # the session's word for who has shown the first factor
WAIT_SECONDS = 600
TEMPLATE = "companies/second_factor.html"
WRONG = "This code does not fit, or was used already."


# --- at sign-in ----------------------------------------------------------------------------------


def admit(request: HttpRequest, user: User, *, target: str) -> HttpResponse:
    """Sign in who has shown a password or a link; who has a second factor is asked for it first."""
    if second_factor.of(user) is None:
        auth.login(request, user, backend=BACKEND)
        return redirect(target)
    request.session.cycle_key()
    request.session[WAITING] = {
        "user": str(user.pk),
        "proof": user.get_session_auth_hash(),
        "at": timezone.now().timestamp(),
        "next": target,
    }
    return redirect("/sign-in/code")


@never_cache
@sensitive_post_parameters("code")
def code(request: HttpRequest) -> HttpResponse:
    """Asks for the code of who has shown the first factor, in this browser, just now."""
    now = timezone.now()
    user = _waiting(request, now)
    if user is None:
        request.session.pop(WAITING, None)
        return redirect("/sign-in")
    context = {"recovery": request.GET.get("with") == "recovery"}
    if request.method != "POST":
        return render(request, "companies/code.html", context)
    try:
        second_factor.attempt(user_id=user.pk, now=now)
    except RateLimited as refusal:
        return _too_many(request, "companies/code.html", context, refusal)
    if not second_factor.verify(user=user, code=request.POST.get("code", ""), now=now):
        return render(request, "companies/code.html", context | {"said": WRONG}, status=422)
    target = request.session.pop(WAITING)["next"]
    auth.login(request, user, backend=BACKEND)
    allowed = url_has_allowed_host_and_scheme(target, {request.get_host()})
    return redirect(target if allowed else "/")


def _waiting(request: HttpRequest, now: datetime) -> User | None:
    """Who is half in. Not any more when it took too long, or the password has changed since."""
    kept = request.session.get(WAITING)
    if kept is None or kept["at"] + WAIT_SECONDS < now.timestamp():
        return None
    user = User.objects.filter(pk=uuid.UUID(kept["user"]), is_active=True).first()
    if user is None or not constant_time_compare(kept["proof"], user.get_session_auth_hash()):
        return None
    return user


# --- one's own -----------------------------------------------------------------------------------


@never_cache
@login_required
@sensitive_post_parameters("code", "word")
def page(request: Any) -> HttpResponse:
    """Set up, renew the recovery codes, remove: whatever changes something is proved first."""
    user, now = request.user, timezone.now()
    if request.method != "POST":
        return _show(request, user, now)
    wish = request.POST.get("wish", "")
    try:
        second_factor.attempt(user_id=user.pk, now=now)
        if wish == "confirm":
            word = request.POST.get("code", "")
            return _show(
                request, user, now, codes=second_factor.confirm(user=user, code=word, now=now)
            )
        _prove(request, user, now)
        if wish == "begin":
            second_factor.begin(user=user, now=now)
        elif wish == "codes":
            return _show(request, user, now, codes=second_factor.renew_codes(user=user, now=now))
        elif wish == "remove" and second_factor.remove(user=user, now=now):
            messages.success(request, "No code is asked for any more.")
    except RateLimited as refusal:
        return _too_many(request, TEMPLATE, _context(user, now), refusal)
    except Conflict as refusal:
        messages.error(request, refusal.message)
    except Refusal as refusal:
        return _show(request, user, now, problem=wish, said=refusal.message)
    return redirect("/second-factor")


def _prove(request: HttpRequest, user: User, now: datetime) -> None:
    if not second_factor.proves(user=user, word=request.POST.get("word", ""), now=now):
        raise Invalid("not_proved", "This is not right.", field="word")


def _show(request: HttpRequest, user: User, now: datetime, **more: Any) -> HttpResponse:
    status = 422 if "problem" in more else 200
    return render(request, TEMPLATE, _context(user, now) | more, status=status)


def _context(user: User, now: datetime) -> dict[str, Any]:
    factor = second_factor.of(user)
    enrolment = None if factor else second_factor.enrolment(user=user, now=now)
    return {
        "factor": factor,
        "left": second_factor.left(factor) if factor else 0,
        "enrolment": enrolment,
        "qr": _qr(enrolment.uri) if enrolment else "",
        "has_password": user.has_usable_password(),
        "asks": user.has_usable_password() or factor is not None,
    }


def _qr(text: str) -> str:
    """The picture as SVG, black on white in every theme: cameras want it so."""
    svg = segno.make(text, error="m").svg_inline(
        scale=5, dark="#000", light="#fff", svgclass="qr", lineclass=None, omitsize=True
    )
    return mark_safe(svg)  # noqa: S308 - drawn by us, without a word of the text


def _too_many(
    request: HttpRequest, template: str, context: dict[str, Any], refusal: RateLimited
) -> HttpResponse:
    said = {"said": "Too many attempts. Please wait a few minutes.", "problem": "all"}
    answer = render(request, template, context | said, status=429)
    answer["Retry-After"] = str(refusal.retry_after)
    return answer
