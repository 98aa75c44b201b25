"""Codex (`codex exec --json`).

Its token counts run over the whole thread, so a run costs the difference to what was booked
before. It tells neither the model nor a price. Failures stand in words only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import orjson
from pydantic import Field

from agents.adapters import failures, fields
from agents.adapters.base import Check, Code, ConfigClass, Event, Started, Usage
from agents.adapters.cli import UUID, CliAdapter, CliConfig, Place, host_of
from agents.adapters.cli_reader import (
    Ending,
    Expectation,
    Reader,
    Tokens,
    classify,
    count,
    dumps,
    phrase,
)

KEYS = ("OPENAI_API_KEY", "CODEX_API_KEY")
OPENAI_URL = "https://api.openai.com/v1"
STDERR = (
    phrase(
        "no rollout found for thread id|thread/resume failed", Code.BAD_REQUEST, session_gone=True
    ),
    phrase("invalid thread id|failed to parse thread", Code.BAD_REQUEST, session_gone=True),
    phrase(r"Error loading config|error: (?:unexpected|invalid)|unrecognized", Code.CONFIG_INVALID),
    phrase("not logged in|codex login", Code.AUTH_FAILED),
)
REPEATING = re.compile(r"^Reconnecting\.\.\.")
HOPELESS = re.compile(r"Reconnecting\.\.\. waiting for network")
BROKEN = re.compile(r"stream disconnected before completion|idle timeout")
NOT_SENT = re.compile(r"lookup address|error sending request|connection failed", re.IGNORECASE)
MAX_HOPELESS = 3
RECORD_TAIL_BYTES = 1024**2


class CodexConfig(CliConfig):
    """How Codex is started. Commands run in its sandbox unless that is switched off here."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    base_url: fields.Url | None = None
    sandbox: Literal["read-only", "workspace-write"] = "workspace-write"
    network_access: bool = False
    dangerously_bypass_sandbox: bool = False
    stream_idle_sec: int = Field(300, ge=10, le=3600)


class CodexLocal(CliAdapter):
    type: ClassVar[str] = "codex_local"
    label: ClassVar[str] = "Codex"
    description: ClassVar[str] = "The Codex program on this machine."
    Config: ClassVar[ConfigClass] = CodexConfig
    program: ClassVar[str] = "codex"
    session_pattern: ClassVar[re.Pattern[str]] = UUID
    key_names: ClassVar[tuple[str, ...]] = KEYS
    login_hint: ClassVar[str] = (
        "Bind OPENAI_API_KEY to a secret in the agent's environment, or point CODEX_HOME to a "
        "folder that is logged in (`codex login`)."
    )

    def arguments(self, config: CliConfig, place: Place, session_id: str) -> list[str]:
        assert isinstance(config, CodexConfig)
        line = ["exec"]
        if session_id:
            line += ["resume"]
        line += ["--json", "--skip-git-repo-check"]
        if config.model:
            line += ["--model", config.model]
        for name, value in self._settings(config, place):
            line += ["-c", f"{name}={dumps(value)}"]  # JSON's scalars are TOML's, too
        if config.dangerously_bypass_sandbox:
            line += ["--dangerously-bypass-approvals-and-sandbox"]
        return line

    def closing_arguments(self, session_id: str) -> list[str]:
        return [session_id, "-"] if session_id else ["-"]

    def _settings(self, config: CodexConfig, place: Place) -> list[tuple[str, Any]]:
        # A login shell reads profiles, which put our command off the PATH.
        settings: list[tuple[str, Any]] = [("allow_login_shell", False)]
        if config.effort:
            settings.append(("model_reasoning_effort", config.effort))
        if not config.dangerously_bypass_sandbox:
            settings += [
                ("sandbox_mode", config.sandbox),
                ("approval_policy", "never"),
                ("sandbox_workspace_write.network_access", config.network_access),
            ]
        key = next((name for name in KEYS if place.env.get(name)), None)
        if config.base_url or key:
            # A provider of our own: the built-in one first tries a WebSocket for seconds, and
            # its repeats cannot be bounded.
            own = "model_providers.paperclip"
            settings += [
                ("model_provider", "paperclip"),
                (f"{own}.name", "paperclip"),
                (f"{own}.base_url", config.base_url or OPENAI_URL),
                (f"{own}.wire_api", "responses"),
                (f"{own}.request_max_retries", 2),
                (f"{own}.stream_max_retries", 2),
                (f"{own}.stream_idle_timeout_ms", config.stream_idle_sec * 1000),
            ]
            if key:
                settings.append((f"{own}.env_key", key))
        return settings

    def environment(self, config: CliConfig, place: Place) -> dict[str, str]:
        folder = os.path.join(place.home, ".codex")
        os.makedirs(folder, mode=0o700, exist_ok=True)  # it does not make it itself
        return {"CODEX_HOME": folder}

    def provider(self, config: CliConfig, env: Mapping[str, str]) -> tuple[str, bool]:
        assert isinstance(config, CodexConfig)
        host = host_of(config.base_url or OPENAI_URL)
        return ("openai", True) if host == "api.openai.com" else (host, False)

    def reader(self, expected: Expectation) -> Reader:
        return CodexReader(expected)

    def settle(self, reader: Reader, env: Mapping[str, str]) -> None:
        assert isinstance(reader, CodexReader)
        reader.told(*_recorded(env.get("CODEX_HOME", ""), reader.session_id))

    def checks(self, config: CliConfig, env: Mapping[str, str]) -> list[Check]:
        assert isinstance(config, CodexConfig)
        checks = [self.login_check(env, os.path.join(env.get("CODEX_HOME", ""), "auth.json"))]
        if config.base_url and not checks[0].ok:
            checks = [Check("Login", True, f"{config.base_url} is called without a key.")]
        if config.dangerously_bypass_sandbox:
            message = "The sandbox is off: the agent may do anything this user may do."
            checks.append(Check("Permissions", True, message))
        elif not config.network_access:
            message = "Commands have no network, so the agent reports by its last message."
            hint = "Switch networkAccess on to let it comment and delegate while it works."
            checks.append(Check("Permissions", True, message, hint))
        return checks


