"""Gemini CLI (`gemini --output-format stream-json`).

Its output tokens leave out thoughts, which the total holds. Exit codes above 128 are HTTP
statuses and no signals. A cut or filtered answer looks like a whole one; that cannot be told.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import orjson

from agents.adapters import failures, fields
from agents.adapters.base import AdapterError, Check, Code, ConfigClass, Event, Started, Usage
from agents.adapters.cli import UUID, CliAdapter, CliConfig, Place, host_of
from agents.adapters.cli_reader import (
    ANSI,
    Ending,
    Expectation,
    Reader,
    Tokens,
    classify,
    count,
    dumps,
    phrase,
)

KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
DEFAULT_MODEL = "gemini-2.5-flash"
UNTRUSTED = (
    "Gemini CLI does not trust this folder. Switch trustWorkspace on in the agent's configuration."
)
STDERR = (
    phrase(
        "not running in a trusted directory|folder is not trusted", Code.CONFIG_INVALID, UNTRUSTED
    ),
    phrase(
        "Invalid session identifier|Error resuming session", Code.BAD_REQUEST, session_gone=True
    ),
    phrase("auth method|GEMINI_API_KEY|set an Auth", Code.AUTH_FAILED, "Gemini CLI has no key."),
    phrase("Unknown argument|Invalid values", Code.CONFIG_INVALID),
    phrase("max session turns", Code.TURN_LIMIT, "Gemini CLI took all its turns."),
)
ATTEMPT = re.compile(r"Attempt (\d+) failed(?: with status (\d{3}))?")
MAX_ATTEMPTS = 3
QUIET = re.compile(
    r"256-color support|Basic terminal detected|Ripgrep is not available|^\[STARTUP\]|"
    r"YOLO mode is enabled|--allowed-tools cli argument|^\s+at "
)


class GeminiConfig(CliConfig):
    """How Gemini CLI is started. `trustWorkspace` lets it read the folder's own settings."""

    base_url: fields.Url | None = None
    approval_mode: Literal["default", "auto_edit", "plan"] = "auto_edit"
    yolo: bool = False
    trust_workspace: bool = True


