"""Where a run works when its issue has a work tree: taken and set up before the agent's program
starts, looked at and left after it has ended. Read next: `issues/worktrees.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from agents import runs
from agents.adapters import process
from agents.adapters.base import AdapterError, Brief, Code, Text
from companies.activity import Actor
from issues import harvest, worktrees
from issues.briefing import Briefing
from issues.git import GitError
from issues.worktrees import Plan
from paperclip.engine.hands import PASSING, Closed

log = logging.getLogger(__name__)

SETUP_SECONDS = 900.0
SETUP_OUTPUT_BYTES = 5 * 1024 * 1024
HARVEST_SECONDS = 10.0  # a stop of the instance does not wait for longer
WAIT_SECONDS = 90.0  # for a run that is being stopped
WAIT_STEP_SECONDS = 1.0
ISOLATION = ("isolation", "isolationNetwork")  # of the agent, and so of its set-up command

Insist = Callable[..., Awaitable[Any]]
Track = Callable[[asyncio.Future[Any]], asyncio.Future[Any]]
Say = Callable[[Text], Awaitable[None]]


class Workplace:
    """The work tree of one run. `insist` calls a blocking verb as long as the lease is good;
    `track` keeps what cannot be cut short and has to be waited for."""

    def __init__(self, claimed: runs.Claimed, *, insist: Insist, track: Track) -> None:
        self._claimed = claimed
        self._insist = insist
        self._track = track
        self._plan: Plan | None = None
        self._taken = False
        self._briefing: Briefing | None = None

    async def enter(self, facts: Briefing) -> Mapping[str, str]:
        """Take the issue's work tree and make it; the variables that tell the agent of it, none
        when there is none. Raises AdapterError, Stale."""
        if self._claimed.issue_id is None or not facts.workspace:
            return {}
        self._briefing = facts
        self._taken = True
        plan: Plan | None = await self._take()
        if plan is None:
            self._taken = False
            return {}
        laid = await self._unbroken(asyncio.to_thread(worktrees.lay, plan))
        if laid is not None:
            await self._insist(worktrees.note_laid, plan, laid, run_id=self._claimed.run_id)
            plan = dataclasses.replace(
                plan, git_dir=laid.git_dir, base_commit=laid.base_commit, is_set_up=False
            )
        self._plan = plan
        return {
            "PAPERCLIP_WORKSPACE_CWD": plan.path,
            "PAPERCLIP_WORKSPACE_BRANCH": plan.branch,
            **_identity(facts),
        }

    @property
    def path(self) -> str:
        return self._plan.path if self._plan else ""

    @property
    def repository(self) -> str:
        """Git's own folder of the repository, which each commit in the work tree writes to."""
        if self._plan is None or not self._plan.git_dir:
            return ""
        trees, _ = os.path.split(self._plan.git_dir)
        return os.path.dirname(trees) if os.path.basename(trees) == "worktrees" else ""

    async def set_up(self, brief: Brief, say: Say) -> None:
        """Run the project's set-up command once in a new work tree, its output in the run's log.
        It gets no key and no secret. Raises AdapterError."""
        plan = self._plan
        if plan is None or plan.is_set_up or not plan.setup_command:
            return
        command, *arguments = plan.setup_command
        config = {
            # What it runs may be an agent's, on a branch that was there before.
            **{name: brief.config[name] for name in ISOLATION if name in brief.config},
            "command": command,
            "args": arguments,
            "timeoutSec": SETUP_SECONDS,
            "maxOutputBytes": SETUP_OUTPUT_BYTES,
        }
        alone = _without_keys(brief, config)
        await say(Text(f"Setting up the work tree: {command}\n", "stdout"))
        try:
            async with aclosing(_events(alone)) as events:
                async for event in events:
                    if isinstance(event, Text):
                        await say(event)
        except AdapterError as error:
            if error.code is Code.ISOLATION_FAILED:
                raise
            raise AdapterError(Code.SETUP_FAILED, error.message, detail=error.detail) from error
        await self._insist(worktrees.note_set_up, plan, run_id=self._claimed.run_id)

    async def leave(self) -> None:
        """Write down what came of it, and let the next run in. Never raises: what cannot be
        written down now is seen again after the next run."""
        if not self._taken:
            return
        try:
            if self._plan is not None:
                await self._harvest(self._plan)
            await self._insist(worktrees.leave, run_id=self._claimed.run_id)
            self._taken = False
        except (runs.Stale, Closed, *PASSING) as error:
            log.warning("run %s: its work tree was not left: %s", self._claimed.run_id, error)
        except Exception:
            log.exception("run %s: its work tree was not left", self._claimed.run_id)

    async def _harvest(self, plan: Plan) -> None:
        assert self._briefing is not None
        facts = self._briefing
        actor = Actor("agent", facts.agent_id, facts.agent_name, facts.run_id)
        try:
            async with asyncio.timeout(HARVEST_SECONDS):
                seen = await asyncio.to_thread(worktrees.state_of, plan)
        except (GitError, TimeoutError) as error:
            log.warning("run %s: its work tree cannot be read: %s", facts.run_id, error)
            return
        await self._insist(
            harvest.note, worktree_id=plan.worktree_id, run_id=facts.run_id, state=seen, actor=actor
        )

    async def _take(self) -> Plan | None:
        loop = asyncio.get_running_loop()
        until = loop.time() + WAIT_SECONDS
        while True:
            try:
                plan: Plan | None = await self._insist(
                    worktrees.take, run_id=self._claimed.run_id, epoch=self._claimed.epoch
                )
                return plan
            except worktrees.Busy:
                if loop.time() >= until:
                    raise
            await asyncio.sleep(WAIT_STEP_SECONDS)

    async def _unbroken(self, work: Awaitable[Any]) -> Any:
        """Git is not cut off in the middle; who stops the run waits for it."""
        return await asyncio.shield(self._track(asyncio.ensure_future(work)))


def _identity(facts: Briefing) -> dict[str, str]:
    """Who commits, for a Git that nobody has told; what the operator bound goes first."""
    name = "".join(one for one in facts.agent_name if one.isprintable() and one not in "<>")
    address = f"{facts.agent_id}@agents.paperclip.invalid"
    who = {"NAME": name.strip() or "Agent", "EMAIL": address}
    bound = facts.config.get("env") or {}
    given = {f"GIT_{role}_{k}": v for role in ("AUTHOR", "COMMITTER") for k, v in who.items()}
    return {name: value for name, value in given.items() if name not in bound}


async def _events(brief: Brief) -> AsyncGenerator[Any, None]:
    async with aclosing(process.Process().run(brief)) as events:
        async for event in events:
            yield event


def _without_keys(brief: Brief, config: Mapping[str, Any]) -> Brief:
    named = ("PAPERCLIP_WORKSPACE_CWD", "PAPERCLIP_WORKSPACE_BRANCH", "PAPERCLIP_TASK_ID")
    return Brief(
        run_id=brief.run_id,
        agent_id=brief.agent_id,
        company_id=brief.company_id,
        agent_name=brief.agent_name,
        company_name=brief.company_name,
        reason=brief.reason,
        config=config,
        env={name: brief.env[name] for name in named if name in brief.env},
        run_dir="",
        workspace=brief.workspace,
        repository=brief.repository,
    )
