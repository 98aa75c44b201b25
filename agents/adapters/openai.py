"""OpenAI's chat completions, as OpenAI and dozens of compatible servers speak them.

Tolerates what those differ in: usage with the finish reason, after it, on every chunk or never;
`null` contents; tool calls interleaved by index; errors in the middle of the stream.
"""

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
    "stop": "stop",
    "eos": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "refused",
    "refusal": "refused",
}
PROVIDERS = {
    "api.openai.com": "openai",
    "api.groq.com": "groq",
    "openrouter.ai": "openrouter",
    "api.deepseek.com": "deepseek",
    "api.mistral.ai": "mistral",
    "api.x.ai": "x-ai",
    "api.together.xyz": "together",
    "api.fireworks.ai": "fireworks",
    "api.cerebras.ai": "cerebras",
    "api.perplexity.ai": "perplexity",
    "generativelanguage.googleapis.com": "google",
}
MAX_CALL_INDEX = 256


class ChatCompletions:
    """The wire format of `POST /chat/completions`."""

    default_url = "https://api.openai.com/v1"
    path = "/chat/completions"

    def address(self, base_url: str) -> str:
        return base_url or self.default_url

    def provider(self, base_url: str) -> str:
        host = httpx.URL(base_url).host
        return PROVIDERS.get(host, host)

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(
        self, config: ChatConfig, conversation: Conversation, quirks: frozenset[Quirk]
    ) -> dict[str, Any]:
        limit = "max_completion_tokens" if "max_completion_tokens" in quirks else "max_tokens"
        body: dict[str, Any] = {
            "model": config.model,
            "messages": _messages(conversation),
            "stream": True,
            limit: config.max_tokens,
        }
        if "no_stream_options" not in quirks:
            body["stream_options"] = {"include_usage": True}
        if config.temperature is not None and "no_temperature" not in quirks:
            body["temperature"] = config.temperature
        if conversation.tools:
            body["tools"] = [_tool(spec) for spec in conversation.tools]
        return body

    def decoder(self, answer: Answer) -> ChunkDecoder:
        return ChunkDecoder(answer)


class ChunkDecoder:
    """Reads `chat.completion.chunk` objects, and a whole `chat.completion` as one of them."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.complete = False  # only [DONE] or the end says so: usage may follow anything
        self._calls: dict[int, Call] = {}

    def feed(self, payload: Mapping[str, Any]) -> list[Text]:
        groq = payload.get("x_groq") or {}
        error = payload.get("error") or groq.get("error")
        if error:
            raise failures.from_error_object(error)
        answer = self.answer
        answer.model = str(payload.get("model") or answer.model)[:200]
        usage = payload.get("usage") or groq.get("usage")
        if usage:
            answer.usage = read_usage(usage)  # cumulative where repeated: the last one counts
        texts: list[Text] = []
        for choice in payload.get("choices") or ():
            if choice.get("index"):
                continue  # one answer was asked for
            if choice.get("error"):
                raise failures.from_error_object(choice["error"])
            texts.extend(self._delta(choice.get("delta") or choice.get("message") or {}))
            reason = choice.get("finish_reason")
            if reason == "error":
                raise failures.from_error_object("the provider reported an error")
            if reason:
                self._finish(str(reason))
        return texts

    def _delta(self, delta: Mapping[str, Any]) -> list[Text]:
        answer = self.answer
        texts: list[Text] = []
        thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
        if thought and isinstance(thought, str):
            answer.thinking += thought
            texts.append(Text(thought, "thinking"))
        said = _plain(delta.get("content")) or delta.get("refusal") or ""
        if said:
            answer.text += said
            texts.append(Text(said))
        for position, part in enumerate(delta.get("tool_calls") or ()):
            index = part.get("index")
            self._call_part(position if index is None else int(index), part)
        return texts

    def _call_part(self, index: int, part: Mapping[str, Any]) -> None:
        if not 0 <= index < MAX_CALL_INDEX:
            raise ValueError("tool call index")
        if index not in self._calls:
            self._calls[index] = Call()
            self.answer.calls = [self._calls[key] for key in sorted(self._calls)]
        call = self._calls[index]
        call.id = call.id or str(part.get("id") or "")
        function = part.get("function") or {}
        call.name = call.name or str(function.get("name") or "")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.arguments += arguments
        elif arguments is not None:  # some servers send the object itself
            call.arguments = orjson.dumps(arguments).decode()

    def _finish(self, reason: str) -> None:
        answer = self.answer
        answer.stop_reason = reason[:100]
        answer.stop = STOPS.get(reason, "unknown")


def read_usage(usage: Mapping[str, Any]) -> dict[str, int | None]:
    """The usage object of OpenAI and its relatives in the names of `Usage`."""
    details = usage.get("prompt_tokens_details") or {}
    completion = usage.get("completion_tokens_details") or {}
    cached = details.get("cached_tokens")
    if cached is None:
        cached = usage.get("prompt_cache_hit_tokens")  # DeepSeek
    cost = usage.get("cost")  # OpenRouter, in US dollars
    return {
        "input_tokens": _count(usage.get("prompt_tokens")),
        "cache_read_tokens": _count(cached),
        "cache_write_tokens": _count(details.get("cache_write_tokens")),
        "output_tokens": _count(usage.get("completion_tokens")),
        "reasoning_tokens": _count(completion.get("reasoning_tokens")),
        "cost_micros": _micros(cost),
    }


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < 2**53 else 0


def _micros(dollars: Any) -> int | None:
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    return round(dollars * 1_000_000) if 0 <= dollars < 1e9 else None


def _plain(content: Any) -> str:
    """Content is text or, from some servers, a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content)
    return ""


def _messages(conversation: Conversation) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": conversation.system},
        {"role": "user", "content": conversation.user},
    ]
    for turn in conversation.turns:
        messages.extend(_turn(turn))
    return messages


def _turn(turn: Turn) -> list[dict[str, Any]]:
    answer = turn.answer
    said: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if turn.results:
        said["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _valid(call.arguments)},
            }
            for call, _ in turn.results
        ]
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": result_text(result)}
        for call, result in turn.results
    ]
    return [said, *results]


def _valid(arguments: str) -> str:
    """Servers refuse a conversation whose past arguments are no JSON, even their own."""
    try:
        return orjson.dumps(lenient.loads(arguments)).decode()
    except ValueError:
        return "{}"


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": spec.name,
            "description": spec.description,
            "parameters": dict(spec.parameters),
        },
    }


class OpenAI(ChatAdapter):
    type: ClassVar[str] = "openai"
    label: ClassVar[str] = "OpenAI-compatible model"
    description: ClassVar[str] = (
        "A chat model behind OpenAI's chat completions: OpenAI, Groq, OpenRouter, DeepSeek, "
        "Mistral, or your own llama.cpp, vLLM or Ollama."
    )
    wire: ClassVar[Wire] = ChatCompletions()
