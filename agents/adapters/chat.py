"""The turn loop that all chat models share: prompt, call, tools, again, until it is done.

A provider's file says how a conversation is written on its wire and how its answers are read
(`Wire`); everything else stands here once. Transport is `agents/adapters/line.py`.
Read next: `agents/adapters/openai.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, Literal

import orjson
from pydantic import ValidationError

from agents.adapters import failures, fields, lenient, outbound, prompt
from agents.adapters.base import (
    AdapterError,
    AnyConfig,
    Brief,
    Check,
    Code,
    ConfigClass,
    Done,
    Event,
    Route,
    Started,
    Step,
    Text,
    ToolResult,
    Usage,
)
from agents.adapters.legs import Leg, Legs
from agents.adapters.line import Line, Lines
from agents.adapters.wire import Answer, Call, ChatConfig, Conversation, Turn, Wire

CHARS_PER_TOKEN = 4
MAX_CALLS_A_TURN = 32
MAX_OUTPUT_CHARS = 4_000_000
MAX_TOOL_RESULT_CHARS = 60_000

# --- one run --------------------------------------------------------------------------------


class Run:
    """The loop of one run. Made for one brief, iterated once."""

    def __init__(self, legs: Legs, config: ChatConfig, brief: Brief) -> None:
        self.legs = legs
        self.config = config
        self.brief = brief
        self.calls = 0  # that were booked
        self.acted = False  # a tool that changes something ran
        self.turns: list[Turn] = []
        self._announced = False
        self._seen = False  # something of the answer that is asked for

    async def events(self) -> AsyncGenerator[Event, None]:
        try:
            for _ in range(self.config.max_turns):
                async with aclosing(self._turn()) as events:
                    async for event in events:
                        yield event
                        if isinstance(event, Done):
                            return
        except AdapterError as error:
            error.acted = error.acted or self.acted
            raise
        raise AdapterError(
            Code.TURN_LIMIT,
            f"The model took {self.config.max_turns} turns and was not done. Raise maxTurns, or "
            "give it a smaller piece of work.",
            acted=self.acted,
        )

    async def _turn(self) -> AsyncGenerator[Event, None]:
        answer = Answer()
        async with aclosing(self._ask(answer)) as asked:
            async for event in asked:
                yield event
        _check_stop(answer)
        if answer.stop == "pause":
            self.turns.append(Turn(answer))
            return
        if not answer.calls:
            yield self._finish(answer)
            return
        results: list[tuple[Call, ToolResult]] = []
        async with aclosing(self._use_tools(answer, results)) as steps:
            async for event in steps:
                yield event
        self.turns.append(Turn(answer, results))
        if any(result.closes for _, result in results):
            yield Done(summary=answer.text.strip(), result=self._facts(answer))

    async def _ask(self, answer: Answer) -> AsyncGenerator[Event, None]:
        """One answer, by the next way when this one fails before anything of it was seen."""
        while True:
            try:
                async with aclosing(self._call(answer)) as events:
                    async for event in events:
                        yield event
                return
            except AdapterError as error:
                if self._seen or not await self.legs.divert(error):
                    raise
                answer.clear()
                self._announced = False  # another model begins

    async def _call(self, answer: Answer) -> AsyncGenerator[Event, None]:
        """One model call: its text as it comes, then what it cost, whatever became of it."""
        leg, taken, admitted = self.legs.current, 0, False
        usage: Usage | None = None
        failure: AdapterError | None = None
        body = b""
        self._seen = False
        try:
            body = self._body()
            worst = len(body) // 3 + 1  # the worst case, not the likely one
            taken = worst + leg.config.max_tokens
            await self.legs.admit(taken)
            admitted = True
            await self.brief.grant_call(
                provider=leg.line.provider,
                model=leg.config.model,
                input_tokens=worst,
                max_output_tokens=leg.config.max_tokens,
            )
            async with aclosing(leg.line.call(self._body, leg.wire.decoder, answer)) as parts:
                async for part in parts:
                    self._seen = True
                    if not self._announced:
                        self._announced = True
                        yield Started(model=answer.model or leg.config.model)
                    if isinstance(part, Text):
                        yield part
                    if answer.chars > MAX_OUTPUT_CHARS:
                        raise AdapterError(Code.OUTPUT_LIMIT, "The answer is longer than allowed.")
            usage = self._usage(answer, len(body), always=True)
        except AdapterError as error:
            failure = error
            usage = self._usage(answer, len(body))
            if usage:
                yield usage
            raise
        except (asyncio.CancelledError, GeneratorExit):
            # Nothing can be yielded any more, yet the provider bills what it generated.
            usage = self._usage(answer, len(body))
            if usage:
                self.brief.book_usage(usage)
            raise
        finally:
            if admitted:
                self.legs.report(taken=taken, usage=usage, answered=self._seen, error=failure)
        if usage:
            yield usage

    def _usage(self, answer: Answer, sent: int, *, always: bool = False) -> Usage | None:
        """What the call used; None when it was never answered."""
        reported = {name: value for name, value in answer.usage.items() if value is not None}
        if not (always or answer.chars):
            return None
        self.calls += 1
        whole = bool(reported) and answer.stop is not None
        if not whole:
            # A broken stream reported its beginning at best: count what was seen as well.
            reported["input_tokens"] = reported.get("input_tokens") or _tokens(sent)
            reported["output_tokens"] = max(reported.get("output_tokens", 0), _tokens(answer.chars))
        return Usage(
            call=self.calls,
            provider=self.legs.current.line.provider,
            model=answer.model or self.legs.current.config.model,
            source="reported" if whole else "estimated",
            **reported,
        )

    def _body(self) -> bytes:
        leg = self.legs.current
        quirks = leg.line.quirks
        tools = self.brief.tools if self.config.tools and "no_tools" not in quirks else ()
        conversation = Conversation(
            system=prompt.system(self.brief, with_tools=bool(tools)),
            user=prompt.user(self.brief),
            turns=self.turns,
            tools=tools,
        )
        return orjson.dumps(leg.wire.body(leg.config, conversation, quirks))

    def _finish(self, answer: Answer) -> Done:
        summary = answer.text.strip()
        if not summary and not self.acted:
            raise AdapterError(
                Code.BAD_RESULT, "The model ended without an answer and without doing anything."
            )
        status: Literal["done", "in_review"] | None = None
        if not self.acted and self.brief.task is not None:
            status = self.config.on_finish or self.brief.task.on_finish
        return Done(summary=summary, status=status, result=self._facts(answer))

    def _facts(self, answer: Answer) -> dict[str, Any]:
        return {
            "stopReason": answer.stop_reason,
            "modelCalls": self.calls,
            **self.legs.facts(),
        }

    async def _use_tools(
        self, answer: Answer, results: list[tuple[Call, ToolResult]]
    ) -> AsyncGenerator[Step, None]:
        specs = {tool.name: tool for tool in self.brief.tools}
        for number, call in enumerate(answer.calls):
            call.id = call.id or f"call_{self.calls}_{number}"
            arguments, problem = _arguments(call)
            if number >= MAX_CALLS_A_TURN:
                problem = f"at most {MAX_CALLS_A_TURN} tool calls in one answer"
            elif call.name not in specs:
                known = ", ".join(specs) or "none"
                problem = f"there is no tool {call.name[:100]!r}; the tools are: {known}"
            yield Step(id=call.id, name=call.name, phase="start", input=arguments)
            began = time.monotonic()
            if problem:
                result = ToolResult(f"Error: {problem}", is_error=True)
            else:
                self.acted = self.acted or specs[call.name].acts
                result = await self.brief.call_tool(call.name, arguments)
            results.append((call, result))
            yield Step(
                id=call.id,
                name=call.name,
                phase="end",
                output=result.text,
                is_error=result.is_error,
                duration_ms=int((time.monotonic() - began) * 1000),
            )


def _arguments(call: Call) -> tuple[dict[str, Any], str]:
    """The arguments as an object, or why they are none."""
    text = call.arguments.strip() or "{}"
    try:
        parsed = lenient.loads(text)
    except ValueError as error:
        return {"invalid": text[:2000]}, f"the arguments are not JSON ({error})"
    if not isinstance(parsed, dict):
        return {"invalid": text[:2000]}, "the arguments must be a JSON object"
    return parsed, ""


def _check_stop(answer: Answer) -> None:
    if answer.stop == "length":
        raise AdapterError(
            Code.TRUNCATED_OUTPUT,
            "The answer hit the token limit and is incomplete. Raise maxTokens, or ask for less.",
            detail={"stopReason": answer.stop_reason},
        )
    if answer.stop == "refused":
        raise AdapterError(
            Code.REFUSED,
            "The model or its filter declined to answer.",
            detail={"stopReason": answer.stop_reason},
        )


def _tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)


def result_text(result: ToolResult) -> str:
    """What the model reads of a tool's result."""
    text = result.text or ("error" if result.is_error else "ok")
    if len(text) > MAX_TOOL_RESULT_CHARS:
        return f"{text[:MAX_TOOL_RESULT_CHARS]}\n[cut]"
    return text


