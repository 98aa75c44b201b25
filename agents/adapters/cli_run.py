"""One run of a command-line agent: its folders, its session, its start, its end.

Read next: `agents/adapters/cli_watch.py`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.adapters import cli_prompt, cli_session, failures, isolation, program, resets
from agents.adapters.base import (
    AdapterError,
    Brief,
    Code,
    Done,
    Event,
    Note,
    Started,
    Step,
    Text,
    Usage,
)
from agents.adapters.cli_reader import Ending, Expectation, dumps
from agents.adapters.cli_watch import Attempt, Bounds

if TYPE_CHECKING:
    from agents.adapters.cli import CliAdapter, CliConfig

WORST_OUTPUT_TOKENS = 8_000  # of the first call, when the budget is asked
MIN_SECRET_CHARS = 8

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


# What may change while a conversation goes on.
NO_MATTER = {"env", "timeout_sec", "isolation", "isolation_network"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run happens. `env` is what the operator bound, and what any program needs."""

    home: str
    cwd: str
    run_dir: str
    env: Mapping[str, str]


class CliRun:
    """One run: one start of the program, or two when its session turns out to be gone."""

    def __init__(self, adapter: CliAdapter, brief: Brief, config: CliConfig, run_dir: str) -> None:
        self.adapter = adapter
        self.brief = brief
        self.config = config
        self.run_dir = os.path.abspath(run_dir)
        hidden = {brief.api_key, *brief.secrets.values()}
        self._hidden = [text for text in hidden if len(text) >= MIN_SECRET_CHARS]
        self._began = time.monotonic()
        self._walls: isolation.Walls | None = None

    async def events(self) -> AsyncGenerator[Event, None]:
        place = await asyncio.to_thread(self._place)
        env = await asyncio.to_thread(self._environment, place)
        command = self.config.command or self.adapter.program
        path = program.executable(command, cwd=place.cwd, path=env["PATH"])
        self._walls = self._fence(place)
        if self._walls is not None:
            await isolation.check(self._walls, path, env=env, cwd=place.cwd)
        version = await self.adapter.version(path, env, place.cwd, walls=self._walls)
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
        executable = path
        if self._walls is not None:
            executable, argv = self._walls.around(path, argv, cwd=place.cwd)
        return Attempt(
            reader=reader,
            executable=executable,
            argv=argv,
            walled=self._walls is not None,
            cwd=place.cwd,
            env=env,
            stdin=text.encode(),
            run_id=self.brief.run_id,
            limits=config.limits(),
            bounds=Bounds(
                wall_seconds=config.timeout_sec,
                # One limit for the run, however often the program is started in it.
                spent_seconds=time.monotonic() - self._began,
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

    def _fence(self, place: Place) -> isolation.Walls | None:
        work = os.path.join(os.path.dirname(place.home), "work")
        folders = [self.brief.workspace or work, place.cwd, place.home, self.run_dir]
        return isolation.of(self.config, writable=folders, repository=self.brief.repository)

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
        config = self.config.model_dump(mode="json", exclude=NO_MATTER)
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
        code, wait = _until_reset(ending, ending.code, attempt.env)
        raise AdapterError(
            code,
            failures.redact(self._hide(ending.message)),
            retry_after=wait,
            acted=reader.acted,
            detail=facts,
        )

    # --- what leaves -----------------------------------------------------------------------------

    def _masked(self, event: Event, *, version: str, path: str) -> Event:
        """The event without the run's key and the agent's secrets, whoever printed them."""
        match event:
            case Started():
                return replace(event, detail={"version": version, "command": path, **event.detail})
            case Note():
                return replace(event, text=self._hide(event.text))
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


def _until_reset(ending: Ending, code: Code, env: Mapping[str, str]) -> tuple[Code, float | None]:
    """The seconds that the program asks to wait, by its message; its times are told in its zone."""
    if ending.retry_after is not None:
        return code, ending.retry_after
    return failures.until_reset(code, f"{ending.waits}\n{ending.message}", zone=resets.zone_of(env))
