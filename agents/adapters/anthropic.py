"""Anthropic's Messages, as Anthropic and compatible servers speak them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import httpx
import orjson

from agents.adapters import failures, lenient
from agents.adapters.base import Text, ToolSpec
from agents.adapters.chat import ChatAdapter, result_text
from agents.adapters.wire import Answer, Call, ChatConfig, Conversation, Quirk, Stop, Turn, Wire

STOPS: dict[str, Stop] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
    "pause_turn": "pause",
}
COUNTS = (
    "input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "output_tokens",
)


class Messages:
    """The wire format of `POST /v1/messages`, version 2023-06-01."""

    default_url = "https://api.anthropic.com/v1"
    path = "/messages"

    def address(self, base_url: str) -> str:
        """Anthropic's own programs are given its address without the /v1, so both are taken."""
        if base_url and httpx.URL(base_url).path in ("", "/"):
            return base_url.rstrip("/") + "/v1"
        return base_url or self.default_url

    def provider(self, base_url: str) -> str:
        host = httpx.URL(base_url).host
        return "anthropic" if host == "api.anthropic.com" else host

    def headers(self, key: str) -> dict[str, str]:
        version = {"anthropic-version": "2023-06-01"}
        return {**version, "x-api-key": key} if key else version

    def body(
        self, config: ChatConfig, conversation: Conversation, quirks: frozenset[Quirk]
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": config.model,
            "system": conversation.system,
            "messages": _messages(conversation),
            "stream": True,
            "max_tokens": config.max_tokens,
        }
        if config.temperature is not None and "no_temperature" not in quirks:
            body["temperature"] = min(config.temperature, 1.0)
        if conversation.tools:
            body["tools"] = [_tool(spec) for spec in conversation.tools]
        return body

    def decoder(self, answer: Answer) -> EventDecoder:
        return EventDecoder(answer)


class EventDecoder:
    """Reads the events of a message stream, and a whole `message` as if it had been one."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.complete = False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._calls: dict[int, Call] = {}
        self._usage: dict[str, Any] = {}

    def feed(self, payload: Mapping[str, Any]) -> list[Text]:
        match payload.get("type"):
            case "message_start":
                message = payload["message"]
                self.answer.model = str(message.get("model") or "")[:200]
                self._count(message.get("usage"))
            case "content_block_start":
                return self._open(int(payload["index"]), payload["content_block"])
            case "content_block_delta":
                return self._delta(int(payload["index"]), payload["delta"])
            case "message_delta":
                self._stop(payload["delta"].get("stop_reason"))
                self._count(payload.get("usage"))
            case "message_stop":
                self.complete = True
            case "error":
                raise failures.from_error_object(payload.get("error"))
            case "message":
                return self._whole(payload)
            case None if payload.get("error"):
                raise failures.from_error_object(payload["error"])
        return []

    def _open(self, index: int, block: Mapping[str, Any]) -> list[Text]:
        kept = dict(block)
        self._blocks[index] = kept
        self.answer.blocks = [self._blocks[key] for key in sorted(self._blocks)]
        if kept.get("type") == "tool_use":
            call = Call(id=str(kept.get("id") or ""), name=str(kept.get("name") or ""))
            self._calls[index] = call
            self.answer.calls = [self._calls[key] for key in sorted(self._calls)]
            if kept.get("input"):
                call.arguments = orjson.dumps(kept["input"]).decode()
        return self._said(kept.get("text")) + self._thought(kept.get("thinking"))

    def _delta(self, index: int, delta: Mapping[str, Any]) -> list[Text]:
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        match delta.get("type"):
            case "text_delta":
                block["text"] = block.get("text", "") + delta["text"]
                return self._said(delta["text"])
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
                return self._thought(delta["thinking"])
            case "signature_delta":
                block["signature"] = block.get("signature", "") + delta["signature"]
            case "input_json_delta" if index in self._calls:
                call = self._calls[index]
                call.arguments += delta.get("partial_json") or ""
        return []

    def _said(self, text: str | None) -> list[Text]:
        if not text:
            return []
        self.answer.text += text
        return [Text(text)]

    def _thought(self, text: str | None) -> list[Text]:
        if not text:
            return []
        self.answer.thinking += text
        return [Text(text, "thinking")]

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        """Usage is cumulative and comes in parts: what a later part leaves out still holds."""
        if not usage:
            return
        for name in (*COUNTS, "cache_creation"):
            if usage.get(name) is not None:
                self._usage[name] = usage[name]
        self.answer.usage = read_usage(self._usage)

    def _stop(self, reason: str | None) -> None:
        if reason:
            self.answer.stop_reason = reason[:100]
            self.answer.stop = STOPS.get(reason, "unknown")

    def _whole(self, message: Mapping[str, Any]) -> list[Text]:
        self.answer.model = str(message.get("model") or "")[:200]
        texts: list[Text] = []
        for index, block in enumerate(message["content"]):
            texts.extend(self._open(index, block))
        self._count(message.get("usage"))
        self._stop(message.get("stop_reason"))
        self.complete = True
        return texts


def read_usage(usage: Mapping[str, Any]) -> dict[str, int | None]:
    """Anthropic's usage in the names of `Usage`: its input excludes what the cache held."""
    counts = {name: _count(usage.get(name)) for name in COUNTS}
    kinds = usage.get("cache_creation") or {}
    return {
        "input_tokens": counts["input_tokens"]
        + counts["cache_read_input_tokens"]
        + counts["cache_creation_input_tokens"],
        "cache_read_tokens": counts["cache_read_input_tokens"],
        "cache_write_tokens": counts["cache_creation_input_tokens"],
        "cache_write_1h_tokens": _count(kinds.get("ephemeral_1h_input_tokens")),
        "output_tokens": counts["output_tokens"],
    }


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 <= value < 2**53 else 0


def _messages(conversation: Conversation) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": conversation.user}]
    for turn in conversation.turns:
        messages.append({"role": "assistant", "content": _blocks(turn)})
        if turn.results:
            messages.append({"role": "user", "content": _results(turn)})
    return messages


def _blocks(turn: Turn) -> list[dict[str, Any]]:
    """The answer's blocks as they came, thinking and its signature included."""
    arguments = {call.id: call.arguments for call in turn.answer.calls}
    if not turn.answer.blocks:
        return _from_elsewhere(turn.answer)
    blocks: list[dict[str, Any]] = []
    for block in turn.answer.blocks:
        if block.get("type") == "tool_use":
            block = {**block, "input": _object(arguments.get(str(block.get("id") or ""), ""))}
        if block.get("type") != "text" or block.get("text"):
            blocks.append(block)
    return blocks


def _from_elsewhere(answer: Answer) -> list[dict[str, Any]]:
    """An answer of a provider with another wire, from before the run fell back to this one."""
    said = [{"type": "text", "text": answer.text}] if answer.text else []
    return said + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _object(call.arguments)}
        for call in answer.calls
    ]


def _object(arguments: str) -> dict[str, Any]:
    try:
        parsed = lenient.loads(arguments or "{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _results(turn: Turn) -> list[dict[str, Any]]:
    return [
        {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": result_text(result),
            "is_error": result.is_error,
        }
        for call, result in turn.results
    ]


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "description": spec.description,
        "input_schema": dict(spec.parameters),
    }


class Anthropic(ChatAdapter):
    type: ClassVar[str] = "anthropic"
    label: ClassVar[str] = "Anthropic model"
    description: ClassVar[str] = "Claude, or another model behind Anthropic's Messages API."
    wire: ClassVar[Wire] = Messages()
