"""A command-line agent: how it is called, told, watched, resumed, stopped and understood.

A CLI's own file declares its arguments, environment and `Reader`; one run of any of them is
carried here. The outcome is what the stream says, never the exit code alone.
Read next: `agents/adapters/claude_local.py`, then `agents/adapters/cli_watch.py`.
"""

from __future__ import annotations

import abc
import asyncio
import functools
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from agents.adapters import cli_prompt, cli_session, failures, fields, program
from agents.adapters.base import (
    AdapterError,
    AnyConfig,
    Brief,
    Check,
    Code,
    ConfigClass,
    Done,
    Event,
    Started,
    Step,
    Text,
    Usage,
)
from agents.adapters.cli_reader import Ending, Expectation, Reader, dumps
from agents.adapters.cli_watch import Attempt, Bounds, probe

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
WORST_OUTPUT_TOKENS = 8_000  # of the first call, when the budget is asked
MIN_SECRET_CHARS = 8
VERSION_SECONDS = 30.0

# After these the conversation is sound; after any other failure the next run begins anew.
RESUMABLE = frozenset(
    {
        Code.RATE_LIMITED,
        Code.QUOTA_EXHAUSTED,
        Code.PROVIDER_OVERLOADED,
        Code.CONNECT_FAILED,
        Code.STREAM_BROKEN,
        Code.TURN_LIMIT,
        Code.BUDGET,
    }
)

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


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run happens. `env` is what the operator bound, and what any program needs."""

    home: str
    cwd: str
    run_dir: str
    env: Mapping[str, str]


class CliAdapter(abc.ABC):
    """Base of the adapters for command-line agents."""

    type: ClassVar[str]
    label: ClassVar[str]
    description: ClassVar[str]
    Config: ClassVar[ConfigClass] = CliConfig
    retry_safe: ClassVar[bool] = False  # it may have done anything
    uses_tools: ClassVar[bool] = False  # it has its own, and the API
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
        self, config: AnyConfig, secrets: Mapping[str, str], *, hello: bool = False
    ) -> list[Check]:
        """Is it installed, which version, can it log in, what may it do; with `hello`, ask it
        for one word, which costs what a run costs."""
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
        version = await self.version(path, env, folder)
        if not version:
            hint = f"Run `{path} --version` as the user that runs Paperclip."
            return [Check("Program", False, f"{path} does not tell its version.", hint)]
        checks = [Check("Program", True, f"{path}, version {version}.")]
        checks += self.checks(config, env)
        if hello and all(check.ok for check in checks):
            checks.append(await self._hello(config, secrets))
        return checks

    async def _hello(self, config: CliConfig, secrets: Mapping[str, str]) -> Check:
        began = time.monotonic()
        brief = Brief(
            run_id=str(uuid.uuid4()),
            agent_id="",
            company_id="",
            agent_name="a test",
            company_name="its operator",
            reason="manual",
            config=config.model_dump(by_alias=True, exclude_unset=True),
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
            return Check("Answer", False, error.message, self.login_hint)
        return Check("Answer", False, "It did not answer.")

    async def version(self, path: str, env: Mapping[str, str], cwd: str) -> str:
        """What `--version` prints, "" when it does not; asked once for each installed file."""
        mark = (path, await asyncio.to_thread(os.path.getmtime, path))
        if mark not in self._versions:
            asked = await probe(path, ["--version"], env=env, cwd=cwd, seconds=VERSION_SECONDS)
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


class CliRun:
    """One run: one start of the program, or two when its session turns out to be gone."""

    def __init__(self, adapter: CliAdapter, brief: Brief, config: CliConfig, run_dir: str) -> None:
        self.adapter = adapter
        self.brief = brief
        self.config = config
        self.run_dir = os.path.abspath(run_dir)
        hidden = {brief.api_key, *brief.secrets.values()}
        self._hidden = [text for text in hidden if len(text) >= MIN_SECRET_CHARS]

    async def events(self) -> AsyncGenerator[Event, None]:
        place = await asyncio.to_thread(self._place)
        env = await asyncio.to_thread(self._environment, place)
        command = self.config.command or self.adapter.program
        path = program.executable(command, cwd=place.cwd, path=env["PATH"])
        version = await self.adapter.version(path, env, place.cwd)
        mark = self._fingerprint()
        plan = cli_session.plan(
            self.brief.session,
            id_pattern=self.adapter.session_pattern,
            cwd=place.cwd,
            mark=mark,
            now=time.time(),
            max_context_tokens=self.config.session_max_tokens,
        )
        calls = 0
        while True:
            if plan.reason:
                yield Text(f"A fresh session begins: {plan.reason}.\n", "stderr")
            attempt = await self._attempt(path, place, env, plan)
            attempt.reader.calls = calls
            async with aclosing(attempt.events()) as events:
                async for event in events:
                    yield self._masked(event, version=version, path=path)
            ending = attempt.ending()
            if not (ending.session_gone and plan.id) or attempt.reader.acted:
                break
            calls = attempt.reader.calls
            plan = plan.afresh(f"{self.adapter.label} does not know the old one any more")
        kept = cli_session.keep(plan, attempt.reader, cwd=place.cwd, mark=mark, now=time.time())
        if kept:
            kept["note"] = self._hide(kept["note"])
        yield self._concluded(attempt, ending, kept, version)

    async def _attempt(
        self, path: str, place: Place, env: Mapping[str, str], plan: cli_session.Plan
    ) -> Attempt:
        adapter, config = self.adapter, self.config
        text = cli_prompt.write(self.brief, resumed=bool(plan.id), left_behind=plan.note)
        provider, first_party = adapter.provider(config, env)
        expected = Expectation(
            provider=provider,
            model=adapter.model_name(config),
            prompt_chars=len(text),
            session_id=plan.id,
            session_usage=plan.usage,
            first_party=first_party,
        )
        reader = adapter.reader(expected)
        await self.brief.grant_call(
            provider=provider,
            model=expected.model,
            input_tokens=reader.overhead_tokens + len(text) // 3,
            max_output_tokens=WORST_OUTPUT_TOKENS,
        )
        argv = [config.command or adapter.program, *adapter.arguments(config, place, plan.id)]
        argv += [*config.extra_args, *adapter.closing_arguments(plan.id)]
        return Attempt(
            reader=reader,
            executable=path,
            argv=argv,
            cwd=place.cwd,
            env=env,
            stdin=text.encode(),
            run_id=self.brief.run_id,
            limits=config.limits(),
            bounds=Bounds(
                wall_seconds=config.timeout_sec,
                idle_seconds=config.idle_timeout_sec,
                grace_seconds=config.grace_sec,
                bytes=config.max_output_bytes,
                lines=config.max_output_lines,
                steps_per_minute=config.max_steps_per_minute,
                turns=None if adapter.limits_turns else config.max_turns_per_run,
            ),
            book_usage=self.brief.book_usage,
            settle=functools.partial(adapter.settle, reader, env),
        )

    def _place(self) -> Place:
        """Its folders: a home that lives as long as the agent where there is one."""
        brief = self.brief
        base = os.path.abspath(brief.agent_dir or self.run_dir)
        home = Path(base, self.adapter.type)
        work = Path(base, "work")
        for folder in (home, Path(self.run_dir, "tmp")):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not brief.workspace:
            work.mkdir(mode=0o700, exist_ok=True)
        cwd = os.path.join(brief.workspace or work, self.config.cwd or "")
        cwd = os.path.normpath(os.path.abspath(cwd))
        if not os.path.isdir(cwd):
            raise AdapterError(Code.CONFIG_INVALID, f"{cwd} is not a folder on this machine.")
        env = program.environment_base(self.config, brief.secrets, home=str(home))
        return Place(str(home), cwd, self.run_dir, env)

    def _environment(self, place: Place) -> dict[str, str]:
        commands = cli_prompt.lay_out(self.brief, self.run_dir)
        env = {
            "NO_COLOR": "1",
            "TMPDIR": str(Path(self.run_dir, "tmp")),
            **self.adapter.environment(self.config, place),
            **place.env,  # the operator has the last word, but for what follows
            **program.run_facts(self.brief, cwd=place.cwd),
        }
        env["PATH"] = f"{commands}{os.pathsep}{env['PATH']}"
        return env

    def _fingerprint(self) -> str:
        config = self.config.model_dump(mode="json", exclude={"env", "timeout_sec"})
        return cli_session.fingerprint(self.adapter.type, config)

    def _concluded(
        self, attempt: Attempt, ending: Ending, kept: dict[str, Any], version: str
    ) -> Done:
        """The good end; raises AdapterError for any other."""
        reader = attempt.reader
        facts: dict[str, Any] = {
            "version": reader.version or version,
            "exitCode": attempt.exit_code,
            "turns": reader.turns,
        }
        if reader.denied:
            facts["denied"] = reader.denied[:50]
        if ending.code is None:
            summary, status = cli_prompt.wish(self._hide(reader.answer))
            facts["session"] = kept
            return Done(summary=summary, status=status, result=facts, session_id=reader.session_id)
        if ending.code in RESUMABLE and kept:
            facts["session"] = kept
        if said := self._hide(reader.stderr.strip()):
            facts["stderr"] = failures.redact(said)
        raise AdapterError(
            ending.code,
            failures.redact(self._hide(ending.message)),
            retry_after=ending.retry_after,
            acted=reader.acted,
            detail=facts,
        )

    # --- what leaves -----------------------------------------------------------------------------

    def _masked(self, event: Event, *, version: str, path: str) -> Event:
        """The event without the run's key and the agent's secrets, whoever printed them."""
        match event:
            case Started():
                return replace(event, detail={"version": version, "command": path, **event.detail})
            case Text():
                return replace(event, text=self._hide(event.text))
            case Step():
                given = event.input
                if given and any(secret in dumps(given) for secret in self._hidden):
                    given = {"input": self._hide(dumps(given))}
                return replace(event, input=given, output=self._hide(event.output))
            case Usage() | Done():
                return event

    def _hide(self, text: str) -> str:
        for secret in self._hidden:
            text = text.replace(secret, "[redacted]")
        return text


def host_of(url: str) -> str:
    """The host that a base URL names, in lower case."""
    return (urlsplit(url).hostname or "").lower()
