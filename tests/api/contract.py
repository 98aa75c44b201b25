"""Answers held against the API's own description, strictly: a key that is not described is a fault
here, while a client may meet new keys with the next version."""

from __future__ import annotations

import copy
import functools
from typing import Any

import jsonschema_rs

from paperclip.api import api


@functools.cache
def description() -> dict[str, Any]:
    return api.get_openapi_schema(path_prefix="")  # type: ignore[return-value]


def strict(schema: Any) -> Any:
    """The same schema, in which an object that names its keys has no others."""
    if isinstance(schema, dict):
        made = {key: strict(value) for key, value in schema.items()}
        if isinstance(made.get("properties"), dict) and made.get("type") == "object":
            made["additionalProperties"] = False
        return made
    return [strict(item) for item in schema] if isinstance(schema, list) else schema


@functools.cache
def _schemas() -> dict[str, Any]:
    return strict(copy.deepcopy(description()["components"]["schemas"]))


@functools.cache
def _validator(route: str, status: int) -> jsonschema_rs.Validator:
    method, path = route.split()
    responses = description()["paths"][path][method.lower()]["responses"]
    assert str(status) in responses, f"{route} does not say that it may answer {status}"
    schema = responses[str(status)]["content"]["application/json"]["schema"]
    whole = {**strict(copy.deepcopy(schema)), "components": {"schemas": _schemas()}}
    return jsonschema_rs.validator_for(whole, validate_formats=True)


def check(route: str, response: Any) -> None:
    """The answer is what the description of its route says. Raises AssertionError."""
    if not response.headers["Content-Type"].startswith("application/json"):
        return
    validator = _validator(route, response.status_code)
    faults = [
        f"{'/'.join(map(str, fault.instance_path))}: {fault.message}"
        for fault in validator.iter_errors(response.json())
    ]
    assert not faults, f"{route} {response.status_code}: " + "; ".join(faults[:5])
