"""The mock model for whole programs: also OpenAI's Responses and Gemini, and shell tools by need.

    python tests/mock_llm_more.py --port 8900

Directives as in `mock_llm`, and for programs that bring tools of their own:

    run=COMMAND      have the program's shell run it once, then answer; with loop=1 every turn
    error=CODE       Responses only: fail in mid-stream with this code

Every answer uses the same tokens: 1150 in (of them 1000 cached), 25 out (Gemini: and 5 thoughts).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any

from tests import mock_llm
from tests.mock_llm import (
    DIRECTIVE,
    Connection,
    Directives,
    Framing,
    Request,
    Script,
    Served,
    State,
    error_body,
    pieces,
    wants_tool,
)

RESPONSES_USAGE = {
    "input_tokens": 1150,
    "input_tokens_details": {"cached_tokens": 1000},
    "output_tokens": 25,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 1175,
}
GEMINI_USAGE = {
    "promptTokenCount": 1150,
    "candidatesTokenCount": 25,
    "totalTokenCount": 1180,
    "cachedContentTokenCount": 1000,
    "thoughtsTokenCount": 5,
}
GEMINI_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
GEMINI_STOPS = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}
CHOICE = {  # what Gemini CLI asks itself, in JSON
    "reasoning": "mock",
    "next_speaker": "user",
    "complexity_reasoning": "mock",
    "complexity_score": 10,
    "model_choice": "flash",
}
_numbers = itertools.count(1)


def shell_call(body: dict[str, Any], command: str) -> tuple[str, dict[str, Any]] | None:
    """The program's own shell tool and its arguments for `command`."""
    names = set()
    for tool in body.get("tools") or []:
        names.add(tool.get("name") or (tool.get("function") or {}).get("name") or tool.get("type"))
        names.update(f["name"] for f in tool.get("functionDeclarations") or [])
    described = {"command": command, "description": "mock"}
    for name, arguments in (
        ("Bash", described),
        ("bash", described),
        ("exec_command", {"cmd": command}),
        ("shell_command", {"command": command}),
        ("shell", {"command": ["bash", "-lc", command]}),
        ("local_shell", {"command": ["bash", "-lc", command]}),
        ("run_shell_command", described),
    ):
        if name in names:
            return name, arguments
    return None


def script_of(texts: list[str]) -> Directives:
    for text in reversed(texts):
        found = DIRECTIVE.findall(text)
        if found:
            pairs = (part.partition("=") for part in found[-1].split(";"))
            return {key.strip(): value for key, _, value in pairs}
    return {}


def _parts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [p["text"] for p in content or [] if isinstance(p, dict) and p.get("text")]


def user_texts(body: dict[str, Any]) -> list[str]:
    """What the user said, in whichever protocol."""
    if isinstance(body.get("input"), str):
        return [body["input"]]
    texts: list[str] = []
    for message in body.get("messages") or body.get("input") or body.get("contents") or []:
        if message.get("role") == "user":
            texts += _parts(message.get("content") or message.get("parts"))
    return texts


def answers_a_tool(body: dict[str, Any]) -> bool:
    last = (body.get("input") or body.get("contents") or [{}])[-1]
    if str(last.get("type") or "").endswith("_call_output"):
        return True
    return any("functionResponse" in part for part in last.get("parts") or [])


# --- OpenAI's Responses ---------------------------------------------------------------------------


