"""Runs as traces under the names of OpenTelemetry's conventions; off unless somebody wants them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agents.adapters import base
from agents.models import HeartbeatRun
from paperclip import tracing
from tests import factories
from tests.engine import puppet as puppets
from tests.engine.conftest import data_dir, during, pia, puppet, until  # noqa: F401


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", lambda pid: provider.get_tracer("test"))
    return exporter


class Facts:
    run_id, agent_id, company_id = "r1", "a1", "c1"
    agent_name, adapter_type, attempt = "Ada", "openai", 2


USAGE = base.Usage(
    call=1, provider="openai", model="big-2", input_tokens=90, cache_read_tokens=40, output_tokens=7
)


def tell(trace: tracing.Trace) -> None:
    trace.see(base.Started(model="big"))
    trace.see(USAGE)
    trace.see(base.Step(id="t1", name="comment", phase="start", input={"secret": "word"}))
    trace.see(base.Text("I have said a secret word."))
    trace.see(base.Step(id="t1", name="comment", phase="end", output="word", is_error=True))


def by_name(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans.get_finished_spans()}


def test_a_run_its_calls_and_its_steps_are_spans_of_one_trace(spans):
    trace = tracing.begin(Facts(), issue_id="i1")
    tell(trace)
    trace.end(status="failed", code="idle")
    trace.end(status="succeeded")  # too late
    trace.see(USAGE)
    found = by_name(spans)
    assert set(found) == {"invoke_agent Ada", "chat big-2", "execute_tool comment"}
    run, chat, step = found["invoke_agent Ada"], found["chat big-2"], found["execute_tool comment"]
    assert {chat.parent.span_id, step.parent.span_id} == {run.context.span_id}
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert run.attributes["gen_ai.conversation.id"] == "i1"
    assert run.attributes["paperclip.run.id"] == "r1"
    assert run.attributes["error.type"] == "idle"
    assert not run.status.is_ok
    assert chat.attributes["gen_ai.request.model"] == "big"
    assert chat.attributes["gen_ai.response.model"] == "big-2"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 90
    assert chat.attributes["gen_ai.usage.cache_read.input_tokens"] == 40
    assert chat.attributes["gen_ai.usage.output_tokens"] == 7
    assert step.attributes["gen_ai.tool.call.id"] == "t1"
    assert step.attributes["error.type"] == "tool_error"
    assert run.start_time <= chat.start_time <= chat.end_time <= step.start_time <= run.end_time


def test_what_was_said_is_not_told(spans):
    trace = tracing.begin(Facts())
    tell(trace)
    trace.end(status="succeeded")
    assert "word" not in "".join(span.to_json() for span in spans.get_finished_spans())


def test_a_step_that_never_ended_ends_with_its_run(spans):
    trace = tracing.begin(Facts())
    trace.see(base.Step(id="t1", name="shell", phase="start"))
    trace.end(status="lost")
    assert by_name(spans)["execute_tool shell"].attributes["error.type"] == "unfinished"


def test_a_step_of_which_only_the_end_is_told_has_its_length(spans):
    trace = tracing.begin(Facts())
    trace.see(base.Step(id="t1", name="shell", phase="end", duration_ms=1500))
    trace.end(status="succeeded")
    step = by_name(spans)["execute_tool shell"]
    assert step.end_time - step.start_time == 1_500_000_000


@pytest.mark.django_db(transaction=True)
def test_a_run_of_the_engine_is_traced(spans, during, pia, puppet, acme):  # noqa: F811
    issue = factories.issue(acme, assignee=pia)
    run = factories.run(pia, issue)
    puppet.play = puppets.finish(
        base.Started(model="big"),
        USAGE,
        base.Step(id="1", name="look", phase="start"),
        base.Step(id="1", name="look", phase="end", output="x"),
    )

    async def watch(shift):
        await until(lambda: HeartbeatRun.objects.get(pk=run.pk).status == "succeeded")

    during(watch)
    found = by_name(spans)
    assert set(found) == {"invoke_agent Pia", "chat big-2", "execute_tool look"}
    assert found["invoke_agent Pia"].attributes["paperclip.issue.id"] == str(issue.pk)
    assert found["invoke_agent Pia"].attributes["paperclip.run.status"] == "succeeded"


# --- over the wire ---------------------------------------------------------------------------


@pytest.fixture
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector on loopback, and what it was sent."""
    received: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def fresh() -> Iterator[None]:
    tracing._provider.cache_clear()
    yield
    tracing.close()


def test_spans_go_to_the_endpoint_that_is_set(monkeypatch, collector, fresh):
    address, received = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    trace = tracing.begin(Facts())
    tell(trace)
    trace.end(status="succeeded")
    tracing.close()
    sent = [
        span.name
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert sorted(sent) == ["chat big-2", "execute_tool comment", "invoke_agent Ada"]
    (service,) = {
        one.value.string_value
        for request in received
        for resource in request.resource_spans
        for one in resource.resource.attributes
        if one.key == "service.name"
    }
    assert service == "paperclip"


def test_without_an_endpoint_nobody_is_told(monkeypatch, fresh):
    for name in tracing.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert tracing.begin(Facts()) is tracing.NONE


def test_without_the_packages_it_says_so_once_and_runs_go_on(monkeypatch, caplog, fresh):
    import sys

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert tracing.begin(Facts()) is tracing.NONE
    assert tracing.begin(Facts()) is tracing.NONE
    assert len(caplog.records) == 1
