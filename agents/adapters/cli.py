"""A command-line agent: how it is called, told, watched, resumed, stopped and understood.

A CLI's own file declares its arguments, environment and `Reader`. The outcome is what the stream
says, never the exit code alone.
Read next: `agents/adapters/claude_local.py`, then `agents/adapters/cli_run.py`.
"""

from __future__ import annotations

import abc
import asyncio
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from agents.adapters import fields, isolation, program
from agents.adapters.base import (
    AdapterError,
    AnyConfig,
    Brief,
    Check,
    Code,
    ConfigClass,
    Done,
    Event,
)
from agents.adapters.cli_reader import Expectation, Reader
from agents.adapters.cli_run import CliRun, Place
from agents.adapters.cli_watch import probe

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
VERSION_SECONDS = 30.0
HELLO_SECONDS = 40.0  # who presses the button looks on; the programs repeat failed calls
HINTS = {
    Code.CONNECT_FAILED: "Is the address right, and the network open to this machine?",
    Code.MODEL_NOT_FOUND: "Correct `model`, or leave it empty.",
    Code.PROVIDER_OVERLOADED: "Its provider is in trouble; try again later.",
    Code.RATE_LIMITED: "The key works, and is at its limit; try again later.",
    Code.QUOTA_EXHAUSTED: "The key works, and its quota is used up.",
    Code.TIMED_OUT: "Its provider may be slow or in trouble; a local model may need longer.",
    Code.CONFIG_INVALID: "Read its words; correct the configuration.",
}

Words = Annotated[list[program.Argument], Field(max_length=200)]


class CliConfig(program.ProgramConfig):
    """What all command-line agents have in common. Bypassing a program's permission checks is
    a switch of its own in each, and off."""

    command: program.Command | None = None
    model: fields.Name | None = None
    max_turns_per_run: int | None = Field(None, ge=1, le=10_000)
    extra_args: Words = Field(default_factory=list)
    idle_timeout_sec: float = Field(900, gt=0, le=7 * 24 * 3600, allow_inf_nan=False)
    max_output_bytes: int = Field(64 * 1024**2, ge=1024, le=1024**3)
    max_output_lines: int = Field(500_000, ge=100, le=10_000_000)
    max_steps_per_minute: int = Field(180, ge=1, le=100_000)
    session_max_tokens: int = Field(150_000, ge=1_000, le=10_000_000)


