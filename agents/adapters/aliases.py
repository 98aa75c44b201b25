"""Names for adapters that readers of courses and of older configurations know."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

ALIASES = {"claude-code": "claude_local", "groq": "openai", "shell": "process"}
GROQ_URL = "https://api.groq.com/openai/v1"
SHELL_ONLY = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "<<", "2>", "2>&1"})


class NotOneCommand(ValueError):
    """A shell line that needs a shell."""


def resolve(type_: str, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The real type and its configuration. Raises NotOneCommand."""
    changed = dict(config)
    if type_ == "groq":
        changed.setdefault("baseUrl", GROQ_URL)
    elif type_ == "shell":
        changed = _split(changed)
    return ALIASES.get(type_, type_), changed


def _split(config: dict[str, Any]) -> dict[str, Any]:
    """`command: "make report"` becomes a command with arguments; no shell is ever involved."""
    command = config.get("command")
    if not isinstance(command, str) or config.get("args"):
        return config
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise NotOneCommand(f"The command cannot be read: {error}.") from error
    if any(word in SHELL_ONLY or "$(" in word or "`" in word for word in words):
        raise NotOneCommand(
            "The command needs a shell, and Paperclip starts programs without one. Put it into a "
            "script and give the script's path."
        )
    if len(words) < 2:
        return config
    return {**config, "command": words[0], "args": words[1:]}
