"""The door of every page: who comes in, which company they are in, what a refusal looks like.

A view below the door gets a `PageRequest` whose company and principal are proved. It translates
its input, makes one domain call, translates the answer; a `Refusal` it lets pass becomes a page,
a message or a toast here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.db.models import DateTimeField, Func
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from companies import access
from companies.errors import NotFound, RateLimited, Refusal
from companies.models import Company, Membership, User
from companies.undo import Offer

P = ParamSpec("P")


class PageRequest(HttpRequest):
    """What a view behind the door is handed."""

    user: User
    company: Company
    memberships: list[Membership]
    role: str
    principal: access.Principal
    now: datetime
    read_at: datetime  # by the database's clock
    htmx: Any
    base: str  # "/c/ACM"
    may: Callable[[access.Action], bool]


View = Callable[Concatenate[PageRequest, P], HttpResponseBase]


def page(
    action: access.Action = "view", *, post: access.Action | None = None
) -> Callable[[View[P]], Callable[..., HttpResponseBase]]:
    """Let in members of the company named by `prefix` who may do `action`.

    `post` is what a POST needs, when that is more. Anonymous people are sent to sign in, strangers
    get 404, members whose role may not get 403.
    """

    def wrap(view: View[P]) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def entered(
            request: Any, prefix: str, *args: P.args, **kwargs: P.kwargs
        ) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _to_sign_in(request)
            enter(request, prefix)
            needed = post if post and request.method == "POST" else action
            if not request.may(needed):
                return forbidden(request, f"Your role here is {request.role}; it may not do this.")
            try:
                return view(request, *args, **kwargs)
            except NotFound:
                return missing(request)
            except Refusal as refusal:
                return refused(request, refusal)

        return entered

    return wrap


def enter(request: Any, prefix: str) -> None:
    """Prove company and role in one query; an unknown company ends at the 404 page."""
    memberships = list(
        Membership.objects.filter(user_id=request.user.pk)
        .select_related("company")
        .annotate(read_at=Func(function="clock_timestamp", output_field=DateTimeField()))
        .order_by("company__name", "company_id")
    )
    found = next((m for m in memberships if m.company.issue_prefix == prefix), None)
    if found is None:
        raise Http404("There is no such company.")
    request.memberships = memberships
    request.company = found.company
    request.role = found.role
    request.base = f"/c/{found.company.issue_prefix}"
    request.may = access.ROLES[found.role].__contains__
    request.principal = access.for_user(request.user)
    request.now = timezone.now()
    # What is committed by this moment, the page shows; what comes later, its stream tells.
    request.read_at = found.read_at


def _to_sign_in(request: HttpRequest) -> HttpResponse:
    answer: HttpResponse = redirect_to_login(request.get_full_path())
    if getattr(request, "htmx", False):
        answer = HttpResponse(status=401)
        answer["HX-Redirect"] = "/sign-in"
    return answer


def forbidden(request: HttpRequest, message: str) -> HttpResponse:
    if getattr(request, "htmx", False):
        return toast(HttpResponse(status=403), message, "bad")
    return render(request, "403.html", {"message": message}, status=403)


def missing(request: HttpRequest) -> HttpResponse:
    return render(request, "404.html", status=404)


def refused(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """A "no" that no form of the view could show: a toast, a message on the page it came from,
    or a page of its own."""
    if refusal.status == 403:
        return forbidden(request, refusal.message)
    if getattr(request, "htmx", False):
        return toast(HttpResponse(status=204), refusal.message, "bad")
    if request.method == "POST":
        messages.error(request, refusal.message)
        return back(request)
    answer = render(request, "refused.html", {"refusal": refusal}, status=refusal.status)
    if isinstance(refusal, RateLimited):
        answer["Retry-After"] = str(refusal.retry_after)
    return answer


def back(request: HttpRequest, fallback: str = "") -> HttpResponse:
    """Redirect to the page the form was on (`next` or the referrer, same host only)."""
    home = getattr(request, "base", "") + "/"
    for target in (request.POST.get("next", ""), fallback, request.headers.get("Referer", "")):
        if target and url_has_allowed_host_and_scheme(target, {request.get_host()}):
            return redirect(target)
    return redirect(home)


def toast(
    answer: HttpResponse, text: str, tone: str = "ok", *, undo: Offer | None = None
) -> HttpResponse:
    """Let the page show a short message beside whatever it swaps in, with the way back."""
    told: dict[str, Any] = {"text": text, "tone": tone}
    if undo is not None:
        told["undo"] = {"action": undo.action, "fields": undo.fields}
    answer["HX-Trigger"] = json.dumps({"toast": told})
    return answer
