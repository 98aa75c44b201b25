"""Coming in and going out: e-mail and password, the one-time link, sign-out, the theme.

The second factor, where a person has one, is asked for in `second_factor.py`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import auth
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from companies import sign_in as links
from companies import throttle
from companies.errors import RateLimited
from companies.forms import SignInForm
from companies.views import second_factor

THEMES = (("auto", "As the system", "monitor"), ("light", "Light", "sun"), ("dark", "Dark", "moon"))
# Attempts in a quarter of an hour, by address and by account.
ATTEMPTS = 20
WINDOW_SECONDS = 900


def _next(request: HttpRequest) -> str:
    target = request.POST.get("next") or request.GET.get("next") or "/"
    return target if url_has_allowed_host_and_scheme(target, {request.get_host()}) else "/"


@never_cache
@sensitive_post_parameters("password")
def sign_in(request: Any) -> HttpResponse:
    """The form; a wrong password and an unknown address read the same."""
    if request.user.is_authenticated:
        return redirect(_next(request))
    form = SignInForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        now = timezone.now()
        email = form.cleaned_data["email"].lower()
        try:
            for key in (f"sign-in:{request.META.get('REMOTE_ADDR', '')}", f"sign-in:{email}"):
                throttle.hit(key, limit=ATTEMPTS, window_seconds=WINDOW_SECONDS, now=now)
        except RateLimited as refusal:
            form.add_error(None, "Too many attempts. Please wait a few minutes.")
            answer = render(
                request,
                "companies/sign_in.html",
                {"form": form, "next": _next(request)},
                status=429,
            )
            answer["Retry-After"] = str(refusal.retry_after)
            return answer
        user = auth.authenticate(request, username=email, password=form.cleaned_data["password"])
        if user is not None:
            return second_factor.admit(request, user, target=_next(request))
        form.add_error(None, "This e-mail address and password do not go together.")
    return render(
        request,
        "companies/sign_in.html",
        {"form": form, "next": _next(request)},
        status=422 if form.errors else 200,
    )


def admin_sign_in(request: Any) -> HttpResponse:
    """The admin has no door of its own, which would be one without a limit on guesses."""
    if request.user.is_authenticated:
        raise PermissionDenied
    return redirect(f"{settings.LOGIN_URL}?{urlencode({'next': _next(request)})}")


@never_cache
def sign_in_link(request: HttpRequest, token: str) -> HttpResponse:
    """The one-time link that set-up prints. Shows a button first: previews that follow links
    (chat programs, scanners) must not use it up."""
    if request.method == "POST":
        user = links.redeem(token=token, now=timezone.now())
        if user is not None:
            return second_factor.admit(request, user, target="/")
        return render(request, "companies/sign_in_link.html", {"spent": True}, status=410)
    return render(request, "companies/sign_in_link.html")


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    auth.logout(request)
    return redirect("/sign-in")


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Remember the viewer's theme for a year."""
    answer = redirect(_next(request))
    wanted = request.POST.get("theme", "")
    if wanted in {name for name, _, _ in THEMES}:
        answer.set_cookie(
            "theme", wanted, max_age=365 * 86_400, samesite="Lax", secure=request.is_secure()
        )
    return answer
