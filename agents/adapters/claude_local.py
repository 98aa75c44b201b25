"""Claude Code (`claude --print --output-format stream-json`).

Its result line tells what the run used and cost; that of a resumed session counts this run only.
Sessions belong to a folder. Without permission to do something it goes on without doing it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from agents.adapters.base import Check, Code, ConfigClass, Event, Started, Usage
from agents.adapters.cli import UUID, CliAdapter, CliConfig, Place, Words, host_of
from agents.adapters.cli_reader import (
    Ending,
    Expectation,
    Reader,
    Tokens,
    classify,
    count,
    dumps,
    micros,
    phrase,
)

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
CLOUDS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
ROOT_REFUSAL = (
    "Claude Code refuses to run without permission checks as root. Run Paperclip as an ordinary "
    "user, or set IS_SANDBOX=1 in the agent's environment if this machine is disposable."
)
STDERR = (
    phrase("cannot be used with root/sudo", Code.CONFIG_INVALID, ROOT_REFUSAL),
    phrase("No conversation found with session ID", Code.BAD_REQUEST, session_gone=True),
    phrase("requires a valid session ID", Code.BAD_REQUEST, session_gone=True),
    phrase(r"Session ID \S+ is already in use", Code.BAD_REQUEST, session_gone=True),
    phrase("unknown option|error: option|requires --verbose|invalid", Code.CONFIG_INVALID),
    phrase("not logged in|/login", Code.AUTH_FAILED),
)
OWN_COMMAND = "Bash(paperclip:*)"  # an agent may always report
ANSWERED_BY_US = "<synthetic>"  # the model name of messages that the program wrote itself


class ClaudeConfig(CliConfig):
    """How Claude Code is started. Nothing is bypassed unless it is said here."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    permission_mode: Literal["default", "acceptEdits", "dontAsk", "plan"] = "acceptEdits"
    allowed_tools: Words = Field(default_factory=list)
    disallowed_tools: Words = Field(default_factory=list)
    dangerously_skip_permissions: bool = False
    max_budget_usd: float | None = Field(None, gt=0, le=100_000, allow_inf_nan=False)


class ClaudeLocal(CliAdapter):
    type: ClassVar[str] = "claude_local"
    label: ClassVar[str] = "Claude Code"
    description: ClassVar[str] = "The Claude Code program on this machine."
    Config: ClassVar[ConfigClass] = ClaudeConfig
    program: ClassVar[str] = "claude"
    session_pattern: ClassVar[re.Pattern[str]] = UUID
    limits_turns: ClassVar[bool] = True
    key_names: ClassVar[tuple[str, ...]] = KEYS
    login_hint: ClassVar[str] = (
        "Bind ANTHROPIC_API_KEY (or CLAUDE_CODE_OAUTH_TOKEN, made by `claude setup-token`) to a "
        "secret in the agent's environment, or point CLAUDE_CONFIG_DIR to a folder that is "
        "logged in."
    )

    def arguments(self, config: CliConfig, place: Place, session_id: str) -> list[str]:
        assert isinstance(config, ClaudeConfig)
        line = ["--print", "--output-format", "stream-json", "--verbose"]
        line += ["--include-partial-messages"]
        if config.dangerously_skip_permissions:
            line += ["--dangerously-skip-permissions"]
        else:
            line += ["--permission-mode", config.permission_mode]
        line += ["--allowedTools", ",".join([OWN_COMMAND, *config.allowed_tools])]
        if config.disallowed_tools:
            line += ["--disallowedTools", ",".join(config.disallowed_tools)]
        if config.model:
            line += ["--model", config.model]
        if config.effort:
            line += ["--effort", config.effort]
        if config.max_turns_per_run:
            line += ["--max-turns", str(config.max_turns_per_run)]
        if config.max_budget_usd:
            line += ["--max-budget-usd", str(config.max_budget_usd)]
        if session_id:
            line += ["--resume", session_id]
        return line

    def environment(self, config: CliConfig, place: Place) -> dict[str, str]:
        return {
            "CLAUDE_CONFIG_DIR": os.path.join(place.home, ".claude"),
            "CLAUDE_CODE_MAX_RETRIES": "2",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
        }

    def provider(self, config: CliConfig, env: Mapping[str, str]) -> tuple[str, bool]:
        base_url = env.get("ANTHROPIC_BASE_URL", "")
        host = host_of(base_url) if base_url else "api.anthropic.com"
        if host == "api.anthropic.com":
            return "anthropic", not any(env.get(name) for name in CLOUDS)
        return host, False

    def reader(self, expected: Expectation) -> Reader:
        return ClaudeReader(expected)

    def checks(self, config: CliConfig, env: Mapping[str, str]) -> list[Check]:
        assert isinstance(config, ClaudeConfig)
        checks = [self.login_check(env, os.path.join(env.get("CLAUDE_CONFIG_DIR", ""), FILE))]
        if any(env.get(name) for name in CLOUDS):
            checks = [Check("Login", True, "A cloud provider's credentials are used.")]
        if config.dangerously_skip_permissions:
            refused = os.geteuid() == 0 and env.get("IS_SANDBOX") != "1"
            message = "Permission checks are off: the agent may do anything this user may do."
            checks.append(Check("Permissions", not refused, ROOT_REFUSAL if refused else message))
        return checks


