"""OpenCode (`opencode run --format json`).

It has no first and no last line: the session stands on every line, the use of a run is the sum
of its steps, and only the last step's reason tells whether it was done. A provider whose answers
end too early keeps it asking without limit, so its own steps are watched here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from agents.adapters import fields
from agents.adapters.base import Check, Code, ConfigClass, Event, Started, Usage
from agents.adapters.cli import CliAdapter, CliConfig, Place, host_of
from agents.adapters.cli_reader import (
    ANSI,
    STDERR_TAIL_CHARS,
    Ending,
    Expectation,
    Reader,
    Tokens,
    classify,
    count,
    dumps,
    phrase,
)

OWN_PROVIDER = "paperclip"
KEYS = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "OPENROUTER_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_GENERATIVE_AI_API_KEY",
    "GROQ_API_KEY",
    "DEEPSEEK_API_KEY",
    "MISTRAL_API_KEY",
    "XAI_API_KEY",
    "OPENCODE_API_KEY",
)
STDERR = (
    phrase("Session not found", Code.BAD_REQUEST, session_gone=True),
    phrase(r"Model not found|ProviderModelNotFound", Code.MODEL_NOT_FOUND),
    phrase(r"^opencode run \[message|Invalid config|Config.*invalid", Code.CONFIG_INVALID),
)
REFUSED = re.compile(r"permission requested: (.+?); auto-rejecting")
LOGGED = re.compile(r"\blevel=(?:ERROR|WARN)\b.*?\bmessage=(\"(?:[^\"\\]|\\.)*\"|\S+)")
LOGGED_ERROR = re.compile(r"\berror(?:\.error)?=\"((?:[^\"\\]|\\.)*)\"")
MAX_UNKNOWN_STEPS = 3
MAX_UNFINISHED_STEPS = 2
MAX_FAILED_CALLS = 7  # it gives up by itself after six, and then tells the status


class OpenCodeConfig(CliConfig):
    """How OpenCode is started. `model` is written provider/model, or with `baseUrl` alone."""

    effort: fields.Name | None = None  # a variant, as the model names it
    base_url: fields.Url | None = None
    auto_approve: bool = False


class OpenCodeLocal(CliAdapter):
    type: ClassVar[str] = "opencode_local"
    label: ClassVar[str] = "OpenCode"
    description: ClassVar[str] = "The OpenCode program on this machine."
    Config: ClassVar[ConfigClass] = OpenCodeConfig
    program: ClassVar[str] = "opencode"
    session_pattern: ClassVar[re.Pattern[str]] = re.compile(r"ses_[A-Za-z0-9]{8,64}")
    key_names: ClassVar[tuple[str, ...]] = KEYS
    login_hint: ClassVar[str] = (
        "Bind the key of your provider (OPENAI_API_KEY, ANTHROPIC_API_KEY, …) to a secret in the "
        "agent's environment."
    )

    def arguments(self, config: CliConfig, place: Place, session_id: str) -> list[str]:
        assert isinstance(config, OpenCodeConfig)
        # Without a title it has a model invent one, and counts that call nowhere.
        line = ["run", "--format", "json", "--title", "Paperclip"]
        line += ["--print-logs", "--log-level", "ERROR"]
        if config.model:
            own = config.base_url and "/" not in config.model
            line += ["--model", f"{OWN_PROVIDER}/{config.model}" if own else config.model]
        if config.effort:
            line += ["--variant", config.effort]
        if config.auto_approve:
            line += ["--auto"]
        if session_id:
            line += ["--session", session_id]
        return line

    def environment(self, config: CliConfig, place: Place) -> dict[str, str]:
        assert isinstance(config, OpenCodeConfig)
        settings: dict[str, Any] = {"autoupdate": False, "share": "disabled"}
        if config.base_url and config.model:
            name = config.model.rpartition("/")[2]
            settings["provider"] = {
                OWN_PROVIDER: {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {
                        "baseURL": config.base_url,
                        "apiKey": "{env:OPENAI_API_KEY}",
                    },
                    "models": {name: {}},
                }
            }
        env = {
            "OPENCODE_CONFIG_CONTENT": dumps(settings),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_TERMINAL_TITLE": "1",
            "OPENCODE_DISABLE_CLAUDE_CODE": "1",
        }
        if config.base_url:
            env["OPENCODE_DISABLE_MODELS_FETCH"] = "1"  # the catalogue does not know this server
        return env

    def provider(self, config: CliConfig, env: Mapping[str, str]) -> tuple[str, bool]:
        assert isinstance(config, OpenCodeConfig)
        if config.base_url:
            return host_of(config.base_url), False
        provider, slash, _ = (config.model or "").partition("/")
        return (provider if slash else "opencode"), False

    def model_name(self, config: CliConfig) -> str:
        return (config.model or "").partition("/")[2] or config.model or ""

    def reader(self, expected: Expectation) -> Reader:
        return OpenCodeReader(expected)

    def checks(self, config: CliConfig, env: Mapping[str, str]) -> list[Check]:
        assert isinstance(config, OpenCodeConfig)
        checks = []
        if not config.model:
            message = "No model is set, so OpenCode chooses one."
            checks.append(Check("Model", True, message, "Set it as provider/model."))
        login = self.login_check(env, "")
        if config.base_url and not login.ok:
            login = Check("Login", True, f"{config.base_url} is called without a key.")
        checks.append(login)
        if config.auto_approve:
            message = "Everything it asks for is approved: it may do what this user may do."
            checks.append(Check("Permissions", True, message))
        return checks


class OpenCodeReader(Reader):
    overhead_tokens: ClassVar[int] = 8_000

    def __init__(self, expected: Expectation) -> None:
        super().__init__(expected)
        self._reason = ""  # of the last finished step
        self._failure: dict[str, Any] = {}
        self._running = False  # a step was begun and not finished
        self._unfinished = 0
        self._unknown = 0
        self._failed_calls = 0
        self._step_chars = 0

    def read(self, said: dict[str, Any]) -> list[Event] | None:
        kind = said.get("type")
        if kind not in ("step_start", "text", "reasoning", "tool_use", "step_finish", "error"):
            return None
        events: list[Event] = []
        if not self.session_id and said.get("sessionID"):
            self.session_id = str(said["sessionID"])
            events.append(Started(self.model, self.session_id))
        part = said.get("part") or {}
        match kind:
            case "step_start":
                events += self._step_start()
            case "text":
                self.answer = str(part.get("text") or "")
                events += self.say(self.answer + "\n")
            case "reasoning":
                events += self.think(str(part.get("text") or "") + "\n")
            case "tool_use":
                events += self._tool(part)
            case "step_finish":
                events += self._step_finish(part)
            case "error":
                self._failure = said.get("error") or {}
                events += self.note(self._failure_text())
        return events

    def error_line(self, text: str) -> list[Event]:
        plain = ANSI.sub("", text)
        if refused := REFUSED.search(plain):
            self.denied.append(refused[1][:300])
        logged = LOGGED.search(plain)
        if logged is None:
            return super().error_line(text)
        if "models.dev" in plain:
            return []  # its catalogue of prices, which it can do without
        why = LOGGED_ERROR.search(plain)
        message = f"{logged[1].strip(chr(34))}: {why[1][:300]}" if why else logged[1].strip('"')
        self.stderr = f"{self.stderr}{message}\n"[-STDERR_TAIL_CHARS:]
        if "stream error" in logged[1]:
            self._call_failed(why[1] if why else message)
        return self.note(message)

    def _call_failed(self, why: str) -> None:
        """It repeats a failed call for ever, and says so in its log only."""
        self._failed_calls += 1
        if self._failed_calls >= MAX_FAILED_CALLS and self.give_up is None:
            self.give_up = Ending(
                classify(why, default=Code.PROVIDER_OVERLOADED),
                f"The provider failed {self._failed_calls} times in a row: {why[:300]}",
                waits=why,
            )

    def _step_start(self) -> list[Event]:
        events: list[Event] = []
        if self._running:
            events.append(self.book(self._guess(), source="estimated"))
            self._unfinished += 1
            if self._unfinished >= MAX_UNFINISHED_STEPS:
                self.give_up = Ending(
                    Code.STREAM_BROKEN,
                    f"The provider broke off its answer {self._unfinished} times in a row.",
                )
        self.turns += 1
        self.steps += 1
        self._step_chars = self.output_chars
        self._running = self.give_up is None
        return events

    def _tool(self, part: dict[str, Any]) -> list[Event]:
        state = part.get("state") or {}
        id_ = str(part.get("callID") or part.get("id") or "")
        events = self.begin_step(id_, str(part.get("tool") or "tool"), state.get("input"))
        failed = state.get("status") == "error"
        output = state.get("error") if failed else state.get("output")
        return events + self.end_step(id_, output, is_error=failed)

    def _step_finish(self, part: dict[str, Any]) -> list[Event]:
        self._running = False
        self._unfinished = self._failed_calls = 0
        self._reason = str(part.get("reason") or "")
        tokens = _tokens(part.get("tokens") or {})
        if tokens:
            self._unknown = 0
            self.context_tokens = tokens.input
            return [self.book(tokens)]
        self._unknown += 1
        if self._unknown >= MAX_UNKNOWN_STEPS:
            self.give_up = Ending(
                Code.STREAM_BROKEN,
                f"The provider's answer ended too early {self._unknown} times in a row, and "
                "OpenCode keeps asking. It was stopped.",
            )
        return [self.book(self._guess(), source="estimated")]

    def _guess(self) -> Tokens:
        guess = self.estimate()
        guess.output = -(-(self.output_chars - self._step_chars) // 4)
        guess.input += self._step_chars // 4
        return guess

    def _failure_text(self) -> str:
        data = self._failure.get("data") or {}
        return str(data.get("message") or self._failure.get("name") or "OpenCode reports an error.")

    # --- the end -------------------------------------------------------------------------------

    def ending(self, exit_code: int | None) -> Ending:
        if self._failure:
            return self._failed()
        match self._reason:
            case "stop" if self.answer.strip() or self.acted:
                return Ending()
            case "length":
                return Ending(Code.TRUNCATED_OUTPUT, "The answer hit the model's token limit.")
            case "content-filter":
                return Ending(Code.REFUSED, "The provider's content filter blocked the answer.")
        if self.denied:
            wanted = ", ".join(self.denied[:3])
            return Ending(
                Code.BAD_RESULT,
                f"OpenCode ended without an answer: it was not allowed {wanted}. Allow it in the "
                "project's opencode.json, or switch autoApprove on.",
            )
        if self._reason:
            return Ending(
                Code.BAD_RESULT, f"OpenCode ended without an answer (reason {self._reason!r})."
            )
        return self.wordless(exit_code, STDERR)

    def _failed(self) -> Ending:
        message = self._failure_text()
        data = self._failure.get("data") or {}
        name = str(self._failure.get("name") or "")
        if "ContentFilter" in name:
            return Ending(Code.REFUSED, message)
        if name == "UnknownError":
            message += " The model's name or the provider's key is likely wrong."
            return Ending(Code.CONFIG_INVALID, message)
        status = data.get("statusCode")
        default = Code.PROVIDER_OVERLOADED if data.get("isRetryable") else Code.EXIT_NONZERO
        code = classify(f"{name} {message}", status=status, default=default)
        told = f"{dumps(data.get('responseHeaders') or {})}\n{data.get('responseBody') or ''}"
        return Ending(code, message, waits=told)

    def usages(self) -> list[Usage]:
        """Steps were booked as they ended; one that was cut short is estimated."""
        if not self._running:
            return []
        self._running = False
        return [self.book(self._guess(), source="estimated")]


def _tokens(raw: Mapping[str, Any]) -> Tokens:
    """OpenCode counts the parts apart: input without the cache, output without reasoning."""
    cache = raw.get("cache") or {}
    read, written = count(cache.get("read")), count(cache.get("write"))
    reasoning = count(raw.get("reasoning"))
    return Tokens(
        input=count(raw.get("input")) + read + written,
        cache_read=read,
        cache_write=written,
        output=count(raw.get("output")) + reasoning,
        reasoning=reasoning,
    )