class CliAdapter(abc.ABC):
    """Base of the adapters for command-line agents."""

    type: ClassVar[str]
    label: ClassVar[str]
    description: ClassVar[str]
    Config: ClassVar[ConfigClass] = CliConfig
    retry_safe: ClassVar[bool] = False  # it may have done anything
    uses_tools: ClassVar[bool] = False  # it has its own, and the API
    needs_folder: ClassVar[bool] = True
    simulated: ClassVar[bool] = False

    program: ClassVar[str]  # the command's usual name
    session_pattern: ClassVar[re.Pattern[str]]
    limits_turns: ClassVar[bool] = False  # it keeps maxTurnsPerRun itself
    key_names: ClassVar[tuple[str, ...]] = ()
    login_hint: ClassVar[str] = ""

    def __init__(self) -> None:
        self._versions: dict[tuple[str, float], str] = {}

    # --- what each declares -------------------------------------------------------------------

    @abc.abstractmethod
    def arguments(self, config: CliConfig, place: Place, session_id: str) -> list[str]:
        """The argument list without the command; the prompt comes on standard input."""

    def closing_arguments(self, session_id: str) -> list[str]:
        """What must stand after the operator's own arguments."""
        return []

    @abc.abstractmethod
    def environment(self, config: CliConfig, place: Place) -> dict[str, str]:
        """Its own variables. May write files into the run's folder."""

    @abc.abstractmethod
    def provider(self, config: CliConfig, env: Mapping[str, str]) -> tuple[str, bool]:
        """Who is paid, and whether it is the program's own vendor (whose prices it knows)."""

    @abc.abstractmethod
    def reader(self, expected: Expectation) -> Reader: ...

    @abc.abstractmethod
    def checks(self, config: CliConfig, env: Mapping[str, str]) -> list[Check]:
        """What can be said of login and permissions without starting anything."""

    def settle(self, reader: Reader, env: Mapping[str, str]) -> None:
        """Tell the reader what the program's own files know, once its processes are gone."""
        return None

    def model_name(self, config: CliConfig) -> str:
        return config.model or ""

    # --- what all do ---------------------------------------------------------------------------

    async def run(self, brief: Brief) -> AsyncGenerator[Event, None]:
        config = self._config(brief.config)
        own_dir = "" if brief.run_dir else tempfile.mkdtemp(prefix="paperclip-run-")
        try:
            run = CliRun(self, brief, config, brief.run_dir or own_dir)
            async with aclosing(run.events()) as events:
                async for event in events:
                    yield event
        finally:
            if own_dir:
                await asyncio.to_thread(shutil.rmtree, own_dir, ignore_errors=True)

    async def test(
        self, config: AnyConfig, secrets: Mapping[str, str], *, hello: bool = True
    ) -> list[Check]:
        """Is it installed, which version, can it log in, what may it do; with `hello`, and when
        nothing speaks against it, ask it for one word, which costs what a small run costs."""
        assert isinstance(config, CliConfig)
        folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="paperclip-test-")
        try:
            return await self._test(config, secrets, folder, hello=hello)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def aclose(self) -> None:
        return None

    async def _test(
        self, config: CliConfig, secrets: Mapping[str, str], folder: str, *, hello: bool
    ) -> list[Check]:
        try:
            env = program.environment_base(config, secrets, home=folder)
            path = program.executable(config.command or self.program, cwd=folder, path=env["PATH"])
            place = Place(folder, folder, folder, env)
            env = {**self.environment(config, place), **env}
        except AdapterError as error:
            missing = error.code is Code.NOT_INSTALLED
            hint = "Install it, or set `command` to its full path." if missing else ""
            return [Check("Program", False, error.message, hint)]
        walls, checks = None, []
        if config.isolation != "none":
            checks = [await isolation.explained(config, path, folder=folder, cwd=folder, env=env)]
            if not checks[0].ok:
                return checks
            walls = isolation.of(config, writable=[folder])
        version = await self.version(path, env, folder, walls=walls)
        if not version:
            hint = f"Run `{path} --version` as the user that runs Paperclip."
            return [Check("Program", False, f"{path} does not tell its version.", hint)]
        checks.insert(0, Check("Program", True, f"{path}, version {version}."))
        if walls is not None and not walls.network:
            said = "Isolated without a network, it reaches neither its model nor Paperclip."
            checks.append(Check("Network", False, said, "Open the network (isolationNetwork)."))
        checks += self.checks(config, env)
        if hello and all(check.ok for check in checks):
            checks.append(await self._hello(config, secrets))
        return checks

    async def _hello(self, config: CliConfig, secrets: Mapping[str, str]) -> Check:
        began = time.monotonic()
        login = self.login_hint
        brief = Brief(
            run_id=str(uuid.uuid4()),
            agent_id="",
            company_id="",
            agent_name="a test",
            company_name="its operator",
            reason="manual",
            config=config.model_dump(by_alias=True, exclude_unset=True)
            | {"timeoutSec": min(config.timeout_sec, HELLO_SECONDS), "cwd": None},
            instructions="This is a test of the connection. Answer with the word OK only.",
            secrets=secrets,
        )
        try:
            async with aclosing(self.run(brief)) as events:
                async for event in events:
                    if isinstance(event, Done):
                        took = time.monotonic() - began
                        said = event.summary.strip()[:100]
                        return Check("Answer", True, f"It answered in {took:.1f} s: {said}")
        except AdapterError as error:
            return Check("Answer", False, error.message, HINTS.get(error.code, "") or login)
        return Check("Answer", False, "It did not answer.")

    async def version(
        self,
        path: str,
        env: Mapping[str, str],
        cwd: str,
        *,
        walls: isolation.Walls | None = None,
    ) -> str:
        """What `--version` prints, "" when it does not; asked once for each installed file."""
        mark = (path, await asyncio.to_thread(os.path.getmtime, path))
        if mark not in self._versions:
            program_, argv = path, [path, "--version"]
            if walls is not None:
                program_, argv = walls.around(path, argv, cwd=cwd)
            asked = await probe(program_, argv[1:], env=env, cwd=cwd, seconds=VERSION_SECONDS)
            found = re.search(r"\d+\.\d+[\w.+-]*", asked.stdout) if asked.code == 0 else None
            if found is None:
                return ""
            self._versions[mark] = found[0]
        return self._versions[mark]

    def login_check(self, env: Mapping[str, str], file: str) -> Check:
        """Whether a key is bound, or a login lies in `file`."""
        name = next((name for name in self.key_names if env.get(name)), "")
        if name:
            return Check("Login", True, f"{name} is set.")
        if file and os.path.isfile(file):
            return Check("Login", True, f"A login is kept in {file}.")
        return Check("Login", False, f"{self.label} has no key and no login.", self.login_hint)

    def _config(self, raw: Mapping[str, Any]) -> CliConfig:
        try:
            config = self.Config.model_validate(dict(raw))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise AdapterError(Code.CONFIG_INVALID, f"{where}: {first['msg']}") from error
        assert isinstance(config, CliConfig)
        return config


def host_of(url: str) -> str:
    """The host that a base URL names, in lower case."""
    return (urlsplit(url).hostname or "").lower()