class CodexReader(Reader):
    overhead_tokens: ClassVar[int] = 8_000

    def __init__(self, expected: Expectation) -> None:
        super().__init__(expected)
        self._total: Tokens | None = None
        self._failure = ""
        self._error = ""
        self._hopeless = 0
        self._begun = self._completed = False
        self._broken = 0  # answers that broke off, in which the provider may have spent tokens

    def told(self, total: Tokens | None, last: Tokens | None) -> None:
        """What the thread's own record counts: also when the run did not come to its end."""
        self._total = self._total or total
        self.context_tokens = last.input if last else self.context_tokens

    def read(self, said: dict[str, Any]) -> list[Event] | None:
        match said.get("type"):
            case "thread.started":
                self.session_id = str(said.get("thread_id") or "")
                return [Started(self.model, self.session_id)]
            case "turn.started":
                self._begun = True
                self.turns += 1
                return []
            case "item.started":
                return self._item(said["item"], done=False)
            case "item.updated":
                return []
            case "item.completed":
                return self._item(said["item"], done=True)
            case "turn.completed":
                self.finished = self._completed = True
                self._total = _tokens(said.get("usage") or {})
                return []
            case "turn.failed":
                self.finished = True
                self._failure = str((said.get("error") or {}).get("message") or "unknown")
                return []
            case "error":
                return self._warn(str(said.get("message") or ""))
        return None

    def _warn(self, message: str) -> list[Event]:
        self._error = message
        self._broken += bool(BROKEN.search(message) and not NOT_SENT.search(message))
        self._hopeless += bool(HOPELESS.match(message))
        if self._hopeless >= MAX_HOPELESS:
            self.give_up = Ending(Code.CONNECT_FAILED, message)
        return self.note(message[:2000])

    def _item(self, item: dict[str, Any], *, done: bool) -> list[Event] | None:
        id_ = str(item.get("id") or "")
        match item.get("type"):
            case "agent_message" if done:
                self.answer = str(item.get("text") or "")
                self.steps += 1
                return self.say(self.answer + "\n")
            case "reasoning" if done:
                return self.think(str(item.get("text") or "") + "\n")
            case "error":
                return self.note(str(item.get("message") or "")[:2000]) if done else []
            case "agent_message" | "reasoning":
                return []
            case "todo_list":
                return []
            case None:
                return None
        events: list[Event] = []
        kind = str(item["type"])
        if id_ not in self._open:
            events += self.begin_step(id_, _step_name(kind, item), _step_input(item))
            self.turns += 1  # each action is a model turn of its own
        if done:
            failed = item.get("status") in ("failed", "declined") or bool(item.get("exit_code"))
            events += self.end_step(id_, _step_output(item), is_error=failed)
        return events

    # --- the end -------------------------------------------------------------------------------

    def ending(self, exit_code: int | None) -> Ending:
        if self._failure:
            message = _readable(self._failure)
            return Ending(self._code(message), message, waits=self._failure)
        if self._completed:
            if not self.answer.strip() and not self.acted:
                return Ending(Code.BAD_RESULT, "Codex ended without an answer.")
            return Ending()
        if self._begun and self._error and not REPEATING.match(self._error):
            said = self._error
            return Ending(self._code(said), _readable(said), waits=said)
        return self.wordless(exit_code, STDERR)

    def _code(self, message: str) -> Code:
        words, _ = failures.error_words(_parsed(self._failure or self._error))
        named = next((failures.BY_WORD[w] for w in words if w in failures.BY_WORD), None)
        return named or classify(message, default=Code.STREAM_BROKEN)

    def usages(self) -> list[Usage]:
        spent = self._total.since(self._before()) if self._total else Tokens()
        booked = [self.book(spent)] if spent else []
        if guess := self._guess():
            booked.append(self.book(guess, source="estimated"))
        return booked

    def _guess(self) -> Tokens:
        """Of what no count tells."""
        if self._completed:
            return Tokens()
        if self._broken:
            return self.estimate(calls=self._broken)
        if not self._begun or self._hopeless:
            return Tokens()
        answered = bool(self.steps or self.output_chars)
        if self._failure and (self._total or not answered):
            return Tokens()  # refused, and so not billed; or counted
        open_calls = 0 if self.in_tool else 1
        if self._total:
            return self.estimate(calls=open_calls) if open_calls else Tokens()
        return self.estimate(calls=max(1, self.turns - 1 + open_calls))

    def _before(self) -> Tokens:
        went_on = self.session_id == self.expected.session_id
        return self.expected.session_usage if went_on else Tokens()

    def session_usage(self) -> Tokens:
        if self._total is not None:
            return self._total
        booked = Tokens()
        booked.add(self._before())
        if not self._broken:
            # The thread's next count will hold it: what was estimated is not counted twice.
            booked.add(self._guess())
        return booked


