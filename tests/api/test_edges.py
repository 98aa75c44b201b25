"""Where the API ends and Django would answer by itself: still in JSON."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import Caller


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api", 404, "not_found"),
        ("POST", "/api", 404, "not_found"),
        ("POST", "/events", 405, "method_not_allowed"),
        ("DELETE", "/events", 405, "method_not_allowed"),
    ],
)
def test_the_edges_of_the_api_answer_in_json(
    as_olga: Caller, method: str, path: str, status: int, code: str
) -> None:
    refused = as_olga.send(method, path)
    assert (refused.status_code, refused.json()["code"]) == (status, code)


def test_a_strange_host_is_refused_in_json(as_olga: Caller, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["paperclip.example"]
    refused = as_olga.get("/api/companies", HTTP_HOST="evil.example")
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_host")
    page = as_olga.get("/", HTTP_HOST="evil.example")
    assert page.status_code == 400
    assert page["Content-Type"].startswith("text/html")
