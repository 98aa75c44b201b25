"""The machine-readable description and the page for people."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from ninja.openapi.schema import OpenAPISchema

from billing import ledger
from paperclip.api import api
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


def test_only_what_has_a_version_asks_for_one(anonymous: Caller) -> None:
    paths = anonymous.send("GET", "/api/openapi.json").json()["paths"]

    asked = {
        f"{method.upper()} {path}"
        for path, methods in paths.items()
        for method, operation in methods.items()
        if any(parameter["name"] == "If-Match" for parameter in operation.get("parameters", ()))
    }

    assert asked == {
        "DELETE /api/connections/{connection_id}",
        "DELETE /api/issues/{issue}",
        "DELETE /api/issues/{issue}/documents/{key}",
        "PATCH /api/agents/{agent}",
        "PATCH /api/connections/{connection_id}",
        "PATCH /api/issues/{issue}",
        "PUT /api/issues/{issue}/documents/{key}",
    }


def test_no_two_shapes_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The framework would let the second one take the first one's place, without a word."""
    different: set[str] = set()

    def add(self: OpenAPISchema, definitions: dict[str, Any]) -> None:
        for name, shape in definitions.items():
            if self.schemas.setdefault(name, shape) != shape:
                different.add(name)

    monkeypatch.setattr(OpenAPISchema, "add_schema_definitions", add)
    api.get_openapi_schema(path_prefix="/api")

    assert different == set()


def test_every_answer_is_described(anonymous: Caller) -> None:
    schema = anonymous.send("GET", "/api/openapi.json").json()
    named = schema["components"]["schemas"]

    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            good = [answer for code, answer in operation["responses"].items() if code[0] == "2"]
            assert good, (method, path)
            for answer in good:
                for content in answer["content"].values():
                    said = json.dumps(content["schema"])
                    assert said != "{}", (method, path)
                    for name in re.findall(r'"#/components/schemas/(\w+)"', said):
                        assert named[name]["properties"], (method, path, name)


def test_the_bounds_of_a_cost_are_those_of_the_ledger() -> None:
    schema = api.get_openapi_schema(path_prefix="")
    fields = schema["components"]["schemas"]["NewCost"]["properties"]
    micros = next(one for one in fields["costMicros"]["anyOf"] if one["type"] == "integer")
    assert micros["maximum"] == ledger.MAX_MICROS
    assert fields["inputTokens"]["maximum"] == ledger.MAX_TOKENS