def _recorded(codex_home: str, thread_id: str) -> tuple[Tokens | None, Tokens | None]:
    """The tokens of the whole thread and of its last call, as its record file tells them."""
    if not codex_home or not UUID.fullmatch(thread_id):
        return None, None
    files = sorted(Path(codex_home, "sessions").glob(f"*/*/*/rollout-*-{thread_id}.jsonl"))
    if not files:
        return None, None
    with files[-1].open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - RECORD_TAIL_BYTES))
        lines = file.read().split(b"\n")
    for line in reversed(lines):
        info = _token_count(line) if b'"token_count"' in line else None
        if info:
            last = info.get("last_token_usage")
            return _tokens(info.get("total_token_usage") or {}), _tokens(last or {})
    return None, None


def _token_count(line: bytes) -> Mapping[str, Any] | None:
    try:
        payload = orjson.loads(line)["payload"]
        info = payload["info"] if payload["type"] == "token_count" else None
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return info if isinstance(info, dict) else None


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    return Tokens(
        input=count(usage.get("input_tokens")),
        cache_read=count(usage.get("cached_input_tokens")),
        cache_write=count(usage.get("cache_write_input_tokens")),
        output=count(usage.get("output_tokens")),
        reasoning=count(usage.get("reasoning_output_tokens")),
    )


def _step_name(kind: str, item: Mapping[str, Any]) -> str:
    if kind == "command_execution":
        return "shell"
    if kind == "mcp_tool_call":
        return f"{item.get('server')}.{item.get('tool')}"[:100]
    return kind


def _step_input(item: Mapping[str, Any]) -> dict[str, Any]:
    names = ("command", "arguments", "query", "changes", "prompt")
    return {name: item[name] for name in names if item.get(name)}


def _step_output(item: Mapping[str, Any]) -> Any:
    if "aggregated_output" in item:
        return item["aggregated_output"]
    return item.get("result") or item.get("error") or item.get("status") or ""


def _parsed(message: str) -> Any:
    try:
        return orjson.loads(message)
    except orjson.JSONDecodeError:
        return None


def _readable(message: str) -> str:
    """A provider's error object comes as its JSON text."""
    _, inner = failures.error_words(_parsed(message))
    return failures.redact(inner or message)[:1000]
