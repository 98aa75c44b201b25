"""The adapters by name. Adding one is a file, a line in `_CLASSES` and a test.

Reading order: base (the interface) · openai, anthropic (wire formats) · chat (the turn loop) ·
line (one streamed call) · process (program, child, proctree, launch) · claude_local and its like
(cli, cli_run, cli_watch, cli_reader, cli_session, cli_prompt) · http · results · demo · outbound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from agents.adapters import aliases, outbound
from agents.adapters.anthropic import Anthropic
from agents.adapters.base import Adapter
from agents.adapters.claude_local import ClaudeLocal
from agents.adapters.cli import CliAdapter
from agents.adapters.codex_local import CodexLocal
from agents.adapters.demo import Demo
from agents.adapters.gemini_local import GeminiLocal
from agents.adapters.http import Http
from agents.adapters.openai import OpenAI
from agents.adapters.opencode_local import OpenCodeLocal
from agents.adapters.process import Process

_CLASSES: tuple[type[Adapter], ...] = (
    OpenAI,
    Anthropic,
    ClaudeLocal,
    CodexLocal,
    OpenCodeLocal,
    GeminiLocal,
    Process,
    Http,
    Demo,
)
_ADAPTERS: dict[str, Adapter] = {cls.type: cls() for cls in _CLASSES}

ALIASES = aliases.ALIASES


class UnknownAdapter(LookupError):
    """There is no adapter of this type."""

    def __init__(self, type_: str) -> None:
        super().__init__(f"There is no adapter type {type_[:100]!r}.")
        self.type = type_


class ConfigError(ValueError):
    """A configuration that cannot be used. `errors` maps a field (camelCase path, "" for the
    whole) to what is wrong with it."""

    def __init__(self, errors: Mapping[str, list[str]]) -> None:
        self.errors = dict(errors)
        super().__init__(
            "; ".join(f"{k}: {' '.join(v)}" if k else " ".join(v) for k, v in self.errors.items())
        )


def get(type_: str) -> Adapter:
    """The adapter of this type, one instance a process. Raises UnknownAdapter."""
    try:
        return _ADAPTERS[type_]
    except KeyError:
        raise UnknownAdapter(str(type_)) from None


def all() -> list[Adapter]:
    """Every adapter, in the order in which people should see them."""
    return list(_ADAPTERS.values())


def programs() -> list[str]:
    """The types that start an agent program on this machine."""
    return [kind for kind, adapter in _ADAPTERS.items() if isinstance(adapter, CliAdapter)]


def resolve(type_: str, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The real type behind a name that people know, and the configuration it takes there.

    Raises ConfigError for a shell line that is more than a command with arguments.
    """
    try:
        return aliases.resolve(type_, config)
    except aliases.NotOneCommand as error:
        raise ConfigError({"command": [str(error)]}) from error


def validate(type_: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it is stored: checked, camelCase, only what was set.

    Raises UnknownAdapter and ConfigError.
    """
    adapter = get(type_)
    try:
        parsed = adapter.Config.model_validate(dict(config))
    except ValidationError as error:
        raise ConfigError(_by_field(error)) from error
    stored = parsed.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for name in ("baseUrl", "url"):
        refusal = outbound.inspect(stored[name]) if stored.get(name) else None
        if refusal:
            raise ConfigError({name: [refusal]})
    return stored


def secret_names(type_: str, config: Mapping[str, Any]) -> set[str]:
    """Names of the secrets (or of `apiKeyEnv`) that a run will ask for.

    Raises UnknownAdapter and ConfigError.
    """
    adapter = get(type_)
    try:
        parsed = adapter.Config.model_validate(dict(config))
    except ValidationError as error:
        raise ConfigError(_by_field(error)) from error
    return parsed.secret_names()


def deadline(type_: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The one limit of a run's time, as `seconds` and its `source`: the agent's `configuration`, or
    the `default` of its kind. Empty for a kind without one. Raises UnknownAdapter."""
    field = get(type_).Config.model_fields.get("timeout_sec")
    if field is None:
        return {}
    given = config.get("timeoutSec")
    if given is None:
        return {"seconds": field.default, "source": "default"}
    return {"seconds": given, "source": "configuration"}


async def aclose() -> None:
    """Release what all adapters hold in the running event loop."""
    for adapter in _ADAPTERS.values():
        await adapter.aclose()


def _by_field(error: ValidationError) -> dict[str, list[str]]:
    messages: dict[str, list[str]] = {}
    for item in error.errors(include_url=False, include_input=False):
        where = ".".join(str(part) for part in item["loc"] if part not in ("str", "SecretRef"))
        said = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            said = "This key is not known."
        messages.setdefault(where, []).append(said)
    return messages
