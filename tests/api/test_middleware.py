"""What calls with a token pass by, and what protects every answer all the same."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.core.checks import run_checks

from companies.models import Company, User
from tests.api.conftest import Caller, operator


def test_a_call_with_a_token_is_answered_with_all_that_protects_data(
    as_olga: Caller, acme: Company
) -> None:
    answer = as_olga.send("GET", f"/api/companies/{acme.id}")

    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert "Set-Cookie" not in answer.headers
    assert not hasattr(answer.wsgi_request, "session")


def test_a_token_never_borrows_the_session_beside_it(olga: User, acme: Company) -> None:
    caller = Caller()
    caller.force_login(olga)
    path = f"/api/companies/{acme.id}"
    assert caller.send("GET", path).status_code == 200

    assert caller.send("GET", path, Authorization="Bearer pcb_nonsense").status_code == 401
    assert caller.send("GET", path, Authorization="Basic b2xnYTo=").status_code == 401


def test_a_session_still_needs_the_csrf_token(olga: User, acme: Company) -> None:
    caller = Caller(enforce_csrf_checks=True)
    caller.force_login(olga)

    refused = caller.send("POST", f"/api/companies/{acme.id}/labels", {"name": "Bug"})

    assert (refused.status_code, refused.json()["code"]) == (403, "csrf_failed")


def test_a_token_opens_no_page(olga: User, acme: Company) -> None:
    page = operator(olga).get(f"/c/{acme.issue_prefix}/")

    assert page.status_code == 302
    assert page.headers["Content-Security-Policy"].count("'self'") > 1


@pytest.mark.parametrize("path", ["/api/docs", "/api/openapi.json", "/api/nothing", "/api/"])
def test_every_address_bears_a_token(as_olga: Caller, path: str) -> None:
    assert as_olga.get(path).status_code in (200, 404)


def test_the_settings_still_pass_the_checks() -> None:
    assert not [one for one in run_checks(tags=["admin", "security"]) if one.level >= 40]
    assert len(settings.MIDDLEWARE) == len(set(settings.MIDDLEWARE))
