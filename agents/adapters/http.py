"""A web service as an agent: one signed POST with the work, the result in the answer or later.

Signed as Standard Webhooks asks (webhook-id, webhook-timestamp, webhook-signature), so that a
receiver can check who calls with any of its libraries. Source: standardwebhooks.com, spec 1.0.0.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, ClassVar, Literal

import httpx
import orjson
from pydantic import Field, ValidationError

from agents.adapters import failures, fields, lenient, outbound, results
from agents.adapters.base import (
    AdapterError,
    AnyConfig,
    Brief,
    Check,
    Code,
    Config,
    ConfigClass,
    Done,
    Event,
    Note,
    Started,
)
from agents.adapters.failures import jitter

MAX_REPEATS = 2
# A line of a program's log may say "error" and mean little; a service's whole answer means it.
ERROR = frozenset({"error"})
PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z]+)\s*\}\}")
WITHOUT_ANSWER = frozenset({202, 204, 205})
# Refused before it did anything, by the word of the status itself.
UNSENT_STATUSES = frozenset({429, 502, 503, 504})


class HttpConfig(Config):
    """Where to post. `secretRef` names the secret that signs; `idempotent` allows repeats."""

    url: fields.Url
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: fields.Headers = Field(default_factory=dict)
    payload_template: dict[str, Any] = Field(default_factory=dict)
    secret_ref: fields.Name | None = None
    timeout_sec: fields.Seconds = 300
    mode: Literal["sync", "callback"] = "sync"
    idempotent: bool = False

    def secret_names(self) -> set[str]:
        own = {self.secret_ref} if self.secret_ref else set()
        return own | fields.secrets_in_headers(self.headers)


class Http:
    type: ClassVar[str] = "http"
    label: ClassVar[str] = "Web service"
    description: ClassVar[str] = (
        "Posts the work to an address of yours, which answers with the result or reports later."
    )
    Config: ClassVar[ConfigClass] = HttpConfig
    retry_safe: ClassVar[bool] = False
    uses_tools: ClassVar[bool] = False
    needs_folder: ClassVar[bool] = False
    simulated: ClassVar[bool] = False

    def __init__(self) -> None:
        self._clients = outbound.Clients()

    async def run(self, brief: Brief) -> AsyncGenerator[Event, None]:
        try:
            config = HttpConfig.model_validate(dict(brief.config))
        except ValidationError as error:
            raise AdapterError(Code.CONFIG_INVALID, str(error)) from error
        body = orjson.dumps(payload(brief, config), default=str)
        extra = fields.fill_headers(config.headers, brief.secrets)
        yield Started(model="", detail={"url": config.url})
        yield Note("Waiting for the service's answer.")
        try:
            async with asyncio.timeout(config.timeout_sec):
                response, content = await self._post(brief, config, body, extra)
        except TimeoutError:
            raise AdapterError(
                Code.TIMED_OUT,
                f"The service did not answer within {config.timeout_sec:g} seconds. Whether it "
                "did the work is not known.",
                acted=True,
            ) from None
        for event in _read(response, content, config):
            if isinstance(event, AdapterError):
                raise event
            yield event

    async def test(self, config: AnyConfig, secrets: Mapping[str, str]) -> list[Check]:
        """Ask for the address without posting work: any answer proves that it is there."""
        assert isinstance(config, HttpConfig)
        checks = []
        try:
            headers = fields.fill_headers(config.headers, secrets)
            if config.secret_ref:
                signature(fields.secret_value(config.secret_ref, secrets), "msg", 0, b"")
                checks.append(Check("Signature", True, "The signing secret is usable."))
        except AdapterError as error:
            return [Check("Configuration", False, error.message)]
        client = self._clients.get(config.url)
        host = _place(httpx.URL(config.url))
        try:
            async with (
                asyncio.timeout(15),
                client.stream("HEAD", config.url, headers=headers) as response,
            ):
                status = response.status_code
        except TimeoutError:
            hint = "Is it running and reachable from this machine?"
            return [*checks, Check("Reach", False, f"{host} did not answer in 15 s.", hint)]
        except AdapterError as error:
            hint = outbound.ALLOWING
            return [*checks, Check("Reach", False, error.message, hint)]
        except httpx.HTTPError as error:
            failure = failures.from_transport(error, host)
            hint = "Is it running and reachable from this machine?"
            return [*checks, Check("Reach", False, failure.message, hint)]
        return [*checks, _reached(host, status)]

    async def aclose(self) -> None:
        await self._clients.aclose()

    async def _post(
        self, brief: Brief, config: HttpConfig, body: bytes, extra: Mapping[str, str]
    ) -> tuple[httpx.Response, bytes]:
        client = self._clients.get(config.url)
        host = _place(httpx.URL(config.url))
        repeats = 0
        while True:
            headers = fields.merged(extra, _headers(brief, config, body))
            response = None
            try:
                request = client.build_request(
                    config.method, config.url, content=body, headers=headers
                )
                response = await client.send(request, stream=True)
                content, whole = await outbound.read_some(response, limit=results.MAX_RESULT_BYTES)
                if not whole:
                    raise AdapterError(
                        Code.OUTPUT_LIMIT, "The answer is larger than 1 MB.", acted=True
                    )
                lost = _lost(response, content)
                if response.status_code < 300 and not lost:
                    return response, content
                if lost:
                    failure = _undecided(failures.CallFailed(Code.STREAM_BROKEN, lost), config)
                    again = config.idempotent
                else:
                    failure = failures.from_response(
                        response, content, secrets=[*brief.secrets.values(), brief.api_key]
                    )
                    again = config.idempotent and response.status_code in UNSENT_STATUSES
                    failure = _in_words(failure, response.status_code, host)
            except httpx.HTTPError as error:
                failure = failures.from_transport(error, host)
                unsent = failure.code is Code.CONNECT_FAILED
                if not unsent:
                    failure = _undecided(failure, config)
                again = unsent or config.idempotent
            finally:
                if response is not None:
                    await response.aclose()
            wait = jitter(repeats + 1)
            if failure.retry_after is not None:
                wait = failure.retry_after
            if not again or repeats >= MAX_REPEATS or wait > failures.LONGEST_WAIT_SECONDS:
                raise failure
            repeats += 1
            await asyncio.sleep(wait)


def payload(brief: Brief, config: HttpConfig) -> dict[str, Any]:
    """What is posted: the operator's template, and over it what Paperclip itself says."""
    task = brief.task
    values = {
        "runId": brief.run_id,
        "agentId": brief.agent_id,
        "companyId": brief.company_id,
        "agentName": brief.agent_name,
        "companyName": brief.company_name,
        "wakeReason": brief.reason,
        "apiUrl": brief.api_url,
        "taskId": task.id if task else "",
        "taskIdentifier": task.identifier if task else "",
        "taskTitle": task.title if task else "",
    }
    context = {
        **brief.payload,
        "wakeReason": brief.reason,
        "taskId": task.id if task else None,
        "attempt": brief.attempt,
        "apiUrl": brief.api_url,
        "mode": config.mode,
    }
    return {
        **_filled(config.payload_template, values),
        "runId": brief.run_id,
        "agentId": brief.agent_id,
        "companyId": brief.company_id,
        "context": context,
    }


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """`v1,<base64>` over id, timestamp and body. Raises AdapterError for an unusable secret."""
    key = secret.encode()
    if secret.startswith("whsec_"):
        try:
            key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except ValueError as error:
            raise AdapterError(
                Code.CONFIG_INVALID, "The signing secret begins with whsec_ but is not base64."
            ) from error
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _headers(brief: Brief, config: HttpConfig, body: bytes) -> dict[str, str]:
    key = f"{brief.run_id}:{brief.attempt}"
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Idempotency-Key": key,
    }
    if brief.api_key:
        headers["Authorization"] = f"Bearer {brief.api_key}"
    if config.secret_ref:
        now = int(time.time())
        message_id = f"run_{key}"
        secret = fields.secret_value(config.secret_ref, brief.secrets)
        headers["webhook-id"] = message_id
        headers["webhook-timestamp"] = str(now)
        headers["webhook-signature"] = signature(secret, message_id, now, body)
    return headers


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    """Placeholders in texts are replaced, once and as text; unknown ones stay."""
    if isinstance(value, str):
        return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), value)
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, values) for key, item in value.items()}
    return value


