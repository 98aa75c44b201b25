"""The JSON API, put together: routers of all floors, callers, errors.

Each app's `api.py` translates a request, makes one domain call and translates the answer; what is
the same everywhere stands here and in `companies/wire.py`. docs/api.md is the caller's view.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from django.core.exceptions import DisallowedHost, RequestDataTooBig, SuspiciousOperation
from django.db import DataError, Error, IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.template.loader import render_to_string
from django.urls import URLPattern, URLResolver, path, re_path
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.openapi.schema import OpenAPISchema
from ninja.parser import Parser
from ninja.renderers import BaseRenderer

from agents.api import router as keys
from agents.connections_api import router as connections
from agents.run_api import router as runs
from billing.api import router as billing
from billing.budget_api import router as budgets
from billing.price_api import router as prices
from companies import idempotency, wire, wire_names
from companies.api import router as companies
from companies.cli_login_api import router as cli_login
from companies.errors import Refusal
from issues.api import router as issues
from issues.approval_api import router as approvals
from issues.document_api import router as documents
from issues.thread_api import router as threads
from issues.work_api import router as work
from paperclip import addresses, callers, description
from paperclip.agent_api import router as agents
from paperclip.agent_config_api import router as agent_configs
from paperclip.callback_api import router as callbacks
from paperclip.health_api import router as health
from paperclip.overview_api import router as overview
from paperclip.task_api import router as tasks

log = logging.getLogger(__name__)
FOREIGN_KEY_VIOLATION = "23503"


class Orjson(BaseRenderer):
    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:
        return wire.dumps(data)


class StrictJson(Parser):
    """Refuses what the database or a stack could not hold."""

    def parse_body(self, request: HttpRequest) -> Any:
        return wire.loads(request.body)


def once(operation: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Give every POST its Idempotency-Key."""

    @functools.wraps(operation)
    def carried_out(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method != "POST" or not hasattr(request, "auth"):
            return operation(request, *args, **kwargs)
        return idempotency.carry_out(
            request,
            principal=callers.repeats_as(request),
            operation=lambda: operation(request, *args, **kwargs),
        )

    return carried_out


class DescribedApi(NinjaAPI):
    """Says in its description what holds for every operation: errors, repetition, versions."""

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        schema = super().get_openapi_schema(path_prefix=path_prefix, path_params=path_params)
        return description.complete(schema)


api = DescribedApi(
    title="Paperclip",
    version="1.0.0",
    description="A control plane for teams of AI agents. See docs/api.md.",
    docs=description.Page(),
    auth=callers.ALL,
    renderer=Orjson(),
    parser=StrictJson(),
    urls_namespace="api",
)
api.add_decorator(once, mode="operation")
for tag, router in (
    ("health", health),
    ("companies", companies),
    ("command line", cli_login),
    ("agents", agents),
    ("agent set-up", agent_configs),
    ("keys", keys),
    ("connections", connections),
    ("runs", runs),
    ("callbacks", callbacks),
    ("issues", issues),
    ("work", work),
    ("threads", threads),
    ("documents", documents),
    ("approvals", approvals),
    ("money", billing),
    ("budgets", budgets),
    ("prices", prices),
    ("overview", overview),
    ("one call", tasks),
):
    api.add_router("", router, tags=[tag])


# --- errors ----------------------------------------------------------------------------------


def on_refusal(request: HttpRequest, error: Refusal) -> HttpResponse:
    path, message = wire_names.named(error)
    details = error.details
    if error.status == 400:  # told like what is wrong with the shape of a body
        found = {"path": path, "code": error.code, "message": message}
        details = {"issues": [found], **details}
    response = wire.refusal(error.status, error.code, message, details)
    if error.status == 401:
        response["WWW-Authenticate"] = "Bearer"
    if "retryAfter" in error.details:
        response["Retry-After"] = str(error.details["retryAfter"])
    return response


def on_heard_again(request: HttpRequest, again: callers.HeardAgain) -> HttpResponse:
    return again.response


def on_bad_credential(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    response = wire.refusal(401, "unauthenticated", "A valid credential is needed.")
    response["WWW-Authenticate"] = "Bearer"
    return response


def on_invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    issues = []
    for found in error.errors:
        code, message = wire.complaint(found["type"], found["msg"], found.get("ctx") or {})
        # The first step says body, query or path, the second is our parameter's name.
        path = [str(step) for step in found["loc"][2 if found["loc"][0] == "body" else 1 :]]
        issues.append({"path": path, "code": code, "message": message})
    first = issues[0]
    where = ".".join(first["path"]) or "body"
    return wire.refusal(400, "invalid", f"{where}: {first['message']}", {"issues": issues})


def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    cause = error.__cause__
    if isinstance(cause, Refusal):  # the parser's, which the framework wraps
        return on_refusal(request, cause)
    code = {400: "invalid", 403: "forbidden", 404: "not_found"}.get(error.status_code, "refused")
    return wire.refusal(error.status_code, code, str(error))


def on_not_found(request: HttpRequest, error: Http404) -> HttpResponse:
    return wire.refusal(404, "not_found", "Not found.")


def on_database_away(request: HttpRequest, error: Error) -> HttpResponse:
    log.warning("database: %s", str(error).splitlines()[0] if str(error) else type(error).__name__)
    response = wire.refusal(503, "database_away", "The database does not answer; try again soon.")
    response["Retry-After"] = "2"
    return response


def on_unholdable(request: HttpRequest, error: DataError) -> HttpResponse:
    log.warning("a value that the database refused: %s", str(error).splitlines()[0])
    return wire.refusal(400, "invalid", "A value is outside of what can be stored.")


def on_broken_rule(request: HttpRequest, error: IntegrityError) -> HttpResponse:
    """A row that the call names was deleted while it was carried out; any other rule is ours."""
    if getattr(error.__cause__, "sqlstate", None) != FOREIGN_KEY_VIOLATION:
        return on_fault(request, error)
    log.warning("a reference that is gone: %s", str(error).splitlines()[0])
    return wire.refusal(409, "reference_gone", "Something that this names was just deleted.")


def on_too_big(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    return wire.refusal(413, "body_too_large", "The body is larger than 10 MB.")


def on_suspicious(request: HttpRequest, error: SuspiciousOperation) -> HttpResponse:
    return wire.refusal(400, "invalid", "The address has too many parameters.")


def on_cut_body(request: HttpRequest, error: UnreadablePostError) -> HttpResponse:
    return wire.refusal(400, "invalid", "The body could not be read.")


def on_fault(request: HttpRequest, error: Exception) -> HttpResponse:
    log.exception("%s %s failed", request.method, request.path, exc_info=error)
    return wire.refusal(500, "internal_error", "Something went wrong on our side.")


for kind, handler in (
    (Refusal, on_refusal),
    (callers.HeardAgain, on_heard_again),
    (AuthenticationError, on_bad_credential),
    (ValidationError, on_invalid),
    (HttpError, on_http_error),
    (Http404, on_not_found),
    (OperationalError, on_database_away),
    (InterfaceError, on_database_away),
    (DataError, on_unholdable),
    (IntegrityError, on_broken_rule),
    (RequestDataTooBig, on_too_big),
    (SuspiciousOperation, on_suspicious),
    (UnreadablePostError, on_cut_body),
    (Exception, on_fault),
):
    api.add_exception_handler(kind, handler)  # type: ignore[arg-type]


# --- addresses -------------------------------------------------------------------------------

LEFT_OUT = (
    "plugins|cloud|pipelines|cases|status-cards|skills|tool-gateway|tools|email|chat|"
    "environments|sandboxes|feedback|routines|routine-triggers|secrets|attachments|export|import|"
    "execution-workspaces|workspaces|invites|conversations|channels"
)


@csrf_exempt
def not_supported(request: HttpRequest) -> HttpResponse:
    return wire.refusal(404, "not_supported", "This server does not offer that.")


@csrf_exempt
def unknown(request: HttpRequest) -> HttpResponse:
    return wire.refusal(404, "not_found", "There is no such address.")


@csrf_exempt
def not_an_event_stream(request: HttpRequest) -> HttpResponse:
    """All of `/events` but GET, which the streams answer before it comes here."""
    response = wire.refusal(405, "method_not_allowed", "Allowed here: GET.")
    response["Allow"] = "GET"
    return response


def refused_early(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's own 400, as JSON for the API.

    The page is not Django's view of it, which looks for a token in the form that cannot be read.
    """
    if not request.path_info.startswith("/api"):
        return HttpResponse(render_to_string("400.html"), status=400)
    if isinstance(exception, DisallowedHost):
        return wire.refusal(400, "invalid_host", "This server is not called by that name.")
    return wire.refusal(400, "invalid", "The request cannot be read.")


def _in_json(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A wrong method is an error like all others; every answer tells how many calls are left."""

    @functools.wraps(view)
    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = view(request, *args, **kwargs)
        if (allowance := getattr(request, "allowance", None)) is not None:
            response["RateLimit-Limit"] = str(allowance.limit)
            response["RateLimit-Remaining"] = str(allowance.left)
            response["RateLimit-Reset"] = str(allowance.resets_in)
        if response.status_code != 405:
            return response
        allowed = ", ".join(sorted(response["Allow"].split(", ")))
        response = wire.refusal(405, "method_not_allowed", f"Allowed here: {allowed}.")
        response["Allow"] = allowed
        return response

    return answered


def urls() -> tuple[list[URLPattern | URLResolver], str, str]:
    """The addresses under `/api/`, for `include`-less use in `path()`."""
    patterns, app_name, namespace = api.urls
    wrapped = [
        URLPattern(p.pattern, _in_json(p.callback), p.default_args, p.name)
        for p in patterns
        if isinstance(p, URLPattern) and p.name != "api-root"
    ]
    root = [p for p in patterns if isinstance(p, URLPattern) and p.name == "api-root"]
    left_out = rf"^(?:(?:companies/[^/]+/)?(?:issues/[^/]+/)?|agents/[^/]+/)(?:{LEFT_OUT})(?:/.*)?$"
    return (
        [
            # Before the addresses of companies, which would take "import" for a company's name.
            re_path(r"^companies/(?:import|export)(?:/.*)?$", not_supported),
            addresses.branch(wrapped),
            re_path(left_out, not_supported),
            path("", unknown),
            *root,
            re_path("", unknown),
        ],
        app_name,
        namespace,
    )
