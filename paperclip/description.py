"""The API's machine-readable description (OpenAPI 3.1), completed, and a page for people.

The framework describes paths and bodies; what is the same for every operation (errors, repeated
POSTs, If-Match) is added here, once.
"""

from __future__ import annotations

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
IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The version that the change builds on, as an ETag.",
    "schema": {"type": "string"},
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
            if method == "post" and operation.get("security"):
                operation.setdefault("parameters", []).append(IDEMPOTENCY)
            if method == "patch":
                operation.setdefault("parameters", []).append(IF_MATCH)
    return schema


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