def _read(
    response: httpx.Response, content: bytes, config: HttpConfig
) -> list[Event | AdapterError]:
    """What the answer says; a failure stands last."""
    host = httpx.URL(config.url).host
    if response.status_code == 202:
        return [Done(awaiting_callback=True)]
    if not content.strip():
        return [Done()]
    raw = results.recognise(content, also=ERROR)
    if raw is not None:
        outcome = results.read(raw, provider=host)
        used: list[Event] = [outcome.usage] if outcome.usage else []
        return [*used, outcome.failure or outcome.done]
    if _kind(response) == "text/plain":
        return [Done(summary=content.decode("utf-8", "replace").strip())]
    raise AdapterError(
        Code.BAD_RESULT,
        f"{_place(response.request.url)} answered with HTTP {response.status_code}, but not with a "
        "result object (summary, status, usage, cost).",
        acted=True,
        detail={"body": failures.redact(content[: failures.BODY_SHOWN].decode("utf-8", "replace"))},
    )


def _lost(response: httpx.Response, content: bytes) -> str:
    """Why a good status came without its answer: nothing, or the beginning of a JSON text. ""
    when it came with one."""
    status, host = response.status_code, _place(response.request.url)
    if not 200 <= status < 300 or status in WITHOUT_ANSWER:
        return ""
    if not content.strip():
        return f"{host} answered with HTTP {status}, but with nothing in it."
    kind = _kind(response)
    is_json = kind == "application/json" or kind.endswith("+json") or content.lstrip()[:1] == b"{"
    if kind == "text/plain" or not is_json:
        return ""
    try:
        lenient.loads(content.strip())
    except ValueError:
        return f"{host} answered with HTTP {status}, but its JSON is broken off or damaged."
    return ""


