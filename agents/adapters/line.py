"""A line to a provider: one streamed call, with its time-outs, repeats and remembered quirks.

A call is repeated only while nothing of its answer was seen. Knows HTTP and event streams,
no wire format. Read next: `agents/adapters/outbound.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import orjson

from agents.adapters import failures, lenient, outbound, sse
from agents.adapters.base import AdapterError, Code, Text
from agents.adapters.failures import jitter
from agents.adapters.wire import Answer, Decoder, Quirk

T = TypeVar("T")

MAX_REPEATS = 2
# Of an answer that broke off, which the provider may have billed: once, and never in a run that
# itself repeats one. With the two repeats of the run (`agents/outcomes.py`) that makes three.
MAX_BROKEN_REPEATS = 1
MAX_QUIRK_FIXES = 3
MAX_ERROR_BYTES = 64 * 1024
MAX_WHOLE_ANSWER_BYTES = 16 * 1024**2
USAGE_GRACE_SECONDS = 5.0  # after the finish reason, for the usage that may follow
MAX_REMEMBERED = 2000

# What a 400 names -> what to leave out from now on.
OBJECTIONS: tuple[tuple[tuple[str, ...], Quirk], ...] = (
    (("stream_options", "include_usage"), "no_stream_options"),
    (("max_completion_tokens",), "max_completion_tokens"),
    (("temperature",), "no_temperature"),
    (("tools", "tool_choice", "tool choice", "tool use", "function calling"), "no_tools"),
)
# A complaint about a value is not one about the parameter: "temperature must be below 1".
UNKNOWN_HERE = re.compile(
    r"support|requires|unknown|unrecogni|unexpected|extra (?:input|field)|not (?:permitted|allowed)"
)


class Lines:
    """Opens lines and remembers, for each server and model, what it does not accept."""

    def __init__(self) -> None:
        self._clients = outbound.Clients()
        self._quirks: dict[tuple[str, str], set[Quirk]] = {}

    def open(
        self,
        *,
        base_url: str,
        path: str,
        provider: str,
        model: str,
        headers: Mapping[str, str],
        key: str,
        idle_seconds: float,
        total_seconds: float,
        hidden: Sequence[str] = (),
        attempt: int = 1,
    ) -> Line:
        base = base_url.rstrip("/")
        if len(self._quirks) > MAX_REMEMBERED:
            self._quirks.clear()
        profile = hashlib.sha256(f"{base}\0{key}".encode()).hexdigest()
        return Line(
            client=self._clients.get(profile),
            base_url=base,
            path=path,
            provider=provider,
            headers=dict(headers),
            idle_seconds=idle_seconds,
            deadline=asyncio.get_running_loop().time() + total_seconds,
            hidden=hidden,
            broken_repeats=MAX_BROKEN_REPEATS if attempt == 1 else 0,
            remembered=self._quirks.setdefault((base, model), set()),
        )

    async def aclose(self) -> None:
        await self._clients.aclose()


@dataclass(slots=True)
class Line:
    client: httpx.AsyncClient
    base_url: str
    path: str
    provider: str
    headers: Mapping[str, str]
    idle_seconds: float
    deadline: float  # of the event loop's clock
    hidden: Sequence[str] = ()
    broken_repeats: int = MAX_BROKEN_REPEATS
    remembered: set[Quirk] = field(default_factory=set)

    @property
    def host(self) -> str:
        return httpx.URL(self.base_url).netloc.decode("ascii", "replace")

    @property
    def quirks(self) -> frozenset[Quirk]:
        return frozenset(self.remembered)

    async def models(self) -> list[str]:
        """The models that the server lists, by name. Raises AdapterError."""
        response = await self._send("GET", "/models", None)
        try:
            body, _ = await self._within(outbound.read_some(response, limit=MAX_WHOLE_ANSWER_BYTES))
            if response.status_code != 200:
                raise failures.from_response(response, body, secrets=self.hidden)
        except httpx.HTTPError as error:
            raise failures.from_transport(error, self.host) from error
        finally:
            await response.aclose()
        try:
            listed = orjson.loads(body)["data"]
            return [str(entry["id"]) for entry in listed]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise AdapterError(
                Code.CONFIG_INVALID, f"{self.host} does not answer with a list of models."
            ) from error

    async def call(
        self, body: Callable[[], bytes], decoder: Callable[[Answer], Decoder], answer: Answer
    ) -> AsyncGenerator[Text | None, None]:
        """Stream one answer into `answer`, yielding its text; None stands for other progress.

        `body` is asked again for each try, since a quirk learned from a 400 changes it.
        Raises AdapterError.
        """
        repeats = fixes = 0
        while True:
            seen = False
            try:
                attempt = self._attempt(body(), decoder(answer), answer)
                async with aclosing(attempt) as parts:
                    async for part in parts:
                        seen = True
                        yield part
                return
            except failures.CallFailed as error:
                if not seen and fixes < MAX_QUIRK_FIXES and self._learn(error):
                    fixes += 1
                    continue
                wait = self._wait(error, repeats)
                if seen or wait is None:
                    raise
                answer.clear()
                repeats += 1
                await asyncio.sleep(wait)

    def _wait(self, error: failures.CallFailed, repeats: int) -> float | None:
        """Seconds until the next try, None when there is none."""
        broken = error.code is Code.STREAM_BROKEN
        if not error.retryable or repeats >= (self.broken_repeats if broken else MAX_REPEATS):
            return None
        wait = jitter(repeats + 1)
        if error.retry_after is not None:
            if error.retry_after > failures.LONGEST_WAIT_SECONDS:
                return None
            wait = max(error.retry_after, min(wait, 0.5))
        if asyncio.get_running_loop().time() + wait >= self.deadline:
            return None
        return wait

    def _learn(self, error: failures.CallFailed) -> bool:
        """Whether a 400 named something that can be left out; it is from now on."""
        if error.detail.get("status") not in (400, 404, 422) or error.code is (
            Code.CONTEXT_TOO_LONG
        ):
            return False
        text = f"{error.message} {error.detail.get('body', '')}".lower()
        if not UNKNOWN_HERE.search(text):
            return False
        for words, quirk in OBJECTIONS:
            if quirk not in self.remembered and any(word in text for word in words):
                self.remembered.add(quirk)
                return True
        return False

    async def _attempt(
        self, body: bytes, decoder: Decoder, answer: Answer
    ) -> AsyncGenerator[Text | None, None]:
        response = await self._send("POST", self.path, body)
        try:
            if response.status_code != 200:
                shown, _ = await self._within(outbound.read_some(response, limit=MAX_ERROR_BYTES))
                raise failures.from_response(response, shown, secrets=self.hidden)
            async with aclosing(self._payloads(response, answer)) as payloads:
                async for payload in payloads:
                    before = (answer.chars, len(answer.calls))
                    texts = self._decoded(decoder, payload)
                    for text in texts:
                        yield text
                    if not texts and (answer.chars, len(answer.calls)) != before:
                        yield None
                    if decoder.complete:
                        break
        except httpx.HTTPError as error:
            if answer.stop is None:
                raise failures.from_transport(error, self.host) from error
        finally:
            await response.aclose()
        if answer.stop is None:
            raise failures.CallFailed(
                Code.STREAM_BROKEN,
                f"{self.host} ended the answer before it was complete.",
                retryable=True,
            )
        yield None  # an answer without text is an answer, too

    def _decoded(self, decoder: Decoder, payload: Any) -> list[Text]:
        if not isinstance(payload, Mapping):
            raise self._garbled("a message that is not an object")
        try:
            return decoder.feed(payload)
        except failures.CallFailed as error:
            error.message = failures.redact(error.message, self.hidden)
            raise
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise self._garbled("a message of an unknown form") from error

    async def _payloads(
        self, response: httpx.Response, answer: Answer
    ) -> AsyncGenerator[Any, None]:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":  # the server does not stream
            body, whole = await self._within(
                outbound.read_some(response, limit=MAX_WHOLE_ANSWER_BYTES)
            )
            if not whole:
                raise AdapterError(Code.OUTPUT_LIMIT, "The answer is larger than allowed.")
            yield self._json(body)
            return
        parser = sse.Parser()
        chunks = response.aiter_bytes()
        loop = asyncio.get_running_loop()
        alive_at = loop.time()
        while True:
            until = alive_at + (self.idle_seconds if answer.stop is None else USAGE_GRACE_SECONDS)
            try:
                async with asyncio.timeout_at(min(until, self.deadline)):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                if answer.stop is not None:
                    return
                raise self._late() from None
            try:
                events = parser.close() if chunk is None else parser.feed(chunk)
            except sse.TooLarge as error:
                raise AdapterError(Code.OUTPUT_LIMIT, f"Too large: {error}.") from error
            for event in events:
                if event.data.strip() == "[DONE]":
                    return
                payload = self._json(event.data)
                if event.name != "ping" and not _is_ping(payload):
                    alive_at = loop.time()  # comments and pings are no progress
                yield payload
            if chunk is None:
                return

    async def _send(self, method: str, path: str, body: bytes | None) -> httpx.Response:
        headers = {"Accept": "text/event-stream" if body else "application/json", **self.headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = self.client.build_request(
            method, self.base_url + path, content=body, headers=headers
        )
        try:
            return await self._within(self.client.send(request, stream=True))
        except httpx.HTTPError as error:
            raise failures.from_transport(error, self.host) from error

    async def _within(self, awaitable: Awaitable[T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(min(loop.time() + self.idle_seconds, self.deadline)):
                return await awaitable
        except TimeoutError:
            raise self._late() from None

    def _late(self) -> AdapterError:
        if asyncio.get_running_loop().time() >= self.deadline:
            return AdapterError(Code.TIMED_OUT, "The run took longer than its time limit.")
        return AdapterError(
            Code.IDLE, f"{self.host} said nothing for {self.idle_seconds:g} seconds."
        )

    def _json(self, text: str | bytes) -> Any:
        try:
            return lenient.loads(text)
        except ValueError as error:
            raise self._garbled("something that is not JSON") from error

    def _garbled(self, what: str) -> failures.CallFailed:
        return failures.CallFailed(Code.STREAM_BROKEN, f"{self.host} sent {what}.", retryable=True)


def _is_ping(payload: Any) -> bool:
    return isinstance(payload, Mapping) and payload.get("type") == "ping"
