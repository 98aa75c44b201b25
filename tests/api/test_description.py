"""The machine-readable description and the page for people."""

from __future__ import annotations

from collections import Counter

from tests.api.conftest import Caller


def test_the_description_tells_what_holds_everywhere(anonymous: Caller) -> None:
    schema = anonymous.send("GET", "/api/openapi.json").json()

    operations = [op for path in schema["paths"].values() for op in path.values()]
    assert schema["openapi"].startswith("3.1")
    assert all("default" in op["responses"] for op in operations)
    names = Counter(op["operationId"] for op in operations)
    assert max(names.values()) == 1
    post = schema["paths"]["/api/companies/{company}/issues"]["post"]
    assert "Idempotency-Key" in {parameter["name"] for parameter in post["parameters"]}
    assert set(post["responses"]) == {"201", "default"}


def test_every_operation_says_what_it_is_for(anonymous: Caller) -> None:
    schema = anonymous.send("GET", "/api/openapi.json").json()

    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert operation["tags"], (method, path)


def test_people_find_a_page(anonymous: Caller) -> None:
    page = anonymous.send("GET", "/api/docs")

    assert page.status_code == 200
    assert b"/api/agents/me/inbox-lite" in page.content
    assert b'<script src="http' not in page.content