def _undecided(failure: failures.CallFailed, config: HttpConfig) -> failures.CallFailed:
    """The work was posted and no answer tells what became of it. What may be repeated has failed
    in the end; anything else is for a person to decide."""
    failure.acted = True
    failure.unknown = not config.idempotent
    if failure.unknown:
        failure.message += " Whether it did the work is not known."
        failure.args = (failure.message,)
    return failure


def _place(url: httpx.URL) -> str:
    """Host and port, as far as the address names one."""
    return url.netloc.decode("ascii", "replace")


def _kind(response: httpx.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _in_words(failure: failures.CallFailed, status: int, host: str) -> failures.CallFailed:
    """The same failure, told of a service instead of a model provider."""
    body = str(failure.detail.get("body", ""))
    said = f": {' '.join(body.split())[:300]}" if body.strip() else "."
    if failure.code is not Code.CONFIG_INVALID:
        failure.message = f"{host} answered with HTTP {status}{said}"
    failure.args = (failure.message,)
    failure.acted = status >= 500 and status != 503
    return failure


def _reached(host: str, status: int) -> Check:
    said = f"{host} answers (HTTP {status} to HEAD). No work was posted."
    if status in (401, 403):
        return Check("Reach", True, said, "It wants to know who asks; check the headers.")
    if status == 404:
        return Check("Reach", False, said, "The path may be wrong.")
    if 300 <= status < 400:
        return Check("Reach", False, said, "It redirects; use the final address.")
    if status >= 500 and status != 501:
        return Check("Reach", False, said, "The service has trouble of its own.")
    return Check("Reach", True, said)