FILE = ".credentials.json"


class ClaudeReader(Reader):
    overhead_tokens: ClassVar[int] = 20_000

    def __init__(self, expected: Expectation) -> None:
        super().__init__(expected)
        self._result: dict[str, Any] = {}
        self._error = ""  # the kind that a synthetic message names
        self._streamed: set[str] = set()  # messages whose text came in pieces
        self._streaming = ""  # the message that comes in pieces now
        self._messages: dict[str, Tokens] = {}
        self._counted: set[str] = set()  # messages with a final count
        self._limit = ""  # of the plan, which was reached

    def read(self, said: dict[str, Any]) -> list[Event] | None:
        match said.get("type"):
            case "system":
                return self._system(said)
            case "stream_event":
                return self._piece(said["event"], bool(said.get("parent_tool_use_id")))
            case "assistant":
                return self._assistant(said)
            case "user":
                return self._user(said["message"].get("content"))
            case "rate_limit_event":
                limit = said["rate_limit_info"]
                self._limit = dumps(limit) if limit.get("status") == "rejected" else ""
                return []
            case "result":
                self._result = said
                self.finished = True
                self.version = self.version or str(said.get("claude_code_version") or "")
                if isinstance(said.get("result"), str) and not said.get("is_error"):
                    self.answer = said["result"]
                for refused in said.get("permission_denials") or []:
                    self.denied.append(_denial(refused))
                return []
        return None

    def _system(self, said: dict[str, Any]) -> list[Event] | None:
        match said.get("subtype"):
            case "init":
                self.session_id = str(said.get("session_id") or "")
                self.model = _plain(said.get("model")) or self.model
                self.version = str(said.get("claude_code_version") or "")
                detail = {
                    "version": self.version,
                    "cwd": said.get("cwd"),
                    "permissionMode": said.get("permissionMode"),
                    "keySource": said.get("apiKeySource"),
                }
                return [Started(self.model, self.session_id, detail)]
            case "api_retry":
                why = said.get("error_status") or said.get("error") or "an error"
                tries = f"{said.get('attempt')} of {said.get('max_retries')}"
                return self.note(f"The provider answered with {why}; trying again ({tries}).")
            case "status" | "task_started" | "task_notification" | "thinking_tokens":
                return []
        return None

    def _piece(self, event: dict[str, Any], inner: bool) -> list[Event]:
        match event.get("type"):
            case "message_start":
                message = event["message"]
                self._streaming = str(message.get("id") or "")
                self._seen(self._streaming, message.get("usage"))
            case "content_block_delta" if not inner:
                delta = event["delta"]
                self._streamed.add(self._streaming)
                if delta.get("type") == "text_delta":
                    return self.say(delta["text"])
                if delta.get("type") == "thinking_delta":
                    return self.think(delta["thinking"])
            case "message_delta":
                self._seen(self._streaming, event.get("usage"), final=True)
        return []

    def _assistant(self, said: dict[str, Any]) -> list[Event]:
        message = said["message"]
        id_ = str(message.get("id") or "")
        inner = bool(said.get("parent_tool_use_id"))
        if message.get("model") == ANSWERED_BY_US:
            self._error = str(said.get("error") or self._error)
            return self.note("".join(b.get("text", "") for b in message["content"]))
        self._seen(id_, message.get("usage"), final=bool(message.get("stop_reason")))
        events: list[Event] = []
        for block in message["content"]:
            match block.get("type"):
                case "text" if inner:
                    events += self.think(block["text"] + "\n")
                case "text":
                    self.answer = block["text"]
                    shown = id_ in self._streamed
                    events += self.say("\n" if shown else block["text"] + "\n")
                case "thinking" if id_ not in self._streamed or inner:
                    events += self.think(block["thinking"] + "\n")
                case "tool_use" | "server_tool_use" | "mcp_tool_use":
                    events += self.begin_step(
                        str(block["id"]), str(block["name"]), block.get("input")
                    )
        return events

    def _user(self, content: Any) -> list[Event]:
        events: list[Event] = []
        for block in content if isinstance(content, list) else []:
            if block.get("type") == "tool_result":
                events += self.end_step(
                    str(block["tool_use_id"]),
                    _text(block.get("content")),
                    is_error=bool(block.get("is_error")),
                )
        return events

    def _seen(self, id_: str, usage: Mapping[str, Any] | None, *, final: bool = False) -> None:
        if id_ not in self._messages:
            self.turns += 1
            self.steps += 1
        now = _tokens(usage or {})
        before = self._messages.get(id_, Tokens())
        self._messages[id_] = Tokens(
            *(max(getattr(now, n), getattr(before, n)) for n in Tokens.__slots__)
        )
        self.context_tokens = self._messages[id_].input or self.context_tokens
        if final:
            self._counted.add(id_)

    # --- the end -------------------------------------------------------------------------------

    def ending(self, exit_code: int | None) -> Ending:
        said = self._result
        if not said:
            return self.wordless(exit_code, STDERR)
        if not said.get("is_error"):
            if said.get("stop_reason") == "refusal":
                return Ending(Code.REFUSED, "The model declined to answer.")
            if not self.answer.strip() and not self.acted:
                return Ending(Code.BAD_RESULT, "Claude Code ended without an answer.")
            return Ending()
        errors = " ".join(str(error) for error in said.get("errors") or [])
        message = str(said.get("result") or errors or "Claude Code reports an error.")
        match said.get("subtype"):
            case "error_max_turns":
                return Ending(Code.TURN_LIMIT, f"{message}. Raise maxTurnsPerRun.")
            case "error_max_budget_usd":
                return Ending(Code.BUDGET, message)
            case "error_during_execution" if not self.session_id:
                gone = bool(re.search("No conversation found|valid session ID", message))
                return Ending(Code.BAD_REQUEST, message, session_gone=gone)
        return Ending(self._code(said, message), message, waits=self._limit)

    def _code(self, said: dict[str, Any], message: str) -> Code:
        if said.get("stop_reason") == "refusal":
            return Code.REFUSED
        named = {
            "authentication_failed": Code.AUTH_FAILED,
            "model_not_found": Code.MODEL_NOT_FOUND,
            "max_output_tokens": Code.TRUNCATED_OUTPUT,
            "billing_error": Code.QUOTA_EXHAUSTED,
        }.get(self._error)
        if named is not None:
            return named
        fallback = {
            "server_error": Code.PROVIDER_OVERLOADED,
            "rate_limit": Code.RATE_LIMITED,
            "invalid_request": Code.BAD_REQUEST,
        }.get(self._error, Code.EXIT_NONZERO)
        return classify(message, status=said.get("api_error_status"), default=fallback)

    def usages(self) -> list[Usage]:
        booked = self._reported()
        if self._result and not str(self._result.get("terminal_reason")).startswith("aborted"):
            return booked
        # Cut short: what the provider had begun to answer is billed, and not in the result.
        seen = Tokens()
        for tokens in self._messages.values():
            seen.add(tokens)
        told = Tokens()
        for usage in booked:
            told.add(Tokens(usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens))
            told.output += usage.output_tokens
        rest = seen.since(told)
        if rest.input:
            whole = set(self._messages) <= self._counted
            if not whole:
                rest.output = max(rest.output, self.output_chars // 4 - told.output)
            booked.append(self.book(rest, source="reported" if whole else "estimated"))
        return booked

    def _reported(self) -> list[Usage]:
        """By model, since models have prices; the result's own sum leaves out fall-backs."""
        by_model = self._result.get("modelUsage") or {}
        kinds = (self._result.get("usage") or {}).get("cache_creation") or {}
        booked = []
        for name, used in by_model.items():
            tokens = Tokens(
                cache_read=count(used.get("cacheReadInputTokens")),
                cache_write=count(used.get("cacheCreationInputTokens")),
                output=count(used.get("outputTokens")),
            )
            tokens.input = count(used.get("inputTokens")) + tokens.cache_read + tokens.cache_write
            if len(by_model) == 1:
                tokens.cache_write_1h = count(kinds.get("ephemeral_1h_input_tokens"))
            cost = micros(used.get("costUSD")) if self.expected.first_party else None
            if tokens:
                booked.append(self.book(tokens, model=_plain(name), cost_micros=cost))
        if not booked and (sum_ := _tokens(self._result.get("usage") or {})):
            cost = micros(self._result.get("total_cost_usd"))
            booked.append(self.book(sum_, cost_micros=cost if self.expected.first_party else None))
        return booked


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    kinds = usage.get("cache_creation") or {}
    read = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    return Tokens(
        input=count(usage.get("input_tokens")) + read + written,
        cache_read=read,
        cache_write=written,
        cache_write_1h=count(kinds.get("ephemeral_1h_input_tokens")),
        output=count(usage.get("output_tokens")),
    )


def _plain(model: Any) -> str:
    """The model's name without the window's size, as price lists write it."""
    return re.sub(r"\[[^\]]*\]$", "", str(model or ""))[:200]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(part.get("text") or f"[{part.get('type')}]") for part in parts if isinstance(part, dict)
    )


def _denial(refused: Mapping[str, Any]) -> str:
    given = refused.get("tool_input") or {}
    what = given.get("command") or given.get("file_path") or given.get("url") or ""
    return f"{refused.get('tool_name')}: {what}".rstrip(": ")[:300]
