"""Any program as an agent: it gets the work on standard input and reports by a JSON object.

An argument list, never a shell string. The environment is made from nothing: what a program
needs to start, the run's own facts, and what the operator bound to the agent.
Read next: `agents/adapters/results.py` for the result protocol.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import stat
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar

import orjson
from pydantic import Field, ValidationError

from agents.adapters import failures, isolation, program, results
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
    Text,
)
from agents.adapters.child import Child
from agents.adapters.proctree import POLL_SECONDS, Tree

DRAIN_SECONDS = 1.0  # after the end, for output that is still on its way
TICK_SECONDS = 0.25
LOOK_SECONDS = 2.0  # between snapshots of the descendants
TAIL_CHARS = 64 * 1024  # of standard output, in which the result is looked for
SUMMARY_CHARS = 4000
STRAY_GRACE_SECONDS = 1.0


class ProcessConfig(program.ProgramConfig):
    """Which program to run and within which bounds; 0 switches the idle limit off."""

    command: program.Command
    args: list[program.Argument] = Field(default_factory=list, max_length=1000)


class Process:
    type: ClassVar[str] = "process"
    label: ClassVar[str] = "Program"
    description: ClassVar[str] = (
        "Any program or script on this machine, started with a list of arguments."
    )
    Config: ClassVar[ConfigClass] = ProcessConfig
    retry_safe: ClassVar[bool] = False  # it may have done anything
    uses_tools: ClassVar[bool] = False
    needs_folder: ClassVar[bool] = True
    simulated: ClassVar[bool] = False

    async def run(self, brief: Brief) -> AsyncGenerator[Event, None]:
        try:
            config = ProcessConfig.model_validate(dict(brief.config))
        except ValidationError as error:
            raise AdapterError(Code.CONFIG_INVALID, str(error)) from error
        own_dir = "" if brief.run_dir else tempfile.mkdtemp(prefix="paperclip-run-")
        try:
            async with aclosing(Execution(brief, config, brief.run_dir or own_dir).events()) as run:
                async for event in run:
                    yield event
        finally:
            if own_dir:
                await asyncio.to_thread(shutil.rmtree, own_dir, ignore_errors=True)

    async def test(self, config: AnyConfig, secrets: Mapping[str, str]) -> list[Check]:
        assert isinstance(config, ProcessConfig)
        checks = await asyncio.to_thread(_checks, config, secrets)
        if config.isolation != "none" and all(check.ok for check in checks):
            checks.append(await _walls_check(config, secrets))
        return checks

    async def aclose(self) -> None:
        return None


def _checks(config: ProcessConfig, secrets: Mapping[str, str]) -> list[Check]:
    checks = []
    cwd = config.cwd or ""
    if cwd and os.path.isabs(cwd):
        ok = os.path.isdir(cwd)
        message = f"{cwd} is there." if ok else f"{cwd} is not a folder on this machine."
        hint = "" if ok else "Create it, or correct the working folder (cwd)."
        checks.append(Check("Folder", ok, message, hint))
    try:
        env = program.environment_base(config, secrets, home="/nonexistent")
        path = program.executable(config.command, cwd=cwd or os.getcwd(), path=env["PATH"])
        checks.append(Check("Program", True, f"{path} can be run. It was not started."))
        checks += _script_check(config)
    except AdapterError as error:
        hint = "Install it, or give its full path." if error.code is Code.NOT_INSTALLED else ""
        checks.append(Check("Program", False, error.message, hint))
    return checks


async def _walls_check(config: ProcessConfig, secrets: Mapping[str, str]) -> Check:
    with tempfile.TemporaryDirectory(prefix="paperclip-test-") as folder:
        cwd = os.path.join(folder, config.cwd or "")
        env = program.environment_base(config, secrets, home=folder)
        path = program.executable(config.command, cwd=cwd, path=env["PATH"])
        return await isolation.explained(config, path, folder=folder, cwd=cwd, env=env)


# What starts a script that is named by its arguments, and the options after which none is.
INTERPRETERS = re.compile(
    r"(?:python|pypy|ruby|perl|php|lua)[\d.]*|node|nodejs|bun|deno|tsx|(?:ba|da|z|k|a)?sh|Rscript"
)
INSTEAD_OF_A_SCRIPT = frozenset({"-c", "-m", "-e", "-p", "-r", "-", "--eval", "--print"})
SCRIPT = re.compile(r"/|\.(?:py|pyz|sh|bash|js|mjs|cjs|ts|rb|pl|php|lua|R)$")


def _script_check(config: ProcessConfig) -> list[Check]:
    """Is the script there that an interpreter is given? Nothing is said where that is not clear."""
    script = _script(config)
    if script is None:
        return []
    path = os.path.join(config.cwd or "", script)
    if not os.path.isabs(path):
        said = f"{script} is looked for in the project's folder or the agent's own; not checked."
        return [Check("Script", True, said, "A full path, or a working folder, can be checked.")]
    if os.path.isfile(path):
        return [Check("Script", True, f"{path} is there. It was not started.")]
    return [Check("Script", False, f"{path} is not a file on this machine.", "Correct the path.")]


def _script(config: ProcessConfig) -> str | None:
    if not INTERPRETERS.fullmatch(os.path.basename(config.command)):
        return None
    for before, argument in zip(["", *config.args], config.args, strict=False):
        if argument in INSTEAD_OF_A_SCRIPT:
            return None
        if argument.startswith("-") or (before.startswith("-") and not SCRIPT.search(argument)):
            continue  # an option, or perhaps its value
        return argument if SCRIPT.search(argument) else None
    return None


class Execution:
    """One run of the program."""

    def __init__(self, brief: Brief, config: ProcessConfig, run_dir: str) -> None:
        self.brief = brief
        self.config = config
        self.run_dir = run_dir
        self.result_file = os.path.join(run_dir, "result.json")
        self.tail = ""  # of standard output
        self.last_error = ""  # of standard error

    async def events(self) -> AsyncGenerator[Event, None]:
        config = self.config
        cwd = self._cwd()
        env = self._environment(cwd)
        path = program.executable(config.command, cwd=cwd, path=env["PATH"])
        argv = [config.command, *config.args]
        brief = self.brief
        folders = [brief.workspace or self.run_dir, cwd, self.run_dir]
        walls = isolation.of(config, writable=folders, repository=brief.repository)
        executable = path
        if walls is not None:
            await isolation.check(walls, path, env=env, cwd=cwd)
            executable, argv = walls.around(path, argv, cwd=cwd)
        try:
            child = Child(
                executable=executable,
                argv=argv,
                cwd=cwd,
                env=env,
                stdin=orjson.dumps(dict(self.brief.payload), default=str),
                limits=config.limits(),
            )
        except (OSError, ValueError) as error:
            raise AdapterError(Code.CONFIG_INVALID, f"Could not start {path}: {error}") from error
        tree = Tree(root=child.pid, run_id=brief.run_id, walled=walls is not None)
        ended_well = False
        try:
            yield Started(model="", detail={"command": config.command, "pid": child.pid})
            await child.listen()
            async with aclosing(self._watch(child, tree)) as output:
                async for text in output:
                    yield text
            ended_well = True
        finally:
            await self._clean_up(child, tree, gently=not ended_well)
        async for event in self._judge(child.returncode or 0):
            yield event

    async def _watch(self, child: Child, tree: Tree) -> AsyncGenerator[Text, None]:
        """Its output until it ends. Raises when it goes over a limit."""
        config = self.config
        loop = asyncio.get_running_loop()
        deadline = loop.time() + config.timeout_sec
        alive_at = looked_at = loop.time()
        while child.returncode is None:
            piece = await child.next(seconds=TICK_SECONDS)
            now = loop.time()
            if piece is not None and piece[1]:
                alive_at = now
                yield self._noted(*piece)
            if child.bytes_out > config.max_output_bytes:
                raise AdapterError(
                    Code.OUTPUT_LIMIT,
                    f"The program wrote more than {config.max_output_bytes} bytes.",
                    acted=True,
                )
            if now >= deadline:
                raise AdapterError(
                    Code.TIMED_OUT,
                    f"The program ran longer than {config.timeout_sec:g} seconds.",
                    acted=True,
                )
            if config.idle_timeout_sec and now - alive_at >= config.idle_timeout_sec:
                raise AdapterError(
                    Code.IDLE,
                    f"The program wrote nothing for {config.idle_timeout_sec:g} seconds.",
                    acted=True,
                )
            if now - looked_at >= LOOK_SECONDS:
                looked_at = now
                await asyncio.to_thread(tree.look)
        until = loop.time() + DRAIN_SECONDS  # a child of it may hold the pipes for ever
        while loop.time() < until and not child.output_ended:
            piece = await child.next(seconds=POLL_SECONDS)
            if piece is not None and piece[1]:
                yield self._noted(*piece)
        while (piece := child.waiting()) is not None:
            if piece[1]:
                yield self._noted(*piece)

    def _noted(self, channel: str, text: str) -> Text:
        if channel == "stdout":
            self.tail = (self.tail + text)[-TAIL_CHARS:]
            return Text(text, "stdout")
        self.last_error = (self.last_error + text)[-SUMMARY_CHARS:]
        return Text(text, "stderr")

    async def _clean_up(self, child: Child, tree: Tree, *, gently: bool) -> None:
        """Nothing of a run outlives it, whichever way it ends."""
        child.discard()
        step = self.config.grace_sec / 2
        if gently:
            ladder = [(signal.SIGINT, step), (signal.SIGTERM, step)]
        else:
            ladder = [(signal.SIGTERM, min(step, STRAY_GRACE_SECONDS))]
        try:
            await tree.end(signals=ladder)
            await child.wait(seconds=2.0)
        except BaseException:
            tree.kill()  # a second cancellation: no more patience
            raise
        finally:
            child.close()

    async def _judge(self, code: int) -> AsyncGenerator[Event, None]:
        """What the run amounts to, by what it reported and how it ended."""
        raw = await asyncio.to_thread(self._reported)
        outcome = None
        if raw is not None:
            outcome = results.read(raw, provider=os.path.basename(self.config.command))
            if outcome.usage is not None:
                yield outcome.usage  # spent is spent, also by a run that failed
        if code:
            raise AdapterError(
                Code.EXIT_NONZERO,
                self._how_it_ended(code),
                acted=True,
                detail={"exitCode": code, "stderr": failures.redact(self.last_error)},
            )
        if outcome is not None and outcome.failure is not None:
            raise outcome.failure
        if outcome is not None:
            yield outcome.done
        else:
            yield Done(summary=self._last_words())

    def _reported(self) -> Mapping[str, Any] | None:
        raw = self._result_in_file()
        if raw is not None:
            return raw
        for line in reversed(self.tail.splitlines()):
            if (found := results.recognise(line)) is not None:
                return found
        return None

    def _result_in_file(self) -> Mapping[str, Any] | None:
        try:
            descriptor = os.open(self.result_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise AdapterError(
                Code.BAD_RESULT, f"The result file cannot be read: {error.strerror}", acted=True
            ) from error
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        if regular:
            with os.fdopen(descriptor, "rb") as file:
                content = file.read(results.MAX_RESULT_BYTES + 1)
        else:
            os.close(descriptor)  # a folder cannot even be made a file of
            content = b""
        if not regular or len(content) > results.MAX_RESULT_BYTES:
            raise AdapterError(
                Code.BAD_RESULT, "The result file is too large or no file.", acted=True
            )
        if not content.strip():
            return None
        found = results.recognise(content)
        if found is None:
            raise AdapterError(
                Code.BAD_RESULT, "The result file holds no result object.", acted=True
            )
        return found

    def _how_it_ended(self, code: int) -> str:
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"signal {-code}"
            hint = " It may have run out of memory." if -code == signal.SIGKILL else ""
            return f"The program was ended by {name}.{hint}"
        last = next((ln for ln in reversed(self.last_error.splitlines()) if ln.strip()), "")
        said = f": {failures.redact(last.strip())[:500]}" if last else "."
        return f"The program ended with exit code {code}{said}"

    def _last_words(self) -> str:
        return self.tail.strip()[-SUMMARY_CHARS:]

    def _cwd(self) -> str:
        base = self.brief.workspace or self.run_dir
        cwd = os.path.join(base, self.config.cwd) if self.config.cwd else base
        if not os.path.isdir(cwd):
            raise AdapterError(Code.CONFIG_INVALID, f"{cwd} is not a folder on this machine.")
        return cwd

    def _environment(self, cwd: str) -> dict[str, str]:
        home = Path(self.run_dir, "home")
        temporary = Path(self.run_dir, "tmp")
        for folder in (home, temporary):
            folder.mkdir(mode=0o700, exist_ok=True)
        brief = self.brief
        env = program.environment_base(self.config, brief.secrets, home=str(home))
        env.setdefault("TMPDIR", str(temporary))
        env.update(program.run_facts(brief, cwd=cwd))
        env["PAPERCLIP_RESULT_FILE"] = self.result_file
        return env
