"""What calls with a token pass by, and what protects every answer all the same."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.core.checks import run_checks

from companies.models import Company, User
from tests.api.conftest import Caller, operator

# Of two answers to the same question.
CHANGING = {
    "RateLimit-Remaining",
    "RateLimit-Reset",
    "ETag",
    "Content-Length",
    "X-Next-Cursor",
    "Link",
}


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


CALLS = (
    ("GET", "/api/companies", None, {}),
    ("GET", "/api/companies/{company}/issues?limit=1", None, {}),
    ("POST", "/api/companies/{company}/issues", {"title": "New"}, {}),
    ("POST", "/api/companies/{company}/issues", {"title": ""}, {}),
    ("GET", "/api/companies/nobody", None, {}),
    ("GET", "/api/nothing", None, {}),
    ("GET", "/api/companies", None, {"Authorization": "Bearer pcb_nonsense"}),
    ("DELETE", "/api/companies", None, {}),
    ("GET", "/api/openapi.json", None, {}),
    ("GET", "/api/companies", None, {"Host": "elsewhere.example"}),
    ("HEAD", "/api/companies", None, {}),
)


@pytest.mark.parametrize(("method", "path", "body", "headers"), CALLS)
@pytest.mark.parametrize("secure", [False, True])
def test_the_short_way_gives_the_answer_of_the_usual_one(
    olga: User, acme: Company, monkeypatch: pytest.MonkeyPatch, method: str, path: str,
    body: Any, headers: dict[str, str], secure: bool,
) -> None:  # fmt: skip
    """All but what tells two answers apart: ids, moments, and how many calls are left."""
    monkeypatch.setattr(settings, "SECURE_SSL_REDIRECT", True)
    monkeypatch.setattr(settings, "SECURE_HSTS_SECONDS", 60)
    seen: list[tuple[Any, ...]] = []

    def ask(middleware: list[str]) -> None:
        monkeypatch.setattr(settings, "MIDDLEWARE", middleware)
        sent: dict[str, Any] = {"headers": headers, "secure": secure}
        if body is not None:
            sent |= {"data": body, "content_type": "application/json"}
        answer = operator(olga).generic_call(method, path.format(company=acme.id), **sent)
        kept = {n: v for n, v in answer.headers.items() if n not in CHANGING}
        same = answer.content if method == "GET" and answer.status_code != 200 else b""
        seen.append((answer.status_code, kept, same, [*answer.headers]))

    ask(settings.MIDDLEWARE)
    ask([one for one in settings.MIDDLEWARE if one != "paperclip.middleware.Tokens"])

    assert seen[0][:3] == seen[1][:3]
    assert sorted(seen[0][3]) == sorted(seen[1][3])


def test_middleware_that_nobody_here_knows_is_never_passed_by(
    as_olga: Caller, acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = f"{__name__}.marking"
    monkeypatch.setattr(settings, "MIDDLEWARE", [*settings.MIDDLEWARE, added])

    answer = as_olga.send("GET", f"/api/companies/{acme.id}")

    assert answer.headers["X-Marked"] == "yes"


def marking(get_response: Any) -> Any:
    def marked(request: Any) -> Any:
        response = get_response(request)
        response["X-Marked"] = "yes"
        return response

    return marked


def test_a_call_with_a_token_goes_the_short_way(
    as_olga: Caller, acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the usual way")

    monkeypatch.setattr("django.middleware.common.CommonMiddleware.process_request", refuse)

    assert as_olga.send("GET", f"/api/companies/{acme.id}").status_code == 200


def test_the_settings_still_pass_the_checks() -> None:
    assert not [one for one in run_checks(tags=["admin", "security"]) if one.level >= 40]
    assert len(settings.MIDDLEWARE) == len(set(settings.MIDDLEWARE))
