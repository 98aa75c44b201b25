"""Django's WSGI handler inside the ASGI server."""

import asyncio
import io
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from paperclip.bridge import BODY_LIMIT_BYTES, Bridge, make_environ

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def scope(method: str = "GET", path: str = "/", **changes: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "query_string": b"",
        "headers": [],
        "server": ("127.0.0.1", 8000),
        "client": ("192.0.2.7", 4711),
        **changes,
    }


class Exchange:
    """One request to a bridge, and what came back."""

    def __init__(self, request: dict[str, Any], *body: bytes) -> None:
        self.request = request
        self.parts = list(body) or [b""]
        self.sent: list[dict[str, Any]] = []
        self.leave_after: int | None = None

    async def receive(self) -> dict[str, Any]:
        if not self.parts:
            return {"type": "http.disconnect"}
        part = self.parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(self.parts)}

    async def send(self, message: Any) -> None:
        if self.leave_after is not None and len(self.sent) >= self.leave_after:
            raise ConnectionResetError
        self.sent.append(dict(message))

    async def through(self, bridge: Bridge) -> "Exchange":
        await bridge(self.request, self.receive, self.send)
        return self

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return list(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])


def ask(application: Application, request: dict[str, Any], *body: bytes) -> Exchange:
    bridge = Bridge(application)
    try:
        return asyncio.run(Exchange(request, *body).through(bridge))
    finally:
        bridge.close()


