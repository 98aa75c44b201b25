"""What people type into forms that fail is in no log, no mail and no page for a fault."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.core import mail
from django.test import Client

from companies import second_factor
from companies.models import Company, User
from tests import factories

CANARY = "Canary-Pw-1"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.DEBUG)

    def all_of_it() -> str:
        lines = [
            f"{record.getMessage()} {record.exc_text or ''}"
            for record in caplog.records
            if record.name != "django.db.backends"  # statements, in tests only
        ]
        return "\n".join(lines + [str(letter.message()) for letter in mail.outbox])

    return all_of_it


def test_a_password_that_does_not_fit_is_written_nowhere(
    client: Client, olga: User, said: Any
) -> None:
    for form in (
        {"email": olga.email, "password": CANARY},
        {"email": "no address", "password": CANARY},
        {"email": CANARY, "password": CANARY},
    ):
        assert client.post("/sign-in", form).status_code == 422
    client.post("/admin/login/", {"username": olga.email, "password": CANARY})
    client.post("/sign-in/code", {"code": CANARY})
    assert CANARY not in said()


def test_what_fails_at_a_form_of_settings_is_written_nowhere(olgas: Client, said: Any) -> None:
    for path, form in (
        ("secrets", {"name": "not a name", "value": CANARY}),
        ("secrets", {"name": "", "value": CANARY}),
        ("members", {"email": CANARY, "role": "none"}),
    ):
        page = olgas.post(f"/c/ACM/settings/{path}", form)
        assert page.status_code == 422
        if path == "secrets":
            assert CANARY not in page.content.decode()
    olgas.post("/second-factor", {"wish": "begin", "word": CANARY})
    assert CANARY not in said()


@pytest.mark.parametrize("debug", [False, True])
def test_a_fault_behind_a_form_tells_nobody_what_was_typed(
    olga: User, acme: Company, said: Any, settings: Any, monkeypatch: Any, debug: bool
) -> None:
    """Also in development, whose page for a fault shows the request."""
    settings.DEBUG = debug
    settings.ADMINS = [("Ops", "ops@example.com")]

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(second_factor, "of", broken)
    browser = Client(raise_request_exception=False)
    page = browser.post("/sign-in", {"email": olga.email, "password": factories.PASSWORD})
    assert page.status_code == 500
    assert factories.PASSWORD not in page.content.decode()
    assert factories.PASSWORD not in said()


def test_a_link_is_made_with_no_host_that_a_header_names(olgas: Client) -> None:
    form = {"email": "nina@example.com", "role": "viewer"}
    headers = {"X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example"}
    page = olgas.post("/c/ACM/settings/members", form, headers=headers).content.decode()
    assert "/sign-in/" in page
    assert "evil.example" not in page
    assert olgas.get("/c/ACM/", headers={"Host": "evil.example"}).status_code == 400


@pytest.mark.parametrize("charset", ["utf-16", "idna"])
def test_a_form_in_another_alphabet_is_a_400(acme: Company, charset: str) -> None:
    """Django's own page of that error reads the form again, to look for its token."""
    client = Client(enforce_csrf_checks=True)
    client.get("/sign-in")
    kind = f"application/x-www-form-urlencoded; charset={charset}"
    answer = client.post("/sign-in", data=b"a=1", content_type=kind)
    assert answer.status_code == 400
    assert b"cannot be read" in answer.content
