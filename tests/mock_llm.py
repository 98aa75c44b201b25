"""A language model that is none: OpenAI's chat completions and Anthropic's Messages on loopback.

    python tests/mock_llm.py --port 8900

What it answers is written in the newest prompt that has a directive, as
`[[mock:key=value;key=value]]`:

    text=…           the answer; words=N for N words of filler     tool=NAME;args=JSON  call a tool
    clock=1          with chunks=N: N pieces that say when each was sent, in seconds since 1970
    chunks=N         cut it into N pieces (default 4)              once, then answer;
    delay=S  ttft=S  seconds between pieces, before the first      loop=1     do so every turn
    status=429       answer with this status                       msg=… code=…  of its error body
    times=N          only the first N times                        body=…     a raw error body
    retry_after=…    header of the error                           stop=length|max_tokens|refusal|…
    stall=S          wait after the first piece; with keepalive=1 sending comments
    reset=1 trunc=1  drop the connection, or end cleanly, after half of the pieces
    midstream=TYPE   an error event after half of the pieces       thinking=…  think first
    crlf=1 cr=1 bom=1 comments=1 multiline=1 splitutf8=1 ls=1      the framing's odd forms
    noval=1          no usage    usage=every|finish                on every chunk, with the reason
    nodone=1         no [DONE]   whole=1                           answer without streaming
    cut=empty|half|reset  of such an answer: nothing, its first half, or a reset after that;
                     with times=N only the first N times
    hold=1           keep the connection open after the end

One process, no HTTP library: enough for 500 streams at 20 tokens a second beside the tested code.
`GET /__state` tells open streams and requests; `serve_in_thread()` runs it inside a test.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

DIRECTIVE = re.compile(r"\[\[mock:(.*?)\]\]", re.S)
DEFAULT_TEXT = "Hello from the mock: naïve café ☕ 日本."
SEPARATORS_TEXT = "a\u2028b\u0085c\u000bd"
WORDS = [
    "the",
    "agents",
    "plan",
    "their",
    "work",
    "and",
    "report",
    "what",
    "they",
    "found",
    "before",
    "they",
    "go",
    "on",
]
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Slow Down"}
OPENAI_USAGE = {
    "prompt_tokens": 1150,
    "completion_tokens": 25,
    "total_tokens": 1175,
    "prompt_tokens_details": {"cached_tokens": 1000},
    "completion_tokens_details": {"reasoning_tokens": 5},
}
ANTHROPIC_USAGE = {
    "input_tokens": 120,
    "cache_creation_input_tokens": 30,
    "cache_read_input_tokens": 1000,
    "output_tokens": 1,
}
SPLIT_BYTES = 7
CLOCK = "@the-moment-sent@"  # as long as what takes its place

Directives = dict[str, str]


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class State:
    """What the server saw. Read it from any thread."""

    requests: list[Request] = field(default_factory=list)
    tries: Counter[str] = field(default_factory=Counter)
    open_streams: int = 0
    most_streams: int = 0
    total: int = 0
    keep: int = 2000  # requests remembered with their bodies

    def note(self, request: Request) -> None:
        self.total += 1
        if len(self.requests) < self.keep:
            self.requests.append(request)

    @property
    def posts(self) -> list[Request]:
        return [request for request in self.requests if request.method == "POST"]


@dataclass
class Served:
    url: str
    state: State


# --- what is said ------------------------------------------------------------------------------


def directives(body: dict[str, Any]) -> Directives:
    """Of the newest message that has any."""
    for message in reversed(body.get("messages") or []):
        found = DIRECTIVE.findall(_plain(message.get("content")))
        if found:
            pairs = (part.partition("=") for part in found[-1].split(";"))
            return {key.strip(): value for key, _, value in pairs}
    return {}


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return ""


def _answers_a_tool(body: dict[str, Any]) -> bool:
    last = (body.get("messages") or [{}])[-1]
    content = last.get("content")
    blocks = content if isinstance(content, list) else []
    return last.get("role") == "tool" or any(b.get("type") == "tool_result" for b in blocks)


def pieces(d: Directives) -> list[str]:
    if "clock" in d:
        return [f"{CLOCK} "] * int(d.get("chunks", 4))
    if "words" in d:
        return [f"{WORDS[i % len(WORDS)]} " for i in range(int(d["words"]))]
    text = SEPARATORS_TEXT if d.get("ls") else d.get("text", DEFAULT_TEXT)
    count = max(1, min(int(d.get("chunks", 4)), len(text)))
    size = -(-len(text) // count)
    return [text[i : i + size] for i in range(0, len(text), size)]


def wants_tool(d: Directives, body: dict[str, Any]) -> bool:
    if not d.get("tool") or not body.get("tools"):
        return False
    return bool(d.get("loop")) or not _answers_a_tool(body)


@dataclass
class Script:
    """The frames of one answer: those before the text, one for each piece, those after it."""

    before: list[bytes]
    middle: list[bytes]
    after: list[bytes]
    error: bytes = b""


class Framing:
    def __init__(self, d: Directives) -> None:
        self.d = d
        self.end = "\r\n" if d.get("crlf") else "\r" if d.get("cr") else "\n"

    def event(self, data: Any, name: str = "") -> bytes:
        lines = [": keep-alive", ""] if self.d.get("comments") else []
        if name:
            lines.append(f"event: {name}")
        if not isinstance(data, str):
            indent = 1 if self.d.get("multiline") else None
            data = json.dumps(data, ensure_ascii=False, indent=indent)
        lines.extend(f"data: {line}" for line in data.split("\n"))
        return (self.end.join([*lines, "", ""])).encode()


def openai_script(d: Directives, body: dict[str, Any]) -> Script:
    frame = Framing(d)
    model = body.get("model", "mock")
    base = {"id": "chatcmpl-mock", "object": "chat.completion.chunk", "model": model}
    every = d.get("usage") == "every"

    def chunk(delta: dict[str, Any], reason: str | None = None, **extra: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        if every:
            extra = {"usage": OPENAI_USAGE, **extra}
        return frame.event({**base, "choices": [choice], **extra})

    before = [chunk({"role": "assistant", "content": None})]
    if d.get("thinking"):
        before.append(chunk({"reasoning_content": d["thinking"]}))
    reason = d.get("stop", "stop")
    if wants_tool(d, body):
        reason = "tool_calls"
        middle = [chunk({"tool_calls": [part]}) for part in _tool_parts(d)]
    else:
        middle = [chunk({"content": piece}) for piece in pieces(d)]
    finish_extra = {"usage": OPENAI_USAGE} if d.get("usage") == "finish" else {}
    after = [chunk({}, reason, **finish_extra)]
    asked = (body.get("stream_options") or {}).get("include_usage")
    if asked and not d.get("noval") and not d.get("usage"):
        after.append(frame.event({**base, "choices": [], "usage": OPENAI_USAGE}))
    if not d.get("nodone"):
        after.append(frame.event("[DONE]"))
    kind = d.get("midstream", "")
    error = frame.event({"error": {"message": "mock error", "type": kind, "code": d.get("code")}})
    return Script(before, middle, after, error)


def _tool_parts(d: Directives) -> list[dict[str, Any]]:
    """Two calls would be interleaved by index; `tool=a,b` asks for both."""
    names = d["tool"].split(",")
    args = d.get("args", "{}")
    parts: list[dict[str, Any]] = [
        {"index": i, "id": f"call_{i}", "type": "function", "function": {"name": name}}
        for i, name in enumerate(names)
    ]
    for begin in range(0, len(args), 9):
        for i in range(len(names)):
            parts.append({"index": i, "function": {"arguments": args[begin : begin + 9]}})
    return parts


def anthropic_script(d: Directives, body: dict[str, Any]) -> Script:
    frame = Framing(d)

    def event(kind: str, **data: Any) -> bytes:
        return frame.event({"type": kind, **data}, kind)

    def delta(index: int, kind: str, **data: Any) -> bytes:
        return event("content_block_delta", index=index, delta={"type": kind, **data})

    def opened(index: int, **block: Any) -> bytes:
        return event("content_block_start", index=index, content_block=block)

    message = {
        "id": "msg_mock",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "mock"),
        "content": [],
        "stop_reason": None,
        "usage": {} if d.get("noval") else ANTHROPIC_USAGE,
    }
    before = [event("message_start", message=message), event("ping")]
    index = 0
    if d.get("thinking"):
        before += [
            opened(0, type="thinking", thinking="", signature=""),
            delta(0, "thinking_delta", thinking=d["thinking"]),
            delta(0, "signature_delta", signature="c2ln"),
            event("content_block_stop", index=0),
        ]
        index = 1
    stop = d.get("stop", "end_turn")
    if wants_tool(d, body):
        stop = "tool_use"
        middle = []
        args = d.get("args", "{}")
        for name in d["tool"].split(","):
            middle.append(opened(index, type="tool_use", id=f"toolu_{index}", name=name, input={}))
            for begin in range(0, len(args), 9):
                part = args[begin : begin + 9]
                middle.append(delta(index, "input_json_delta", partial_json=part))
            middle.append(event("content_block_stop", index=index))
            index += 1
        closing = []
    else:
        before.append(opened(index, type="text", text=""))
        middle = [delta(index, "text_delta", text=piece) for piece in pieces(d)]
        closing = [event("content_block_stop", index=index)]
    usage = {} if d.get("noval") else {"output_tokens": 25}
    after = [
        *closing,
        event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=usage),
        event("message_stop"),
    ]
    error = event("error", error={"type": d.get("midstream", ""), "message": "mock error"})
    return Script(before, middle, after, error)


def openai_whole(d: Directives, body: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": "".join(pieces(d))}
    choice = {"index": 0, "message": message, "finish_reason": d.get("stop", "stop")}
    return {"model": body.get("model"), "choices": [choice], "usage": OPENAI_USAGE}


def anthropic_whole(d: Directives, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [{"type": "text", "text": "".join(pieces(d))}],
        "stop_reason": d.get("stop", "end_turn"),
        "usage": {**ANTHROPIC_USAGE, "output_tokens": 25},
    }


def error_body(d: Directives, status: int, *, anthropic: bool) -> dict[str, Any]:
    kinds = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
    error = {
        "type": kinds.get(status, "invalid_request_error" if status < 500 else "api_error"),
        "message": d.get("msg", f"mock says {status}"),
        "code": d.get("code"),
    }
    return {"type": "error", "error": error} if anthropic else {"error": error}


# --- how it is sent ------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """HTTP/1.1 as far as a client of a model needs it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.buffer = bytearray()
        self.transport: asyncio.Transport
        self.timer: asyncio.TimerHandle | None = None
        self.streaming = False
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer:
            self.timer.cancel()
        self._stream_over()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (request := self._next_request()) is not None:
            self.state.note(request)
            self._answer(request)

    def _next_request(self) -> Request | None:
        head, found, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        if not found:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return None
        self.buffer = bytearray(rest[length:])
        method, path, _ = first.split(" ", 2)
        try:
            body = json.loads(rest[:length] or b"{}")
        except ValueError:
            body = {}
        return Request(method, path, headers, body)

    def _answer(self, request: Request) -> None:
        path = request.path.partition("?")[0].removeprefix("/v1")
        if path == "/models":
            self._json(200, {"object": "list", "data": [{"id": "mock"}, {"id": "mock-2"}]})
        elif path == "/health":
            self._json(200, {"status": "ok"})
        elif path == "/__state":
            state = self.state
            told = {"open": state.open_streams, "most": state.most_streams, "total": state.total}
            self._json(200, told)
        elif path in ("/chat/completions", "/messages") and request.method == "POST":
            self._model(request, anthropic=path == "/messages")
        else:
            self._json(404, {"error": {"message": f"no such path {path}"}})

    def _model(self, request: Request, *, anthropic: bool) -> None:
        d = directives(request.body)
        if d.get("status") and self._fails(d, anthropic=anthropic):
            return
        refused = d.get("refuse")  # a request key that this server does not know
        if refused and refused in request.body:
            message = f"Unsupported parameter: {refused}."
            if refused == "max_tokens":
                message += " Use 'max_completion_tokens' instead."
            self._json(400, error_body({"msg": message}, 400, anthropic=anthropic))
            return
        if d.get("whole"):
            make = anthropic_whole if anthropic else openai_whole
            whole = make(d, request.body)
            if not ("cut" in d and self._cuts(d, json.dumps(whole).encode())):
                self._json(200, whole)
            return
        script = (anthropic_script if anthropic else openai_script)(d, request.body)
        self._stream(script, d)

    def _counts(self, d: Directives) -> bool:
        """Does it go wrong this time, too?"""
        key = json.dumps(d, sort_keys=True)
        self.state.tries[key] += 1
        return self.state.tries[key] <= int(d.get("times", 10**9))

    def _fails(self, d: Directives, *, anthropic: bool) -> bool:
        if not self._counts(d):
            return False
        status = int(d["status"])
        headers = {"retry-after": d["retry_after"]} if "retry_after" in d else {}
        if "location" in d:
            headers["location"] = d["location"]
        if "body" in d:
            self._send(status, d["body"].encode(), "text/html", headers)
        else:
            self._json(status, error_body(d, status, anthropic=anthropic), headers)
        return True

    def _cuts(self, d: Directives, whole: bytes) -> bool:
        if not self._counts(d):
            return False
        half = whole[: len(whole) // 2]
        if d["cut"] == "reset":
            head = (
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            )
            self.transport.write(head % len(whole) + half)
            self._reset()
        else:
            self._send(200, half if d["cut"] == "half" else b"", "application/json", {})
        return True

    def _json(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(content).encode(), "application/json", headers or {})

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str]) -> None:
        lines = [
            f"HTTP/1.1 {status} {REASONS.get(status, 'Mock')}",
            f"content-type: {kind}",
            f"content-length: {len(body)}",
            "request-id: req_mock",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self.transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    # --- streams: a timer a piece, no task ---

    def _stream(self, script: Script, d: Directives) -> None:
        self.streaming = True
        self.state.open_streams += 1
        self.state.most_streams = max(self.state.most_streams, self.state.open_streams)
        self.script, self.d, self.position = script, d, 0
        self.delay = float(d.get("delay", 0))
        self.half = len(script.middle) // 2
        self._later(float(d.get("ttft", 0)), self._begin)

    def _later(self, seconds: float, call: Any) -> None:
        self.timer = self.loop.call_later(seconds, call) if seconds else None
        if not seconds:
            call()

    def _begin(self) -> None:
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"cache-control: no-cache\r\nrequest-id: req_mock\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        if self.d.get("bom"):
            self._chunk(b"\xef\xbb\xbf")
        self._chunk(b"".join(self.script.before))
        self._piece()

    def _piece(self) -> None:
        if self.transport.is_closing():
            return
        d = self.d
        cut = self.position == max(1, self.half)
        if cut and d.get("reset"):
            self._reset()
        elif cut and d.get("trunc"):
            self._end(b"")
        elif cut and d.get("midstream"):
            self._end(self.script.error)
        elif self.position == 1 and d.get("stall"):
            self._stall(float(d.pop("stall")))
        elif self.position < len(self.script.middle):
            frame = self.script.middle[self.position]
            if "clock" in d:
                frame = frame.replace(CLOCK.encode(), f"{time.time():017.6f}".encode())
            self.position += 1
            self._chunk(frame)
            if self.delay:
                self._later(self.delay, self._piece)
            else:
                self.loop.call_soon(self._piece)
        else:
            self._end(b"".join(self.script.after))

    def _stall(self, seconds: float) -> None:
        if seconds <= 0:
            self._piece()
            return
        if self.d.get("keepalive"):
            self._chunk(b": keep-alive\n\n")
        self.timer = self.loop.call_later(0.05, self._stall, seconds - 0.05)

    def _chunk(self, data: bytes) -> None:
        if not data:
            return
        step = SPLIT_BYTES if self.d.get("splitutf8") else len(data)
        for begin in range(0, len(data), step):
            part = data[begin : begin + step]
            self.transport.write(b"%x\r\n%b\r\n" % (len(part), part))

    def _end(self, last: bytes) -> None:
        self._chunk(last)
        self._stream_over()
        if not self.d.get("hold"):
            self.transport.write(b"0\r\n\r\n")

    def _reset(self) -> None:
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Let what was written reach the client first: a reset throws away what is unread.
        self.loop.call_later(0.02, self.transport.abort)

    def _stream_over(self) -> None:
        if self.streaming:
            self.streaming = False
            self.state.open_streams -= 1


async def serve(state: State, *, port: int = 0) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Connection(state), "127.0.0.1", port, backlog=1024)


@contextlib.contextmanager
def serve_in_thread(*, port: int = 0) -> Iterator[Served]:
    """The server in a thread of its own, for as long as the block lasts."""
    state = State()
    ready: list[int] = []
    started = threading.Event()
    loop = asyncio.new_event_loop()

    def work() -> None:
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(serve(state, port=port))
        ready.append(server.sockets[0].getsockname()[1])
        started.set()
        loop.run_forever()
        server.close()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()

    thread = threading.Thread(target=work, name="mock-llm", daemon=True)
    thread.start()
    if not started.wait(10):
        raise RuntimeError("the mock did not start")
    try:
        yield Served(f"http://127.0.0.1:{ready[0]}/v1", state)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


async def _forever(port: int) -> None:
    server = await serve(State(keep=0), port=port)
    print(f"mock llm on http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8900)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_forever(parser.parse_args().port))