def echo(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
    start("200 OK", [("Content-Type", "text/plain"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
    return [environ["wsgi.input"].read()]


class Streamed:
    """A response in pieces that notes when it is closed."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = iter(pieces)
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        return self.pieces

    def close(self) -> None:
        self.closed.set()


def test_a_body_that_arrives_in_parts_is_read_as_one() -> None:
    answer = ask(echo, scope("POST"), b"first ", b"second")

    assert answer.status == 200
    assert answer.body == b"first second"


def test_a_body_that_is_whole_is_not_waited_for_again() -> None:
    exchange = ask(echo, scope("POST", headers=[(b"content-length", b"5")]), b"whole", b"")

    assert (exchange.status, exchange.body) == (200, b"whole")
    assert exchange.parts == [b""]


def test_repeated_response_headers_stay_apart() -> None:
    answer = ask(echo, scope())

    cookies = [value for name, value in answer.headers if name == b"set-cookie"]
    assert cookies == [b"a=1", b"b=2"]


def test_a_body_over_the_limit_is_refused_while_it_arrives() -> None:
    part = b"x" * (BODY_LIMIT_BYTES // 2)
    answer = ask(echo, scope("POST"), part, part, b"x")

    assert answer.status == 413
    assert b'"code": "body_too_large"' in answer.body


def test_a_body_that_is_announced_too_large_is_not_read() -> None:
    headers = [(b"content-length", str(BODY_LIMIT_BYTES + 1).encode())]
    exchange = ask(echo, scope("POST", headers=headers), b"never read")

    assert exchange.status == 413
    assert exchange.parts == [b"never read"]


def test_a_body_of_exactly_the_limit_passes() -> None:
    assert len(ask(echo, scope("POST"), b"x" * BODY_LIMIT_BYTES).body) == BODY_LIMIT_BYTES


def test_head_gets_the_headers_only() -> None:
    def page(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        start("200 OK", [("Content-Length", "4")])
        return [b"page"]

    answer = ask(page, scope("HEAD"))

    assert answer.body == b""
    assert (b"content-length", b"4") in answer.headers


def test_a_large_response_arrives_whole_and_is_closed() -> None:
    streamed = Streamed(b"%04d" % number * 1024 for number in range(500))

    def export(environ: dict[str, Any], start: Callable[..., Any]) -> Streamed:
        start("200 OK", [])
        return streamed

    answer = ask(export, scope())

    assert answer.body == b"".join(b"%04d" % number * 1024 for number in range(500))
    assert answer.sent[-1].get("more_body", False) is False
    assert streamed.closed.is_set()


def test_a_reader_who_leaves_ends_the_response() -> None:
    taken: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(10_000):
            taken.append(number)
            yield b"x" * 65_536

    streamed = Streamed(pieces())

    def export(environ: dict[str, Any], start: Callable[..., Any]) -> Streamed:
        start("200 OK", [])
        return streamed

    exchange = Exchange(scope())
    exchange.leave_after = 2
    bridge = Bridge(export)
    asyncio.run(exchange.through(bridge))
    bridge.close()

    assert streamed.closed.is_set()
    assert len(taken) < 100


def test_a_client_who_leaves_before_the_body_is_whole_is_not_answered() -> None:
    exchange = Exchange(scope("POST"))
    exchange.parts = []

    bridge = Bridge(echo)
    asyncio.run(exchange.through(bridge))
    bridge.close()

    assert exchange.sent == []


def test_whoever_comes_to_a_full_house_is_asked_to_try_again() -> None:
    busy, go_on = threading.Event(), threading.Event()

    def slow(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        busy.set()
        go_on.wait(10)
        start("200 OK", [])
        return [b"done"]

    async def crowd() -> tuple[list[Exchange], Exchange]:
        bridge = Bridge(slow, threads=1, waiting=1)
        inside = [asyncio.create_task(Exchange(scope()).through(bridge)) for _ in range(2)]
        await asyncio.to_thread(busy.wait, 10)
        refused = await Exchange(scope()).through(bridge)
        go_on.set()
        answered = [await task for task in inside]
        bridge.close()
        return answered, refused

    answered, refused = asyncio.run(crowd())

    assert [exchange.status for exchange in answered] == [200, 200]
    assert refused.status == 503
    assert (b"retry-after", b"1") in refused.headers


def test_an_application_that_raises_is_a_plain_500() -> None:
    def broken(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        raise ValueError("no good")

    answer = ask(broken, scope())

    assert answer.status == 500
    assert b"no good" not in answer.body


def test_the_path_reaches_django_as_the_bytes_that_were_sent() -> None:
    environ = make_environ(scope(path="/ü", raw_path=b"/%C3%BC"), io.BytesIO(), 0)

    assert environ["PATH_INFO"].encode("latin-1") == "/ü".encode()
    assert environ["REMOTE_ADDR"] == "192.0.2.7"


def test_headers_that_would_pass_for_others_are_dropped() -> None:
    headers = [(b"x_forwarded_proto", b"https"), (b"proxy", b"http://evil"), (b"host", b"here")]
    environ = make_environ(scope(headers=headers), io.BytesIO(), 0)

    assert environ["HTTP_HOST"] == "here"
    assert "HTTP_X_FORWARDED_PROTO" not in environ
    assert "HTTP_PROXY" not in environ


def test_cookies_that_come_in_several_headers_are_joined() -> None:
    headers = [(b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"accept", b"x"), (b"accept", b"y")]
    environ = make_environ(scope(headers=headers), io.BytesIO(), 0)

    assert environ["HTTP_COOKIE"] == "a=1; b=2"
    assert environ["HTTP_ACCEPT"] == "x,y"


@pytest.mark.parametrize(
    ("method", "path", "accept", "native"),
    [
        ("GET", "/events", b"text/event-stream", True),
        ("GET", "/api/heartbeat-runs/0192/stream", b"*/*", True),
        ("GET", "/api/heartbeat-runs/0192", b"*/*", False),
        ("POST", "/api/agent-tasks", b"application/json, text/event-stream", True),
        ("POST", "/api/agent-tasks", b"application/json", False),
        ("POST", "/events", b"text/event-stream", False),
    ],
)
def test_only_streams_go_around_django(method: str, path: str, accept: bytes, native: bool) -> None:
    from paperclip import asgi

    assert asgi.is_stream(scope(method, path, headers=[(b"accept", accept)])) is native


def test_streams_end_in_good_order_when_the_server_is_about_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from paperclip import asgi

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    async def watch() -> Exchange:
        open_streams = asgi._Streams()
        exchange = Exchange(scope(path="/events"))
        viewer = asyncio.create_task(
            open_streams.serve(exchange.request, exchange.receive, exchange.send)
        )
        while not exchange.sent:
            await asyncio.sleep(0)
        open_streams.end()
        await viewer
        return exchange

    monkeypatch.setattr("paperclip.streams.app", endless)
    exchange = asyncio.run(watch())

    assert exchange.sent[-1] == {"type": "http.response.body", "body": b""}


class Slow(Exchange):
    """A client that has not sent the rest of its body yet."""

    def __init__(self, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(scope("POST", headers=list(headers)))
        self.begun, self.rest = asyncio.Event(), asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if not self.begun.is_set():
            self.begun.set()
            return {"type": "http.request", "body": b"first ", "more_body": True}
        await self.rest.wait()
        return {"type": "http.request", "body": b"rest", "more_body": False}


def test_bodies_that_come_slowly_keep_no_place_from_others() -> None:
    async def story() -> tuple[list[Exchange], Exchange]:
        bridge = Bridge(echo, threads=1, waiting=1)
        slow = [Slow() for _ in range(5)]
        sending = [asyncio.create_task(one.through(bridge)) for one in slow]
        for one in slow:
            await one.begun.wait()
        quick = await Exchange(scope("POST"), b"quick").through(bridge)
        for one, task in zip(slow, sending, strict=True):
            one.rest.set()
            await task
        bridge.close()
        return list(slow), quick

    slow, quick = asyncio.run(story())

    assert (quick.status, quick.body) == (200, b"quick")
    assert [(one.status, one.body) for one in slow] == [(200, b"first rest")] * 5


@pytest.mark.parametrize("header", [(b"content-length", b"999999"), (b"transfer-encoding", b"x")])
def test_only_so_many_large_bodies_arrive_at_a_time(header: tuple[bytes, bytes]) -> None:
    async def story() -> tuple[Exchange, Exchange, Exchange]:
        bridge = Bridge(echo, arriving_large=1)
        first = Slow(header)
        sending = asyncio.create_task(first.through(bridge))
        await first.begun.wait()
        second = await Exchange(scope("POST", headers=[header]), b"large").through(bridge)
        small = await Exchange(scope("POST"), b"small").through(bridge)
        first.rest.set()
        await sending
        bridge.close()
        return first, second, small

    first, second, small = asyncio.run(story())

    assert (first.status, second.status, small.status) == (200, 503, 200)