class GeminiLocal(CliAdapter):
    type: ClassVar[str] = "gemini_local"
    label: ClassVar[str] = "Gemini CLI"
    description: ClassVar[str] = "The Gemini CLI program on this machine."
    Config: ClassVar[ConfigClass] = GeminiConfig
    program: ClassVar[str] = "gemini"
    session_pattern: ClassVar[re.Pattern[str]] = UUID
    limits_turns: ClassVar[bool] = True
    key_names: ClassVar[tuple[str, ...]] = KEYS
    login_hint: ClassVar[str] = "Bind GEMINI_API_KEY to a secret in the agent's environment."

    def arguments(self, config: CliConfig, place: Place, session_id: str) -> list[str]:
        assert isinstance(config, GeminiConfig)
        line = ["--output-format", "stream-json"]
        line += ["--model", config.model or DEFAULT_MODEL]
        if config.trust_workspace:
            line += ["--skip-trust"]
        line += ["--approval-mode", "yolo" if config.yolo else config.approval_mode]
        if not config.yolo:
            line += ["--allowed-tools", "run_shell_command(paperclip)"]
        if session_id:
            line += ["--resume", session_id]
        return line

    def environment(self, config: CliConfig, place: Place) -> dict[str, str]:
        assert isinstance(config, GeminiConfig)
        self._settle(config, place)
        # With a second process, the first would not hear our signals.
        env = {"GEMINI_CLI_NO_RELAUNCH": "true"}
        if config.base_url:
            env["GOOGLE_GEMINI_BASE_URL"] = config.base_url
        return env

    def _settle(self, config: GeminiConfig, place: Place) -> None:
        """Write what has no switch and no variable into the settings of the agent's home."""
        path = Path(place.home, ".gemini", "settings.json")
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.parent.is_symlink():  # an agent's doing: it would lead us out of its walls
            said = f"{path.parent} is a link, and has to be a folder."
            raise AdapterError(Code.CONFIG_INVALID, said)
        try:
            found = orjson.loads(path.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            found = {}
        settings: dict[str, Any] = dict(found) if isinstance(found, dict) else {}
        settings["general"] = {"disableAutoUpdate": True, "disableUpdateNag": True}
        settings["privacy"] = {"usageStatisticsEnabled": False}
        settings["telemetry"] = {"enabled": False}
        settings["model"] = {"maxSessionTurns": config.max_turns_per_run or -1}
        if any(place.env.get(name) for name in KEYS):
            settings["security"] = {"auth": {"selectedType": "gemini-api-key"}}
        if settings != found:
            draft = path.with_name(f"settings.{os.getpid()}.{threading.get_ident()}")
            draft.write_text(dumps(settings))
            draft.replace(path)  # another run of this agent may be reading it

    def provider(self, config: CliConfig, env: Mapping[str, str]) -> tuple[str, bool]:
        base_url = env.get("GOOGLE_GEMINI_BASE_URL", "")
        host = host_of(base_url) if base_url else "generativelanguage.googleapis.com"
        return ("google", True) if host.endswith(".googleapis.com") else (host, False)

    def model_name(self, config: CliConfig) -> str:
        return config.model or DEFAULT_MODEL

    def reader(self, expected: Expectation) -> Reader:
        return GeminiReader(expected)

    def checks(self, config: CliConfig, env: Mapping[str, str]) -> list[Check]:
        assert isinstance(config, GeminiConfig)
        credentials = os.path.join(env.get("HOME", ""), ".gemini", "oauth_creds.json")
        checks = [self.login_check(env, credentials)]
        if not config.trust_workspace:
            checks.append(Check("Trust", False, UNTRUSTED))
        if config.yolo:
            message = "Every tool is approved: the agent may do anything this user may do."
            checks.append(Check("Permissions", True, message))
        return checks


class GeminiReader(Reader):
    overhead_tokens: ClassVar[int] = 12_000

    def __init__(self, expected: Expectation) -> None:
        super().__init__(expected)
        self._result: dict[str, Any] = {}
        self._error = ""

    def read(self, said: dict[str, Any]) -> list[Event] | None:
        match said.get("type"):
            case "init":
                self.session_id = str(said.get("session_id") or "")
                self.model = str(said.get("model") or self.model)
                return [Started(self.model, self.session_id)]
            case "message":
                return self._message(said)
            case "tool_use":
                self.turns += 1
                self.answer = ""
                return self.begin_step(
                    str(said["tool_id"]), str(said["tool_name"]), said.get("parameters")
                )
            case "tool_result":
                failed = said.get("status") != "success"
                output = said.get("output") or said.get("error")
                return self.end_step(str(said["tool_id"]), output, is_error=failed)
            case "error":
                self._error = str(said.get("message") or "")
                return self.note(self._error)
            case "result":
                self._result = said
                self.finished = True
                return []
        return None

    def _message(self, said: dict[str, Any]) -> list[Event]:
        if said.get("role") != "assistant":
            return []  # our own prompt comes back first
        text = str(said.get("content") or "")
        if not self.answer:
            self.steps += 1
        self.answer += text
        return self.say(text)

    def error_line(self, text: str) -> list[Event]:
        plain = ANSI.sub("", text)
        if QUIET.search(plain):
            return []
        if found := ATTEMPT.search(plain):
            status = int(found[2]) if found[2] else None
            if int(found[1]) >= MAX_ATTEMPTS and self.give_up is None:
                self.give_up = Ending(
                    classify(plain, status=status, default=Code.STREAM_BROKEN),
                    f"The provider failed {found[1]} times in a row"
                    + (f" (HTTP {status})." if status else "."),
                    waits=plain,
                )
        return super().error_line(text)

    # --- the end -------------------------------------------------------------------------------

    def ending(self, exit_code: int | None) -> Ending:
        said = self._result
        if not said:
            return self.wordless(exit_code, STDERR)
        if said.get("status") == "success":
            if not self.answer.strip() and not self.acted:
                return Ending(Code.BAD_RESULT, "Gemini CLI ended without an answer.")
            return Ending()
        error = said.get("error") or {}
        message = _readable(str(error.get("message") or self._error or "It reports an error."))
        if re.search("turn", str(error.get("type") or ""), re.IGNORECASE):
            return Ending(Code.TURN_LIMIT, message)
        raw = f"{error.get('message')} {message}"
        return Ending(classify(raw, default=Code.STREAM_BROKEN), message, waits=raw)

    def usages(self) -> list[Usage]:
        stats = self._result.get("stats") or {}
        booked = []
        for name, used in (stats.get("models") or {}).items():
            tokens = _tokens(used)
            if tokens:
                booked.append(self.book(tokens, model=str(name)[:200]))
        if not booked and (tokens := _tokens(stats)):
            booked.append(self.book(tokens))
        if booked:
            return booked
        if not (self.steps or self.output_chars):
            return []
        calls = max(1, self.turns + (0 if self.in_tool else 1))
        return [self.book(self.estimate(calls=calls), source="estimated")]


def _readable(message: str) -> str:
    """The provider's words in `[API Error: {…}]`."""
    inner = message.removeprefix("[API Error: ").removesuffix("]")
    try:
        words, said = failures.error_words(orjson.loads(inner))
    except orjson.JSONDecodeError:
        return inner
    return f"{said} (HTTP {words[0]})" if said and words else said or inner


def _tokens(raw: Mapping[str, Any]) -> Tokens:
    sent, answered = count(raw.get("input_tokens")), count(raw.get("output_tokens"))
    thoughts = max(0, count(raw.get("total_tokens")) - sent - answered)
    return Tokens(
        input=sent,
        cache_read=count(raw.get("cached")),
        output=answered + thoughts,
        reasoning=thoughts,
    )