# --- the adapter ------------------------------------------------------------------------------


class ChatAdapter:
    """What `openai` and `anthropic` have in common; each brings its wire and its words."""

    type: ClassVar[str]
    label: ClassVar[str]
    description: ClassVar[str]
    Config: ClassVar[ConfigClass] = ChatConfig
    retry_safe: ClassVar[bool] = True  # until one of its tools has acted
    uses_tools: ClassVar[bool] = True
    needs_folder: ClassVar[bool] = False
    simulated: ClassVar[bool] = False
    wire: ClassVar[Wire]
    _wires: ClassVar[dict[str, Wire]] = {}  # of all kinds: a fallback may speak another one

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        ChatAdapter._wires[cls.type] = cls.wire

    def __init__(self) -> None:
        self._lines = Lines()

    async def run(self, brief: Brief) -> AsyncGenerator[Event, None]:
        config = self._config(brief.config)
        legs = Legs(self._legs(config, brief), brief)
        async with aclosing(Run(legs, config, brief).events()) as events:
            async for event in events:
                yield event

    async def models(self, config: ChatConfig, secrets: Mapping[str, str]) -> list[str]:
        """The models the provider lists, by name. Raises AdapterError."""
        return await self._open(config, secrets).models()

    async def test(self, config: AnyConfig, secrets: Mapping[str, str]) -> list[Check]:
        assert isinstance(config, ChatConfig)
        try:
            line = self._open(config, secrets)
        except AdapterError as error:
            return [_failed("Configuration", error)]
        checks = []
        try:
            names = await line.models()
            known = config.model in names or not names
            checks.append(
                Check(
                    "Models",
                    known,
                    f"{line.host} answers and lists {_models(len(names))}."
                    if known
                    else f"{line.host} answers, but does not list {config.model}.",
                    "" if known else "It lists: " + ", ".join(sorted(names)[:8]),
                )
            )
        except AdapterError as error:
            if error.code in (Code.MODEL_NOT_FOUND, Code.CONFIG_INVALID):
                # Not every compatible server has the list; the real question comes next.
                checks.append(Check("Models", True, f"{line.host} has no list of models."))
            else:
                return [_failed("Connection", error)]
        checks.append(await self._ask_one_token(line, config))
        return checks

    async def aclose(self) -> None:
        await self._lines.aclose()

    async def _ask_one_token(self, line: Line, config: ChatConfig) -> Check:
        small = config.model_copy(update={"max_tokens": 16})
        question = Conversation(system="You answer in one word.", user="Say OK.")
        answer = Answer()
        began = time.monotonic()

        def body() -> bytes:
            return orjson.dumps(self.wire.body(small, question, line.quirks))

        try:
            async with aclosing(line.call(body, self.wire.decoder, answer)) as parts:
                async for _ in parts:
                    pass
        except AdapterError as error:
            return _failed("Answer", error)
        took = time.monotonic() - began
        model = answer.model or config.model
        counted = "counts its tokens" if answer.usage else "does not report its token usage"
        hint = "" if answer.usage else "Costs of this connection will be estimates."
        return Check("Answer", True, f"{model} answered in {took:.1f} s and {counted}.", hint)

    def _config(self, raw: Mapping[str, Any]) -> ChatConfig:
        try:
            return ChatConfig.model_validate(dict(raw))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise AdapterError(Code.CONFIG_INVALID, f"{where}: {first['msg']}") from error

    def _legs(self, config: ChatConfig, brief: Brief) -> list[Leg]:
        if config.connection_id is None:
            line = self._open(config, brief.secrets, attempt=brief.attempt)
            return [Leg(self.wire, line, config)]
        if not brief.routes:
            raise AdapterError(
                Code.CONFIG_INVALID, "The connection of this agent is switched off or gone."
            )
        return [self._leg(config, route, brief) for route in brief.routes]

    def _leg(self, config: ChatConfig, route: Route, brief: Brief) -> Leg:
        changes: dict[str, Any] = {"model": route.model}
        if route.position > 0:
            changes["headers"] = {}  # meant for the first provider, and perhaps a secret of it
        config = config.model_copy(update=changes)
        wire = self._wires[route.kind]
        line = self._open(
            config,
            brief.secrets,
            wire=wire,
            base_url=route.base_url,
            key=route.key,
            attempt=brief.attempt,
        )
        return Leg(wire, line, config, route)

    def _open(
        self,
        config: ChatConfig,
        secrets: Mapping[str, str],
        *,
        wire: Wire | None = None,
        base_url: str = "",
        key: str | None = None,
        attempt: int = 1,
    ) -> Line:
        wire = wire or self.wire
        base_url = wire.address(base_url or config.base_url or "")
        key = config.key(secrets) if key is None else key
        own = fields.fill_headers(config.headers, secrets)
        headers = fields.merged(wire.headers(key), own)
        return self._lines.open(
            base_url=base_url,
            path=wire.path,
            provider=wire.provider(base_url),
            model=config.model,
            headers=headers,
            key=key,
            idle_seconds=config.idle_timeout_sec,
            total_seconds=config.timeout_sec,
            hidden=[s for s in (key, *secrets.values()) if s],
            attempt=attempt,
        )


HINTS: dict[Code, str] = {
    Code.AUTH_FAILED: "Check the key, and that it belongs to this provider and address.",
    Code.CONNECT_FAILED: "Is the server running, and reachable from this machine?",
    Code.ADDRESS_REFUSED: outbound.ALLOWING,
    Code.MODEL_NOT_FOUND: "Compare the model's name with the provider's list.",
    Code.QUOTA_EXHAUSTED: "Add credit at the provider, or use another key.",
    Code.RATE_LIMITED: "Wait a little; the key works.",
    Code.PROVIDER_OVERLOADED: "The provider has trouble of its own; try again later.",
    Code.CONFIG_INVALID: "Check the base URL: it usually ends in /v1.",
    Code.IDLE: "A local model may still be loading; a longer silence limit (idleTimeoutSec) helps.",
}


def _models(count: int) -> str:
    return f"{count} model" if count == 1 else f"{count} models"


def _failed(name: str, error: AdapterError) -> Check:
    return Check(name, False, failures.redact(error.message), HINTS.get(error.code, ""))
