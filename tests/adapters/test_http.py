"""A web service gets one signed request and answers now or later."""

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agents import adapters
from agents.adapters.base import AnyConfig, Brief, Check, Code, Done, Note
from tests.adapters.conftest import Played, make_brief, play

HTTP = adapters.get("http")
RESET = 201  # this status is answered by half of the body and a reset


class Service:
    """A receiver that answers from a list, the last answer for ever."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = [(204, {}, b"")]
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.names: list[list[str]] = []  # of each request's headers, as often as they came
        self.url = ""

    def will(self, status: int, content: Any = b"", **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.answers.append((status, {k.replace("_", "-"): v for k, v in headers.items()}, body))

    @property
    def posts(self) -> list[tuple[str, str, dict[str, str], bytes]]:
        return [request for request in self.requests if request[0] != "HEAD"]


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            service.names.append([name.lower() for name in self.headers])
            service.requests.append((self.command, self.path, headers, self.rfile.read(length)))
            if len(service.answers) > 1:
                service.answers.pop(0)
            status, extra, body = service.answers[0]
            self.send_response(status)
            for name, value in {"content-type": "application/json", **extra}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if status == RESET:
                self.wfile.write(body[:8])
                self.wfile.flush()
                time.sleep(0.05)  # let it arrive: a reset throws away what is unread
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
            elif self.command != "HEAD":
                self.wfile.write(body)

        do_POST = do_PUT = do_HEAD = answer

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield service
    server.shutdown()
    thread.join()
    server.server_close()


def brief_for(service: Service, **config: Any) -> Brief:
    return make_brief(
        config=adapters.validate("http", {"url": service.url, **config}),
        api_key="the-run-token",
        api_url="http://127.0.0.1:8000",
        payload={"issue": {"title": "Count the boats"}},
        attempt=2,
    )


def run(service: Service, **config: Any) -> Played:
    return play(HTTP, brief_for(service, **config))


def test_the_work_is_posted_with_the_runs_token(service: Service) -> None:
    service.will(200, {"summary": "Counted.", "status": "done", "cost": 0.5})
    played = run(service)
    assert played.done == Done(summary="Counted.", status="done")
    assert played.usages[0].cost_micros == 500_000
    ((method, path, headers, body),) = service.requests
    assert (method, path) == ("POST", "/hook")
    assert headers["authorization"] == "Bearer the-run-token"
    assert headers["idempotency-key"] == "run-1:2"
    assert "webhook-signature" not in headers
    posted = json.loads(body)
    assert (posted["runId"], posted["agentId"]) == ("run-1", "agent-1")
    assert posted["companyId"] == "company-1"
    assert posted["context"]["issue"] == {"title": "Count the boats"}
    assert posted["context"]["wakeReason"] == "issue_assigned"
    assert posted["context"]["taskId"] == "issue-1"


def test_a_header_comes_once_however_the_operator_spells_it(service: Service) -> None:
    own = {"authorization": "Bearer mine", "CONTENT-type": "text/html", "X-Shop": "1"}
    assert run(service, headers=own).error is None

    (names,) = service.names
    assert len(names) == len(set(names))
    _, _, headers, _ = service.requests[0]
    assert headers["authorization"] == "Bearer the-run-token"
    assert (headers["content-type"], headers["x-shop"]) == ("application/json", "1")


@pytest.mark.parametrize("secret", ["plain words", "whsec_" + base64.b64encode(b"k" * 24).decode()])
def test_the_signature_is_that_of_standard_webhooks(secret: str, service: Service) -> None:
    brief = brief_for(service, secretRef="HOOK")
    brief = make_brief(config=brief.config, secrets={"HOOK": secret})
    assert play(HTTP, brief).error is None
    _, _, headers, body = service.requests[0]
    key = b"k" * 24 if secret.startswith("whsec_") else secret.encode()
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


def test_the_template_is_filled_as_text_and_cannot_replace_what_we_say(service: Service) -> None:
    template = {
        "who": "{{agentName}} on {{ taskIdentifier }}",
        "list": ["{{runId}}", 3],
        "unknown": "{{nothing}} {{constructor}}",
        "runId": "forged",
    }
    run(service, payloadTemplate=template)
    posted = json.loads(service.requests[0][3])
    assert posted["who"] == "Ada on ACM-1"
    assert posted["list"] == ["run-1", 3]
    assert posted["unknown"] == "{{nothing}} {{constructor}}"
    assert posted["runId"] == "run-1"


def test_accepted_means_that_the_result_comes_later(service: Service) -> None:
    service.will(202, {"summary": "not yet"})
    played = run(service, mode="callback")
    assert played.done == Done(awaiting_callback=True)


def test_no_content_is_a_success_without_words(service: Service) -> None:
    assert run(service).done == Done()


def test_plain_text_is_a_summary(service: Service) -> None:
    service.will(200, b"fine\n", content_type="text/plain; charset=utf-8")
    assert run(service).done == Done(summary="fine")


@pytest.mark.parametrize(
    ("content", "code"),
    [({"status": "finished"}, Code.BAD_RESULT), (["x"], Code.BAD_RESULT)],
)
def test_an_answer_that_is_no_result(content: Any, code: Code, service: Service) -> None:
    service.will(200, content)
    played = run(service)
    assert played.error is not None
    assert played.error.code is code


@pytest.mark.parametrize("error", ["The forge is cold.", {"message": "The forge is cold."}])
def test_a_good_status_with_an_error_inside_is_a_failure(error: Any, service: Service) -> None:
    service.will(200, {"error": error, "cost": 0.01})

    played = run(service)

    assert played.error is not None
    assert played.error.code is Code.REPORTED
    assert played.error.message == "The forge is cold."
    assert played.error.acted
    assert [usage.cost_micros for usage in played.usages] == [10_000]


def test_an_endless_answer_is_cut(service: Service) -> None:
    service.will(200, b"x" * 1_100_000)
    played = run(service)
    assert played.error is not None
    assert played.error.code is Code.OUTPUT_LIMIT


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, Code.BAD_REQUEST),
        (401, Code.AUTH_FAILED),
        (404, Code.CONFIG_INVALID),
        (500, Code.PROVIDER_OVERLOADED),
        (302, Code.CONFIG_INVALID),
    ],
)
def test_a_refusal_is_not_repeated(status: int, code: Code, service: Service) -> None:
    service.will(status, location="http://10.0.0.1/")
    played = run(service, idempotent=True)
    assert played.error is not None
    assert played.error.code is code
    assert len(service.requests) == 1


LOST = pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b" \n"),
        (200, b'{"summary": "Coun'),
        (200, b'[{"summary"'),
        (RESET, b'{"summary": "Counted."}'),
    ],
)


@LOST
def test_an_answer_that_is_lost_leaves_the_outcome_unknown(
    status: int, body: bytes, service: Service
) -> None:
    service.will(status, body)
    played = run(service)
    error = played.error
    assert error is not None
    assert (error.code, error.acted, error.unknown) == (Code.STREAM_BROKEN, True, True)
    assert error.message.endswith("Whether it did the work is not known.")
    assert len(service.requests) == 1


@LOST
def test_a_lost_answer_of_what_may_be_repeated_is_asked_for_again_and_then_given_up(
    status: int, body: bytes, service: Service
) -> None:
    service.will(status, body)
    played = run(service, idempotent=True)
    error = played.error
    assert error is not None
    assert (error.code, error.acted, error.unknown) == (Code.STREAM_BROKEN, True, False)
    assert len(service.requests) == 3
    assert {headers["idempotency-key"] for _, _, headers, _ in service.requests} == {"run-1:2"}


def test_the_answer_may_come_at_the_third_time(service: Service) -> None:
    service.will(200)
    service.will(RESET, {"summary": "lost"})
    service.will(200, {"summary": "Counted."})
    assert run(service, idempotent=True).done == Done(summary="Counted.")


def test_a_text_that_looks_like_broken_json_is_a_text(service: Service) -> None:
    service.will(200, b"{counted}", content_type="text/plain")
    assert run(service).done == Done(summary="{counted}")


def test_what_may_be_repeated_is_repeated_with_the_same_key(service: Service) -> None:
    service.will(503)
    service.will(503)
    service.will(200, {"summary": "ok"})
    played = run(service, idempotent=True)
    assert played.done == Done(summary="ok")
    assert {headers["idempotency-key"] for _, _, headers, _ in service.requests} == {"run-1:2"}


def test_what_may_not_be_repeated_is_not(service: Service) -> None:
    service.will(503)
    assert run(service).error is not None
    assert len(service.requests) == 1


def test_a_silent_service_leaves_the_outcome_unknown() -> None:
    service = Service()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and nobody answers
        service.url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        played = run(service, timeoutSec=0.2)
    assert played.error is not None
    assert (played.error.code, played.error.acted) == (Code.TIMED_OUT, True)


def test_a_service_that_is_not_there() -> None:
    service = Service()
    service.url = "http://127.0.0.1:9/"
    played = run(service)
    assert played.error is not None
    assert (played.error.code, played.error.acted) == (Code.CONNECT_FAILED, False)
    assert "127.0.0.1:9:" in played.error.message
    parsed = HTTP.Config.model_validate({"url": service.url})
    (reach,) = _tested(parsed)
    assert not reach.ok
    assert "connect to 127.0.0.1:9:" in reach.message


def test_who_watches_is_told_that_the_service_is_asked(service: Service) -> None:
    service.will(202)
    played = run(service)
    assert [type(event).__name__ for event in played.events] == ["Started", "Note", "Done"]
    assert played.of(Note)[0].text == "Waiting for the service's answer."
    assert played.done is not None
    assert played.done.awaiting_callback


@pytest.mark.parametrize(("status", "ok"), [(200, True), (405, True), (401, True), (404, False)])
def test_the_test_asks_without_posting(status: int, ok: bool, service: Service) -> None:
    service.will(status)
    parsed = HTTP.Config.model_validate({"url": service.url, "secretRef": "HOOK"})

    async def work() -> list:
        try:
            return await HTTP.test(parsed, {"HOOK": "secret"})
        finally:
            await HTTP.aclose()

    signature, reach = asyncio.run(work())
    assert f"127.0.0.1:{service.url.split(':')[2].split('/')[0]} answers" in reach.message
    assert signature.ok
    assert reach.ok is ok
    assert service.posts == []


def _tested(parsed: AnyConfig) -> list[Check]:
    async def work() -> list[Check]:
        adapter = type(HTTP)()
        try:
            return await adapter.test(parsed, {})
        finally:
            await adapter.aclose()

    return asyncio.run(work())
