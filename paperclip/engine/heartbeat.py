"""One heartbeat, from its first line to its last.

`carry` reads like a list: open (check out, check the budget, brief), run the adapter, close
(report to the issue, finish the run). Each line calls a verb of the app that owns the fact; what is
added to a heartbeat is one more line here. Blocking verbs run in the hands' threads, the adapter in
the event loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from django.conf import settings

from agents import adapters, loops, runs
from agents.adapters.base import (
    Adapter,
    AdapterError,
    Brief,
    Code,
    Done,
    Event,
    Started,
    Step,
    Throttled,
    ToolResult,
    Usage,
)
from agents.models import HeartbeatRun, RunEvent
from billing import budgets
from companies import clock, faultpoints
from companies.errors import Refusal
from issues import briefing, tools
from paperclip import logs, tracing
from paperclip.engine import spool
from paperclip.engine.calls import book, grant, use_tool
from paperclip.engine.closing import Ending, close_run, failure, throttled
from paperclip.engine.hands import PASSING, Closed, Hands
from paperclip.engine.journal import Journal
from paperclip.engine.notes import FENCED, Notes
from paperclip.engine.opening import Opening, open_run
from paperclip.engine.turnstile import Turnstile
from paperclip.engine.workplace import Workplace

T = TypeVar("T")

log = logging.getLogger(__name__)

Status = HeartbeatRun.Status
BOOKING_SECONDS = 60.0  # for a receipt whose shift lives on; then it is spooled

CANCEL, SHUTDOWN = "cancel", "shutdown"
EXHAUSTED, UNBOOKED = "exhausted", "unbooked"


class Heartbeat:
    """A claimed run being carried out. `stop` may be called at any time, from the event loop;
    `on_acting` is told when the adapter begins its part and when that is over."""

    def __init__(
        self,
        claimed: runs.Claimed,
        *,
        hands: Hands,
        journal: Journal,
        trusted: Callable[[], bool],
        on_acting: Callable[[bool], object] = lambda _: None,
    ) -> None:
        self.claimed = claimed
        self.journal = journal
        self.why = ""  # cancel, shutdown or fenced
        self._hands = hands
        self._trusted = trusted
        self._on_acting = on_acting
        self._work: asyncio.Task[Ending | None] | None = None
        self._loose: set[asyncio.Future[Any]] = set()  # bookings and tool calls on their way
        self._opening: Opening | None = None
        self._acted = False
        self._is_done = False  # the adapter has handed its result in
        self._dearest = 0  # of its receipts, in micro-dollars
        self._run_dir = ""  # its folder, while it has one
        self._steps = loops.Steps()
        self._trace = tracing.NONE
        self._notes = Notes(claimed, insist=self._insist, track=self._track, stop=self.stop)
        self._workplace = Workplace(claimed, insist=self._insist, track=self._track)
        self._turnstile = Turnstile(
            claimed,
            journal=journal,
            insist=self._insist,
            track=self._track,
            settle=self._settle_loose,
            acted=lambda: self._acted,
        )

    def stop(self, why: str) -> None:
        """End the adapter's part. The first reason counts, except that a fence beats all. A budget
        that is used up ends no work that is done: it is paid for, and holds the next run."""
        if why == EXHAUSTED and self._is_done:
            return
        if not self.why or why == FENCED:
            self.why = why
        if self._work is not None and not self._work.cancelling():
            self._work.cancel()  # once: again would cut short how it cleans up

    @property
    def acting(self) -> bool:
        """Is the adapter at work, so that something may still happen outside?"""
        return self._work is not None and not self._work.done()

    async def carry(self) -> None:
        """Carry the run out. Never raises: whatever happens is in the run's row, or in the log."""
        logs.about(
            run_id=self.claimed.run_id,
            company_id=self.claimed.company_id,
            agent_id=self.claimed.agent_id,
            issue_id=self.claimed.issue_id,
        )
        try:
            ending = await self._open_and_run()
            self._notes.close()
            await self._settle_loose()
            await self._workplace.leave()
            if ending is not None and self.why != FENCED:
                self._trace.end(status=ending.status, code=ending.code)
                await self.journal.settle()
                if self.journal.stale:  # some of what it said is lost: it is another's by now
                    raise runs.Stale
                faultpoints.reach("written", self.claimed.run_id)
                await self._close(ending)
                faultpoints.reach("committed", self.claimed.run_id)
        except runs.Stale:
            self.journal.refuse()
        except Exception:
            log.exception("run %s: not closed; its lease will end it", self.claimed.run_id)
        finally:
            self._notes.close()
            await self._settle_loose()
            self._trace.end(status=self.why or "elsewhere")
            if self._run_dir:
                shutil.rmtree(self._run_dir, ignore_errors=True)

    async def _open_and_run(self) -> Ending | None:
        if self.why:
            return self._stopped()
        faultpoints.reach("claimed", self.claimed.run_id)
        try:
            self._opening = await self._insist(open_run, self.claimed)
            faultpoints.reach("opened", self.claimed.run_id)
        except (runs.Stale, briefing.Gone, *PASSING):
            raise runs.Stale from None
        except budgets.BudgetExhausted as refusal:
            later = clock.now() + refusal.again_in
            return Ending(Status.CANCELLED, Code.BUDGET, refusal.message, retry_at=later)
        except Refusal as refusal:
            return Ending(Status.CANCELLED, refusal.code[:30], refusal.message)
        except AdapterError as error:
            return failure(error)
        except Exception as error:
            return self._fault(error)
        if self.why:
            return self._stopped()
        self._work = asyncio.create_task(self._run(self._opening))
        self._work.add_done_callback(lambda _: self._on_acting(False))
        self._on_acting(True)
        try:
            return await self._work
        except asyncio.CancelledError:
            return self._stopped()

    # --- the adapter's part ------------------------------------------------------------------

    async def _run(self, opening: Opening) -> Ending | None:
        self._steps = loops.Steps(opening.limits)
        self._trace = tracing.begin(opening.briefing, issue_id=self.claimed.issue_id)
        try:
            adapter = adapters.get(opening.briefing.adapter_type)
            brief = self._brief(opening, adapter)
            if adapter.needs_folder:
                brief = await self._in_workplace(brief, opening)
            self._notes.limit(adapters.deadline(adapter.type, brief.config))
            done = await self._listen(adapter, brief)
        except Throttled as held:
            await self._settle_loose()
            return throttled(held, acted=self._acted)
        except AdapterError as error:
            self._is_done = True  # it has ended: what its receipts say stops nothing
            await self._settle_loose()
            return failure(error, acted=self._acted)
        except adapters.UnknownAdapter as error:
            return Ending(Status.FAILED, Code.CONFIG_INVALID, str(error))
        except runs.Stale:
            raise
        except PASSING:
            raise runs.Stale from None  # the database is away and the lease has run out
        except Exception as error:
            return self._fault(error)
        await self._settle_loose()
        if done.awaiting_callback:
            return await self._hand_over(done)
        return Ending(
            Status.SUCCEEDED,
            summary=done.summary,
            wish=done.status,
            result={
                **dict(done.result),
                **({"sessionId": done.session_id} if done.session_id else {}),
            },
        )

    async def _in_workplace(self, brief: Brief, opening: Opening) -> Brief:
        """The brief of an agent that works in its issue's own work tree, if there is one."""
        told = await self._workplace.enter(opening.briefing)
        if not told:
            return brief
        placed = dataclasses.replace(
            brief,
            workspace=self._workplace.path,
            repository=self._workplace.repository,
            env={**brief.env, **told},
        )
        await self._workplace.set_up(placed, self.journal.say)
        return placed

    async def _listen(self, adapter: Adapter, brief: Brief) -> Done:
        async with aclosing(adapter.run(brief)) as events:
            async for event in events:
                if isinstance(event, Done):
                    self._is_done = not event.awaiting_callback
                    self._keep_session(event)
                    return event
                await self._hear(event)
        raise AdapterError(Code.BAD_RESULT, "The adapter ended without a result.")

    async def _hear(self, event: Event) -> None:
        if not isinstance(event, Usage):
            self._trace.see(event)
        if isinstance(event, Usage):
            self._book(event)
        elif isinstance(event, Started):
            self._notes.add(event.model, {"id": event.session_id} if event.session_id else {})
        else:
            if isinstance(event, Step) and event.phase == "end" and not event.is_error:
                self._acted = self._acted or self._opening_uses_no_tools()
            await self.journal.say(event)
            faultpoints.reach("streaming", self.claimed.run_id)
            if isinstance(event, Step):
                self._steps.see(event)

    def _opening_uses_no_tools(self) -> bool:
        """Steps of adapters that act by themselves (commands, agents of their own) cannot be
        undone; the steps of ours are marked by the tool calls themselves."""
        try:
            return not adapters.get(self.claimed.adapter_type).uses_tools
        except adapters.UnknownAdapter:
            return True

    def _keep_session(self, done: Done) -> None:
        """What the next run needs to go on with the session: its id, and what was booked of it."""
        kept = done.result.get("session")
        named = {"id": done.session_id} if done.session_id else {}
        self._notes.add("", {**kept, **named} if isinstance(kept, Mapping) else named)

    def _brief(self, opening: Opening, adapter: Adapter) -> Brief:
        facts = opening.briefing
        keys = [route.key for route in opening.routes if route.key]
        self.journal.hide([*opening.secrets.values(), *keys, opening.token])
        self._turnstile.begin(opening.routes)
        agent_dir = ""
        if adapter.needs_folder:
            self._run_dir = _folder("runs", facts.run_id)
            agent_dir = _folder("agents", facts.agent_id)
        with_tools = adapter.uses_tools and opening.tool_issue is not None
        return Brief(
            run_id=str(facts.run_id),
            agent_id=str(facts.agent_id),
            company_id=str(facts.company_id),
            agent_name=facts.agent_name,
            company_name=facts.company_name,
            reason=facts.reason,
            config=facts.config,
            attempt=facts.attempt,
            instructions=facts.instructions,
            task=facts.task,
            thread=facts.thread,
            payload=facts.payload,
            env={**facts.env, "PAPERCLIP_API_KEY": opening.token},
            secrets=opening.secrets,
            api_url=facts.env.get("PAPERCLIP_API_URL", settings.BASE_URL),
            api_key=opening.token,
            run_dir=self._run_dir,
            workspace=facts.workspace,
            agent_dir=agent_dir,
            session=facts.session,
            tools=tools.TOOLS if with_tools else (),
            call_tool=self._call_tool,
            grant_call=self._grant_call,
            routes=opening.routes,
            admit_call=self._turnstile.admit,
            report_call=self._turnstile.report,
            divert=self._turnstile.divert,
            book_usage=self._book,
        )

    async def _call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        assert self._opening is not None
        if self._opening.tool_issue is None:
            return ToolResult(f"There is no tool {name[:60]!r}.", is_error=True)
        if not self._trusted():
            raise runs.Stale(f"run {self.claimed.run_id}: the lease has run out")
        calling = asyncio.ensure_future(
            self._hands.call(use_tool, self.claimed, self._opening, name, arguments)
        )
        try:
            result, acted = await asyncio.shield(self._track(calling))
        except PASSING as error:
            # Not repeated: it may have happened.
            raise AdapterError(
                Code.INTERNAL, "The database went away during a tool call.", acted=True
            ) from error
        self._acted = self._acted or acted
        return result

    async def _grant_call(
        self, *, provider: str, model: str, input_tokens: int, max_output_tokens: int
    ) -> None:
        await self._settle_loose()  # what was used is counted before more is granted
        try:
            await self._insist(
                grant,
                self.claimed,
                provider=provider,
                model=model,
                input_tokens=input_tokens,
                max_output_tokens=max_output_tokens,
            )
            faultpoints.reach("reserved", self.claimed.run_id)
        except Refusal as refusal:
            raise AdapterError(Code.BUDGET, refusal.message) from None

    # --- money -------------------------------------------------------------------------------

    def _book(self, usage: Usage) -> None:
        """Receipts are never fenced nor cut short: what was used is booked whatever happens."""
        self._trace.see(usage)
        self._track(asyncio.ensure_future(self._book_in_time(usage)))

    async def _book_in_time(self, usage: Usage) -> None:
        assert self._opening is not None
        facts, loop = self._opening.briefing, asyncio.get_running_loop()
        deadline, spent_at = loop.time() + BOOKING_SECONDS, clock.now()
        faultpoints.reach("answered", self.claimed.run_id)
        try:
            booked = await self._hands.insist(
                lambda: loop.time() < deadline and self.why not in (FENCED, SHUTDOWN),
                book,
                facts,
                usage,
                self._dearest if self._opening_uses_no_tools() else None,
            )
            faultpoints.reach("settled", self.claimed.run_id)
        except asyncio.CancelledError:
            spool.keep(facts, usage, spent_at)  # the loop ends: there is nothing left to wait in
            raise
        except Refusal as refusal:
            log.warning("run %s: cost not booked: %s", self.claimed.run_id, refusal.message)
            self.journal.note(RunEvent.Kind.SYSTEM, f"A cost was not booked: {refusal.message}")
            return
        except (*PASSING, Closed) as error:
            log.warning("run %s: cost not booked yet: %s", self.claimed.run_id, str(error).strip())
            keeping = loop.run_in_executor(None, spool.keep, facts, usage, spent_at)
            await asyncio.shield(keeping)
            self.stop(UNBOOKED)  # a limit that cannot be counted against holds nobody
            return
        except Exception:
            log.exception("run %s: cost not booked: %r", self.claimed.run_id, usage)
            self.stop(UNBOOKED)
            return
        self._dearest = max(self._dearest, booked.cost_micros or 0)
        self.journal.note(
            RunEvent.Kind.USAGE,
            data={
                "call": usage.call,
                "provider": usage.provider,
                "model": usage.model,
                "inputTokens": usage.input_tokens,
                "cachedInputTokens": usage.cache_read_tokens,
                "outputTokens": usage.output_tokens,
                "costMicros": booked.cost_micros,
                "costStatus": booked.status,
            },
        )
        if booked.exhausted and self._opening_uses_no_tools():
            self.stop(EXHAUSTED)  # a chat model ends between its calls: the next is not granted

    def _track(self, work: asyncio.Future[T]) -> asyncio.Future[T]:
        """Work that goes on when the adapter is cancelled, and is waited for before the end."""
        self._loose.add(work)
        work.add_done_callback(self._loose.discard)
        return work

    async def _settle_loose(self) -> None:
        while self._loose:
            await asyncio.wait(set(self._loose))

    # --- the end -----------------------------------------------------------------------------

    def _stopped(self) -> Ending | None:
        if self.why == FENCED:
            return None
        if self.why == CANCEL:
            return Ending(Status.CANCELLED, Code.CANCELLED, "Cancelled.")
        if self.why == EXHAUSTED:
            reason = (
                "A budget was used up while the agent was at work, or had no room for another"
                " report like its dearest, so it was stopped."
            )
            return Ending(Status.FAILED, Code.BUDGET, reason, acted=self._acted)
        if self.why == UNBOOKED:
            reason = "What it cost could not be booked, so it was stopped."
            return Ending(Status.FAILED, Code.INTERNAL, reason, acted=self._acted)
        return Ending(Status.LOST, Code.LOST)

    def _fault(self, error: Exception) -> Ending:
        log.exception("run %s: a fault of ours", self.claimed.run_id, exc_info=error)
        return Ending(
            Status.FAILED,
            Code.INTERNAL,
            f"A fault of Paperclip ({type(error).__name__}); the server's log has the run's id.",
            acted=self._acted,
        )

    async def _hand_over(self, done: Done) -> Ending | None:
        """The run goes on elsewhere; its end when somebody has cancelled it meanwhile."""
        by = clock.now() + runs.EXTERNAL_LEASE
        taken = "The service has taken the run over; it must report, or ask for more time, by"
        self.journal.note(RunEvent.Kind.SYSTEM, f"{taken} {by:%H:%M} UTC.")
        await self.journal.settle()
        self._notes.close()
        await self._settle_loose()
        await self._notes.write()
        goes_on = await self._insist(
            runs.go_external,
            run_id=self.claimed.run_id,
            epoch=self.claimed.epoch,
            session=dict(done.result),
        )
        return None if goes_on else Ending(Status.CANCELLED, Code.CANCELLED, "Cancelled.")

    async def _close(self, ending: Ending) -> None:
        ending = dataclasses.replace(
            ending,
            message=self.journal.redact(ending.message),
            summary=self.journal.redact(ending.summary),
            result=self.journal.redact_data({**self._notes.result, **ending.result}),
            model=self._notes.model,
            session=self._notes.session,
        )
        try:
            await self._insist(close_run, self.claimed, ending)
        except PASSING:
            raise runs.Stale from None

    async def _insist(self, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A fenced verb, as long as the lease is good. Raises Stale when it is not: whoever
        comes late does not even try."""
        if not self._trusted():
            raise runs.Stale(f"run {self.claimed.run_id}: the lease has run out")
        return await self._hands.insist(self._trusted, verb, *args, **kwargs)


def _folder(kind: str, owner: object) -> str:
    """A folder of a run or an agent below DATA_DIR, made if need be; nobody else may look in."""
    path = os.path.join(settings.DATA_DIR, kind, str(owner))
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path
