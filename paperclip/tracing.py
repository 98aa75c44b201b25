"""Traces of runs for OpenTelemetry, under the names of its conventions for generative AI: a span
`invoke_agent` for a run, `chat` for each model call, `execute_tool` for each step.

Off unless OTEL_EXPORTER_OTLP_ENDPOINT is set and the packages of requirements-tracing.txt are
there. What was said is not told, only who, which model, how long and how much.
Source of the names: https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from agents.adapters.base import Event, Started, Step, Usage

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
MOST_OPEN_STEPS = 100
CLOSE_MILLISECONDS = 3_000


class Facts(Protocol):
    """What a trace says of its run."""

    @property
    def run_id(self) -> Any: ...
    @property
    def agent_id(self) -> Any: ...
    @property
    def company_id(self) -> Any: ...
    @property
    def agent_name(self) -> str: ...
    @property
    def adapter_type(self) -> str: ...
    @property
    def attempt(self) -> int: ...


class Trace:
    """Of one run. This one tells nobody."""

    def see(self, event: Event) -> None:
        """Takes in what the run does."""

    def end(self, *, status: str, code: str = "") -> None:
        """The run is over; a second call changes nothing."""


NONE = Trace()


class _Told(Trace):
    def __init__(self, tracer: Tracer, facts: Facts, issue_id: object) -> None:
        self._tracer = tracer
        self._facts = facts
        self._model = ""
        self._open: dict[str, Span] = {}
        self._over = False
        self._since = time.time_ns()  # when the model may have begun to think
        self._span = tracer.start_span(
            f"invoke_agent {facts.agent_name}",
            start_time=self._since,
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.provider.name": facts.adapter_type,
                "gen_ai.agent.id": str(facts.agent_id),
                "gen_ai.agent.name": facts.agent_name,
                "gen_ai.conversation.id": str(issue_id or facts.run_id),
                "paperclip.run.id": str(facts.run_id),
                "paperclip.run.attempt": facts.attempt,
                "paperclip.company.id": str(facts.company_id),
                **({"paperclip.issue.id": str(issue_id)} if issue_id else {}),
            },
        )

    def see(self, event: Event) -> None:
        if self._over:
            return
        if isinstance(event, Usage):
            self._chat(event)
        elif isinstance(event, Step):
            self._step(event)
        elif isinstance(event, Started) and event.model:
            self._model = event.model
            self._span.set_attribute("gen_ai.request.model", event.model)

    def _child(self, name: str, start: int, attributes: Mapping[str, Any]) -> Span:
        from opentelemetry.trace import set_span_in_context

        return self._tracer.start_span(
            name,
            context=set_span_in_context(self._span),
            start_time=start,
            attributes={**attributes, "gen_ai.agent.id": str(self._facts.agent_id)},
        )

    def _chat(self, usage: Usage) -> None:
        """A call is told when its usage is known; it began when what was before it had ended."""
        now = time.time_ns()
        chat = self._child(
            f"chat {usage.model}",
            self._since,
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": usage.provider,
                "gen_ai.request.model": self._model or usage.model,
                "gen_ai.response.model": usage.model,
                "gen_ai.usage.input_tokens": usage.input_tokens,
                "gen_ai.usage.output_tokens": usage.output_tokens,
                "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
                "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
                "paperclip.call": usage.call,
            },
        )
        chat.end(now)
        self._since = now

    def _step(self, step: Step) -> None:
        now = time.time_ns()
        if step.phase == "start":
            if len(self._open) < MOST_OPEN_STEPS:
                self._open[step.id] = self._tool(step, now)
            return
        began = now - (step.duration_ms or 0) * 1_000_000
        span = self._open.pop(step.id, None) or self._tool(step, began)
        if step.is_error:
            _failed(span, "tool_error")
        span.end(now)
        self._since = now

    def _tool(self, step: Step, start: int) -> Span:
        return self._child(
            f"execute_tool {step.name[:100]}",
            start,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": step.name[:100],
                "gen_ai.tool.call.id": step.id,
            },
        )

    def end(self, *, status: str, code: str = "") -> None:
        if self._over:
            return
        self._over = True
        for span in self._open.values():
            _failed(span, "unfinished")
            span.end()
        self._span.set_attribute("paperclip.run.status", status)
        if status != "succeeded":
            _failed(self._span, code or status)
        self._span.end()


def _failed(span: Span, kind: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def begin(facts: Facts, *, issue_id: object = None) -> Trace:
    """The trace of a run that begins; one that tells nobody where traces are off."""
    tracer = _tracer(os.getpid())
    return NONE if tracer is None else _Told(tracer, facts, issue_id)


@functools.cache
def _provider(pid: int) -> Any:
    """The exporter of this process (its threads do not survive a fork), None where traces are
    off."""
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("No traces: install the packages of requirements-tracing.txt first.")
        return None
    provider = TracerProvider(
        resource=Resource.create(
            {"service.name": os.environ.get("OTEL_SERVICE_NAME") or "paperclip"}
        )
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _tracer(pid: int) -> Tracer | None:
    provider = _provider(pid)
    return None if provider is None else provider.get_tracer("paperclip")


def close() -> None:
    """The process ends: what has not been told yet goes out, if it goes out soon."""
    if _provider.cache_info().currsize and (provider := _provider(os.getpid())) is not None:
        provider.force_flush(CLOSE_MILLISECONDS)
        provider.shutdown()
    _provider.cache_clear()
