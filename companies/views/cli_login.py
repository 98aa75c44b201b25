"""The page on which a person lets a command-line client in."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from companies import cli_login
from companies.errors import Conflict, NotFound


@never_cache
@login_required
def cli_login_page(request: Any, login_id: uuid.UUID) -> HttpResponse:
    """Who asks, from where; two buttons."""
    secret = request.POST.get("token") or request.GET.get("token") or ""
    now = timezone.now()
    try:
        login = cli_login.find(login_id=login_id, secret=secret[:200])
        if request.method == "POST" and request.POST.get("answer") == "yes":
            login = cli_login.approve(login=login, user=request.user, now=now)
        elif request.method == "POST":
            login = cli_login.cancel(login=login, now=now)
    except NotFound:
        raise Http404 from None
    except Conflict:
        pass  # the page shows how it stands
    context = {"login": login, "status": cli_login.status(login, now), "token": secret}
    return render(request, "companies/cli_login.html", context)
