"""How one kind of chat provider is spoken to, and the conversation as no provider writes it.

Types only: `line.py` moves the bytes, `chat.py` loops over the turns, and `openai.py` and
`anthropic.py` each write and read one wire format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import UUID

from pydantic import Field, model_validator

from agents.adapters import fields
from agents.adapters.base import Config, Text, ToolResult, ToolSpec

Stop = Literal["stop", "tools", "length", "refused", "pause", "unknown"]
Quirk = Literal["no_stream_options", "no_tools", "max_completion_tokens", "no_temperature"]


class Fallback(Config):
    """Where to turn when the connection before has failed, and which model to ask there."""

    connection_id: UUID
    model: fields.Name


class ChatConfig(Config):
    """How to reach a chat model and how far it may go."""

    base_url: fields.Url | None = None
    model: fields.Name
    api_key_env: fields.KeyVariable | None = None
    api_key_secret: fields.Name | None = None
    connection_id: UUID | None = None
    fallbacks: list[Fallback] = Field(default_factory=list, max_length=5)
    max_tokens: int = Field(4096, ge=1, le=1_000_000)
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    headers: fields.Headers = Field(default_factory=dict)
    timeout_sec: fields.Seconds = 1800
    idle_timeout_sec: fields.Seconds = 120
    tools: bool = True
    on_finish: Literal["done", "in_review"] | None = None
    max_turns: int = Field(20, ge=1, le=200)

    @model_validator(mode="after")
    def _one_key(self) -> ChatConfig:
        named = [n for n in (self.api_key_env, self.api_key_secret, self.connection_id) if n]
        if len(named) > 1:
            raise ValueError("Choose one of apiKeyEnv, apiKeySecret and connectionId.")
        if self.connection_id and self.base_url:
            raise ValueError("The connection has the address; leave baseUrl out.")
        if self.fallbacks and not self.connection_id:
            raise ValueError("Fallbacks need a connectionId to fall back from.")
        return self

    def key(self, secrets: Mapping[str, str]) -> str:
        """The API key, "" when none is named. Raises AdapterError when it is missing."""
        name = self.api_key_secret or self.api_key_env
        return fields.secret_value(name, secrets) if name else ""

    def secret_names(self) -> set[str]:
        named = {self.api_key_secret, self.api_key_env} - {None}
        return {str(name) for name in named} | fields.secrets_in_headers(self.headers)


# --- a conversation, as no provider writes it -------------------------------------------------


@dataclass(slots=True)
class Call:
    """A tool call as it arrives: the arguments are text until the answer is complete."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """One answer of the model, filled while it streams."""

    text: str = ""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list)
    stop: Stop | None = None
    stop_reason: str = ""  # in the provider's own word
    model: str = ""
    usage: dict[str, int | None] = field(default_factory=dict)  # names of `Usage`
    blocks: list[dict[str, Any]] = field(default_factory=list)  # to send back unchanged

    def clear(self) -> None:
        """Forget a try that led nowhere."""
        self.__init__()  # type: ignore[misc]

    @property
    def chars(self) -> int:
        """Characters generated so far, of every kind."""
        return len(self.text) + len(self.thinking) + sum(len(c.arguments) for c in self.calls)


@dataclass(frozen=True, slots=True)
class Turn:
    """An answer and what its tool calls gave."""

    answer: Answer
    results: Sequence[tuple[Call, ToolResult]] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    system: str
    user: str
    turns: Sequence[Turn] = ()
    tools: Sequence[ToolSpec] = ()


class Decoder(Protocol):
    """Reads the payloads of one stream into an answer."""

    def feed(self, payload: Mapping[str, Any]) -> list[Text]:
        """Take one payload of the stream. Raises CallFailed for an error object."""
        ...

    @property
    def complete(self) -> bool:
        """Nothing more is expected."""
        ...


class Wire(Protocol):
    """How one kind of provider is spoken to."""

    path: str

    def address(self, base_url: str) -> str:
        """What `path` follows, for a base URL as people give it; "" is the provider's own."""
        ...

    def provider(self, base_url: str) -> str: ...
    def headers(self, key: str) -> dict[str, str]: ...
    def body(
        self, config: ChatConfig, conversation: Conversation, quirks: frozenset[Quirk]
    ) -> dict[str, Any]: ...
    def decoder(self, answer: Answer) -> Decoder: ...
