"""The API's machine-readable description (OpenAPI 3.1), completed, and a page for people.

The framework describes paths and bodies; what is the same for every operation (errors, repeated
POSTs, If-Match) is added here, once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from ninja.openapi.docs import DocsBase
from ninja.openapi.schema import OpenAPISchema

if TYPE_CHECKING:
    from ninja import NinjaAPI

ERROR = {
    "title": "Error",
    "type": "object",
    "required": ["error", "code", "details"],
    "properties": {
        "error": {"type": "string", "description": "A sentence for people."},
        "code": {"type": "string", "description": "A word for programs."},
        "details": {"type": "object"},
    },
}
FAILS = {
    "description": "Refused; see code and details.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}
IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key and body again gets the stored answer.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}
RATE = {
    "RateLimit-Limit": "Calls that the caller may make a minute.",
    "RateLimit-Remaining": "How many of them are left.",
    "RateLimit-Reset": "Seconds until all of them are there again.",
}
IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The version that the change builds on, as an ETag.",
    "schema": {"type": "string"},
}


ID = "$response.body#/id"
OF_ISSUE = {"issue": "$response.body#/issueId"}
# For what a POST made: its own parameter in addresses, and where each value of such an address
# stands. So a client (or a test) knows where it can go on from there.
LINKS: dict[str, tuple[str, dict[str, str]]] = {
    "Company": ("company", {"company": ID}),
    "Goal": ("goal_id", {"goal_id": ID}),
    "Project": ("project_id", {"project_id": ID}),
    "Agent": ("agent", {"agent": ID}),
    "Run": ("run_id", {"run_id": ID}),
    "Connection": ("connection_id", {"connection_id": ID}),
    "WrittenIssue": ("issue", {"issue": ID}),
    "Comment": ("comment", {**OF_ISSUE, "comment": ID}),
    "Interaction": ("interaction", {**OF_ISSUE, "interaction": ID}),
    "Document": ("key", {**OF_ISSUE, "key": "$response.body#/key"}),
    "WorkProduct": ("product_id", {"product_id": ID}),
    "Label": ("label_id", {"label_id": ID}),
    "Approval": ("approval_id", {"approval_id": ID}),
    "ShownAgentKey": ("key_id", {"agent": "$request.path.agent", "key_id": ID}),
    "ShownOperatorKey": ("key_id", {"key_id": ID}),
}


def complete(schema: OpenAPISchema) -> OpenAPISchema:
    """Add what holds everywhere."""
    schema.setdefault("components", {}).setdefault("schemas", {})["Error"] = ERROR
    for path in schema["paths"].values():
        for method, operation in path.items():
            operation["responses"] = {
                str(code): answer for code, answer in operation["responses"].items()
            }
            operation["responses"]["default"] = FAILS
            for answer in operation["responses"].values():
                answer.setdefault("headers", {}).update(_headers(operation))
            if method == "post" and operation.get("security"):
                operation.setdefault("parameters", []).append(IDEMPOTENCY)
            if _has_version(schema, operation, method):
                operation.setdefault("parameters", []).append(IF_MATCH)
    _link(schema)
    return schema


VERSIONS = frozenset({"version", "latestRevisionNumber"})


def _has_version(schema: OpenAPISchema, operation: dict[str, Any], method: str) -> bool:
    """Does this operation change a thing that says which version it is?"""
    if method == "delete":
        return operation["operationId"].endswith(
            ("delete_issue", "delete_document", "delete_connection")
        )
    if method not in ("patch", "put"):
        return False
    shapes = schema["components"]["schemas"]
    named = (shapes.get(_shape(answer), {}) for answer in operation["responses"].values())
    return any(VERSIONS & shape.get("properties", {}).keys() for shape in named)


def _headers(operation: dict[str, Any]) -> dict[str, Any]:
    """What each answer of an operation tells in its headers."""
    if not operation.get("security"):
        return {}
    return {
        name: {"description": said, "schema": {"type": "integer", "minimum": 0}}
        for name, said in RATE.items()
    }


def _link(schema: OpenAPISchema) -> None:
    """Say of each thing that was made which operations can go on with it."""
    targets = [
        (operation["operationId"], frozenset(re.findall(r"{(\w+)}", path)))
        for path, methods in schema["paths"].items()
        for operation in methods.values()
    ]
    for methods in schema["paths"].values():
        for method in methods.keys() & {"post", "put"}:
            for code, answer in methods[method]["responses"].items():
                shape = _shape(answer) if code in ("201", "202") else ""
                if shape in LINKS:
                    own, values = LINKS[shape]
                    answer["links"] = {
                        target: {
                            "operationId": target,
                            "parameters": {name: values[name] for name in sorted(names)},
                        }
                        for target, names in targets
                        if own in names and names <= values.keys()
                    }


def _shape(answer: dict[str, Any]) -> str:
    content = answer.get("content", {}).get("application/json", {})
    return str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]


class Page(DocsBase):
    """The operations by group, on one page, without a script of anybody else."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        groups: dict[str, list[dict[str, Any]]] = {}
        for path, methods in api.get_openapi_schema()["paths"].items():
            for method, operation in methods.items():
                tag = (operation.get("tags") or ["other"])[0]
                groups.setdefault(tag, []).append(
                    {
                        "method": method.upper(),
                        "path": path,
                        "summary": operation.get("summary", ""),
                        "description": operation.get("description", ""),
                    }
                )
        return render(request, "paperclip/api.html", {"groups": groups})