def responses_script(d: Directives, body: dict[str, Any]) -> Script:
    frame, number = Framing(d), itertools.count()
    unique = next(_numbers)
    response = {
        "id": f"resp_{unique}",
        "object": "response",
        "created_at": 1_796_000_000,
        "model": body.get("model"),
        "status": "in_progress",
        "output": [],
    }

    def event(kind: str, **data: Any) -> bytes:
        return frame.event({"type": kind, "sequence_number": next(number), **data}, kind)

    before = [event("response.created", response=response)]
    item: dict[str, Any]
    if d.get("call"):
        item = {
            "type": "function_call",
            "id": f"fc_{unique}",
            "call_id": f"call_{unique}",
            "name": d["call"],
            "arguments": d["args"],
            "status": "completed",
        }
        opened = {**item, "arguments": "", "status": "in_progress"}
        middle = [
            event("response.output_item.added", output_index=0, item=opened),
            event(
                "response.function_call_arguments.delta",
                output_index=0,
                item_id=item["id"],
                delta=item["arguments"],
            ),
        ]
    else:
        text = "".join(pieces(d))
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {
            "type": "message",
            "id": f"msg_{unique}",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
        opened = {**item, "content": [], "status": "in_progress"}
        before.append(event("response.output_item.added", output_index=0, item=opened))
        middle = [
            event(
                "response.output_text.delta",
                output_index=0,
                content_index=0,
                item_id=item["id"],
                delta=piece,
            )
            for piece in pieces(d)
        ]
    done = {**response, "status": "completed", "output": [item], "usage": RESPONSES_USAGE}
    after = [event("response.output_item.done", output_index=0, item=item)]
    if d.get("stop") == "length":
        cut = {**done, "status": "incomplete"}
        cut["incomplete_details"] = {"reason": "max_output_tokens"}
        after.append(event("response.incomplete", response=cut))
    else:
        after.append(event("response.completed", response=done))
    failed = {**response, "status": "failed"}
    failed["error"] = {"code": d.get("midstream", ""), "message": "mock failed in mid-stream"}
    return Script(before, middle, after, event("response.failed", response=failed))


# --- Gemini ---------------------------------------------------------------------------------


def gemini_answer(parts: list[dict[str, Any]], reason: str = "") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    return {
        "candidates": [candidate],
        "usageMetadata": GEMINI_USAGE,
        "modelVersion": "mock",
        "responseId": "r1",
    }


def gemini_script(d: Directives, body: dict[str, Any]) -> Script:
    frame = Framing(d)
    reason = GEMINI_STOPS.get(d.get("stop", ""), "STOP")
    if d.get("call"):
        call = {"functionCall": {"name": d["call"], "args": json.loads(d["args"])}}
        return Script([], [frame.event(gemini_answer([call], "STOP"))], [])
    said = pieces(d)
    middle = [frame.event(gemini_answer([{"text": piece}])) for piece in said[:-1]]
    last = frame.event(gemini_answer([{"text": said[-1]}], reason))
    return Script([], middle, [last])


def wants_json(body: dict[str, Any]) -> bool:
    wish = body.get("generationConfig") or {}
    return wish.get("responseMimeType") == "application/json" or "responseJsonSchema" in wish


# --- the server -----------------------------------------------------------------------------


class CliConnection(Connection):
    """Speaks with whole programs, whose requests are longer and stranger."""

    def _next_request(self) -> Request | None:
        head, found, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        if found and b"transfer-encoding: chunked" in head.lower():
            body = _unchunked(rest)
            if body is None:
                return None
            kept = [ln for ln in head.split(b"\r\n") if not ln.lower().startswith(b"transfer-")]
            kept.append(b"content-length: %d" % len(body))
            self.buffer = bytearray(b"\r\n".join(kept) + b"\r\n\r\n" + body)
            head, found, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        if found and b"content-encoding: gzip" in head.lower():
            with contextlib.suppress(OSError, EOFError):
                body = gzip.decompress(rest)
                kept = [ln for ln in head.split(b"\r\n") if not ln.lower().startswith(b"content-")]
                kept.append(b"content-length: %d" % len(body))
                self.buffer = bytearray(b"\r\n".join(kept) + b"\r\n\r\n" + body)
        return super()._next_request()

    def _answer(self, request: Request) -> None:
        path = request.path.partition("?")[0]
        if request.method == "HEAD":
            self._send(200, b"", "text/plain", {})
        elif path.endswith("/count_tokens"):
            self._json(200, {"input_tokens": 1150})
        elif path.endswith(":countTokens"):
            self._json(200, {"totalTokens": 1150})
        elif request.method != "POST":
            super()._answer(request)
        elif path.endswith("/messages"):
            self._speak(request, "anthropic")
        elif path.endswith("/chat/completions"):
            self._speak(request, "openai")
        elif path.endswith("/responses"):
            self._speak(request, "responses")
        elif "generateContent" in path.rpartition(":")[2].replace("streamG", "g"):
            self._speak(request, "gemini")
        else:
            super()._answer(request)

    def _speak(self, request: Request, wire: str) -> None:
        body = request.body
        d = script_of(user_texts(body))
        if d.get("status") and self._fails_in(d, wire):
            return
        self._choose_tool(d, body, wire)
        if wire == "gemini" and wants_json(body):
            self._json(200, gemini_answer([{"text": json.dumps(CHOICE)}], "STOP"))
            return
        if wire == "gemini" and ":stream" not in request.path:
            self._json(200, gemini_answer([{"text": "".join(pieces(d))}], "STOP"))
            return
        if wire in ("anthropic", "openai") and not body.get("stream"):
            whole = mock_llm.anthropic_whole if wire == "anthropic" else mock_llm.openai_whole
            self._json(200, {"id": f"msg_{next(_numbers)}", **whole(d, body)})
            return
        make = {
            "anthropic": mock_llm.anthropic_script,
            "openai": mock_llm.openai_script,
            "responses": responses_script,
            "gemini": gemini_script,
        }[wire]
        script = make(d, body)
        unique = b"msg_%d" % next(_numbers)
        script.before = [frame.replace(b"msg_mock", unique) for frame in script.before]
        call = b"toolu_%d_" % next(_numbers)
        script.middle = [frame.replace(b"toolu_", call) for frame in script.middle]
        self._stream(script, d)

    def _choose_tool(self, d: Directives, body: dict[str, Any], wire: str) -> None:
        command = d.get("run")
        chosen = shell_call(body, command) if command else None
        if chosen is None:
            d.pop("tool", None)
            return
        name, arguments = chosen
        d["args"] = json.dumps(arguments)
        if wire in ("anthropic", "openai"):
            d["tool"] = name
            if not wants_tool(d, body):
                d.pop("tool")
        elif d.get("loop") or not answers_a_tool(body):
            d["call"] = name

    def _fails_in(self, d: Directives, wire: str) -> bool:
        if wire != "gemini":
            return self._fails(d, anthropic=wire == "anthropic")
        key = json.dumps(d, sort_keys=True)
        self.state.tries[key] += 1
        if self.state.tries[key] > int(d.get("times", 10**9)):
            return False
        status = int(d["status"])
        message = error_body(d, status, anthropic=False)["error"]["message"]
        said = {
            "code": status,
            "message": message,
            "status": GEMINI_STATUS.get(status, "INTERNAL"),
        }
        self._json(status, {"error": said})
        return True


def _unchunked(data: bytes) -> bytes | None:
    body, rest = b"", data
    while True:
        size, found, rest = rest.partition(b"\r\n")
        if not found:
            return None
        length = int(size.split(b";")[0] or b"0", 16)
        if len(rest) < length + 2:
            return None
        if length == 0:
            return body
        body += rest[:length]
        rest = rest[length + 2 :]


@contextlib.contextmanager
def serve_clis_in_thread(*, port: int = 0) -> Iterator[Served]:
    """The server in a thread of its own; its URL has no path."""
    state = State()
    ready: list[int] = []
    started = threading.Event()
    loop = asyncio.new_event_loop()

    def work() -> None:
        asyncio.set_event_loop(loop)
        made = loop.create_server(lambda: CliConnection(state), "127.0.0.1", port, backlog=128)
        server = loop.run_until_complete(made)
        ready.append(server.sockets[0].getsockname()[1])
        started.set()
        loop.run_forever()
        server.close()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()

    thread = threading.Thread(target=work, name="mock-llm-for-clis", daemon=True)
    thread.start()
    if not started.wait(10):
        raise RuntimeError("the mock did not start")
    try:
        yield Served(f"http://127.0.0.1:{ready[0]}", state)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8900)
    with serve_clis_in_thread(port=parser.parse_args().port) as served:
        print(f"mock llm for programs on {served.url}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
