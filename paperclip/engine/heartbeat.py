"""One heartbeat, from its first line to its last.

`carry` reads like a list: open (check out, check the budget, brief, mint a token), run the
adapter, close (report to the issue, finish the run). Each line calls a verb of the app that owns
the fact; what is added to a heartbeat is one more line here. Blocking verbs run in the hands'
threads, the adapter in the event loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from agents import adapters, outcomes, providers, roster, runs
from agents.adapters.base import (
    Adapter,
    AdapterError,
    Brief,
    Code,
    Done,
    Event,
    Route,
    Started,
    Step,
    Throttled,
    ToolResult,
    Usage,
)
from agents.models import HeartbeatRun, Hold, RunEvent
from billing import budgets, ledger
from companies import activity, secrets
from companies.access import Principal
from companies.errors import Refusal
from issues import briefing, tools, work
from issues.briefing import Briefing
from issues.models import Issue
from paperclip.engine.hands import PASSING, Hands, about
from paperclip.engine.journal import Journal
from paperclip.engine.turnstile import Turnstile

T = TypeVar("T")

log = logging.getLogger(__name__)

Status = HeartbeatRun.Status
# An operator may name a variable of the server's environment as a key, but not any variable.
KEY_VARIABLE = re.compile(r"[A-Z0-9_]*(?:API_KEY|KEY|TOKEN)")
NEVER = re.compile(r"SECRET_KEY|DATABASE_.*|PAPERCLIP_.*|DJANGO_.*|PG.*")
BUDGET_PAUSE = timedelta(hours=1)

CANCEL, SHUTDOWN, FENCED, EXHAUSTED = "cancel", "shutdown", "fenced", "exhausted"


@dataclass(frozen=True, slots=True)
class Opening:
    """What a run starts with."""

    briefing: Briefing
    token: str
    secrets: Mapping[str, str] = field(repr=False)
    tool_issue: Issue | None
    routes: Sequence[Route] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """How the adapter's part ended."""

    status: str
    code: str = ""
    message: str = ""
    summary: str = ""
    wish: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    retry_after: float | None = None
    acted: bool = False
    retry_at: datetime | None = None  # set for an end that is no failure but has to wait


class Heartbeat:
    """A claimed run being carried out. `stop` may be called at any time, from the event loop."""

    def __init__(
        self, claimed: runs.Claimed, *, hands: Hands, journal: Journal, trusted: Callable[[], bool]
    ) -> None:
        self.claimed = claimed
        self.journal = journal
        self.why = ""  # cancel, shutdown or fenced
        self._hands = hands
        self._trusted = trusted
        self._work: asyncio.Task[Ending | None] | None = None
        self._loose: set[asyncio.Future[Any]] = set()  # bookings and tool calls on their way
        self._opening: Opening | None = None
        self._acted = False
        self._turnstile = Turnstile(
            claimed,
            journal=journal,
            insist=self._insist,
            track=self._track,
            settle=self._settle_loose,
            acted=lambda: self._acted,
        )

    def stop(self, why: str) -> None:
        """End the adapter's part. The first reason counts, except that a fence beats all."""
        if not self.why or why == FENCED:
            self.why = why
        if self._work is not None:
            self._work.cancel()

    async def carry(self) -> None:
        """Carry the run out. Never raises: whatever happens is in the run's row, or in the log."""
        try:
            ending = await self._open_and_run()
            await self._settle_loose()
            if ending is not None and self.why != FENCED:
                await self.journal.settle()
                await self._close(ending)
        except runs.Stale:
            self.journal.refuse()
        except Exception:
            log.exception("run %s: not closed; its lease will end it", self.claimed.run_id)
        finally:
            await self._settle_loose()
            shutil.rmtree(self._run_dir, ignore_errors=True)

    async def _open_and_run(self) -> Ending | None:
        if self.why:
            return self._stopped()
        try:
            self._opening = await self._insist(open_run, self.claimed)
        except (runs.Stale, briefing.Gone, *PASSING):
            raise runs.Stale from None
        except budgets.BudgetExhausted as refusal:
            later = timezone.now() + BUDGET_PAUSE
            return Ending(Status.CANCELLED, Code.BUDGET, refusal.message, retry_at=later)
        except Refusal as refusal:
            return Ending(Status.CANCELLED, refusal.code[:30], refusal.message)
        except AdapterError as error:
            return _failure(error)
        except Exception as error:
            return self._fault(error)
        if self.why:
            return self._stopped()
        self._work = asyncio.create_task(self._run(self._opening))
        try:
            return await self._work
        except asyncio.CancelledError:
            return self._stopped()

    # --- the adapter's part ------------------------------------------------------------------

    async def _run(self, opening: Opening) -> Ending | None:
        try:
            adapter = adapters.get(opening.briefing.adapter_type)
            brief = self._brief(opening, adapter)
            done = await self._listen(adapter, brief)
        except Throttled as held:
            await self._settle_loose()
            return _throttled(held, acted=self._acted)
        except AdapterError as error:
            await self._settle_loose()
            return _failure(error, acted=self._acted)
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
            await self._hand_over(done)
            return None
        return Ending(
            Status.SUCCEEDED,
            summary=done.summary,
            wish=done.status,
            result={
                **dict(done.result),
                **({"sessionId": done.session_id} if done.session_id else {}),
            },
        )

    async def _listen(self, adapter: Adapter, brief: Brief) -> Done:
        async with aclosing(adapter.run(brief)) as events:
            async for event in events:
                if isinstance(event, Done):
                    await self._keep_session(event)
                    return event
                await self._hear(event)
        raise AdapterError(Code.BAD_RESULT, "The adapter ended without a result.")

    async def _hear(self, event: Event) -> None:
        if isinstance(event, Usage):
            self._book(event)
        elif isinstance(event, Started):
            await self._note_started(event)
        else:
            if isinstance(event, Step) and event.phase == "end" and not event.is_error:
                self._acted = self._acted or self._opening_uses_no_tools()
            await self.journal.say(event)

    def _opening_uses_no_tools(self) -> bool:
        """Steps of adapters that act by themselves (commands, agents of their own) cannot be
        undone; the steps of ours are marked by the tool calls themselves."""
        try:
            return not adapters.get(self.claimed.adapter_type).uses_tools
        except adapters.UnknownAdapter:
            return True

    async def _note_started(self, event: Started) -> None:
        await self._note(event.model, {"id": event.session_id} if event.session_id else {})

    async def _keep_session(self, done: Done) -> None:
        """What the next run needs to go on with the session: its id, and what was booked of it."""
        kept = done.result.get("session")
        named = {"id": done.session_id} if done.session_id else {}
        await self._note("", {**kept, **named} if isinstance(kept, Mapping) else named)

    async def _note(self, model: str, session: Mapping[str, Any]) -> None:
        if not model and not session:
            return
        await self._insist(
            runs.note_started,
            run_id=self.claimed.run_id,
            epoch=self.claimed.epoch,
            model=model,
            session=session,
        )

    def _brief(self, opening: Opening, adapter: Adapter) -> Brief:
        facts = opening.briefing
        keys = [route.key for route in opening.routes if route.key]
        self.journal.hide([*opening.secrets.values(), *keys, opening.token])
        self._run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        agent_dir = Path(settings.DATA_DIR) / "agents" / str(facts.agent_id)
        agent_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
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
            run_dir=str(self._run_dir),
            workspace=facts.workspace,
            agent_dir=str(agent_dir),
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

    @property
    def _run_dir(self) -> Path:
        return Path(settings.DATA_DIR) / "runs" / str(self.claimed.run_id)

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
        except Refusal as refusal:
            raise AdapterError(Code.BUDGET, refusal.message) from None

    # --- money -------------------------------------------------------------------------------

    def _book(self, usage: Usage) -> None:
        """Receipts are never fenced nor cut short: what was used is booked whatever happens."""
        self._track(asyncio.ensure_future(self._book_in_time(usage)))

    async def _book_in_time(self, usage: Usage) -> None:
        assert self._opening is not None
        deadline = asyncio.get_running_loop().time() + 60
        try:
            booked = await self._hands.insist(
                lambda: asyncio.get_running_loop().time() < deadline,
                book,
                self._opening.briefing,
                usage,
            )
        except Refusal as refusal:
            log.warning("run %s: cost not booked: %s", self.claimed.run_id, refusal.message)
            self.journal.note(RunEvent.Kind.SYSTEM, f"A cost was not booked: {refusal.message}")
            return
        except Exception:
            log.exception("run %s: cost not booked: %r", self.claimed.run_id, usage)
            return
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
            reason = "A budget was used up while the agent was at work, so it was stopped."
            return Ending(Status.FAILED, Code.BUDGET, reason, acted=self._acted)
        return Ending(Status.LOST, Code.LOST)

    def _fault(self, error: Exception) -> Ending:
        log.exception("run %s: a fault of ours", self.claimed.run_id, exc_info=error)
        return Ending(
            Status.FAILED,
            Code.INTERNAL,
            f"A fault of Paperclip ({type(error).__name__}); the server's log has the run's id.",
            acted=self._acted,
        )

    async def _hand_over(self, done: Done) -> None:
        await self.journal.settle()
        await self._insist(
            runs.go_external,
            run_id=self.claimed.run_id,
            epoch=self.claimed.epoch,
            session=dict(done.result),
        )

    async def _close(self, ending: Ending) -> None:
        ending = dataclasses.replace(
            ending,
            message=self.journal.redact(ending.message),
            summary=self.journal.redact(ending.summary),
            result=self.journal.redact_data(ending.result),
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


# --- the blocking parts, one transaction each --------------------------------------------------


def open_run(claimed: runs.Claimed) -> Opening:
    """Check the issue out, look at the budget, brief, mint the token. All or nothing.

    Raises Stale, Gone, BudgetExhausted, AdapterError (a secret that cannot be opened) and the
    Refusals of a checkout. Safe to repeat.
    """
    now = timezone.now()
    with transaction.atomic():
        run = _held(claimed)
        work.begin(run=run, now=now)
        budgets.check_call(agent=run.agent, run_id=run.pk, now=now)
        facts = briefing.write(run_id=claimed.run_id, epoch=claimed.epoch)
        token = runs.start_token(run_id=claimed.run_id, epoch=claimed.epoch)
    return Opening(
        briefing=facts,
        token=token,
        secrets=_secrets(facts, now),
        tool_issue=run.issue,
        routes=_routes(facts, run.connection_id, now),
    )


def _secrets(facts: Briefing, now: datetime) -> dict[str, str]:
    """The values a run asks for: stored secrets, and the one variable that `apiKeyEnv` names.

    Such a variable must look like a key (…API_KEY, …KEY, …TOKEN) and never is one of the
    server's own (SECRET_KEY, DATABASE_…, PAPERCLIP_…, DJANGO_…, PG…).
    """
    try:
        values = secrets.reveal(company_id=facts.company_id, names=facts.secret_names, now=now)
    except secrets.CannotOpen as error:
        raise AdapterError(Code.CONFIG_INVALID, str(error)) from error
    name = facts.config.get("apiKeyEnv")
    if isinstance(name, str) and KEY_VARIABLE.fullmatch(name) and not NEVER.fullmatch(name):
        value = os.environ.get(name)
        if value:
            values[name] = value
    return values


def _routes(facts: Briefing, start: uuid.UUID | None, now: datetime) -> Sequence[Route]:
    """The ways to a model that the agent's connections give, with their keys."""
    try:
        return providers.routes(
            company_id=facts.company_id, config=facts.config, start=start, now=now
        )
    except secrets.CannotOpen as error:
        raise AdapterError(Code.CONFIG_INVALID, str(error)) from error


def use_tool(
    claimed: runs.Claimed, opening: Opening, name: str, arguments: Mapping[str, Any]
) -> tuple[ToolResult, bool]:
    """Carry out a model's tool call and remember in the same transaction that the run has acted.

    Raises Stale, with nothing done, when the run has changed hands meanwhile.
    """
    assert opening.tool_issue is not None
    principal = Principal(
        kind="run",
        agent_id=claimed.agent_id,
        company_id=claimed.company_id,
        run_id=claimed.run_id,
        name=opening.briefing.agent_name,
    )
    with transaction.atomic():
        issue = Issue.objects.get(pk=opening.tool_issue.pk)
        result = tools.call(
            principal=principal, issue=issue, name=name, arguments=arguments, now=timezone.now()
        )
        acts = not result.is_error and any(t.name == name and t.acts for t in tools.TOOLS)
        if acts:
            runs.mark_acted(run_id=claimed.run_id, epoch=claimed.epoch)
    return result, acts


def grant(
    claimed: runs.Claimed,
    *,
    provider: str,
    model: str,
    input_tokens: int,
    max_output_tokens: int,
) -> None:
    """May this run make another model call? Raises Refusal, and Stale when it is not ours."""
    run = _held(claimed)
    budgets.check_call(
        agent=run.agent,
        run_id=run.pk,
        provider=provider,
        model=model,
        input_tokens=input_tokens,
        max_output_tokens=max_output_tokens,
        now=timezone.now(),
    )


def book(facts: Briefing, usage: Usage) -> ledger.Booked:
    """Book one model call of a run, once however often this is called."""
    return ledger.book(
        company_id=facts.company_id,
        agent_id=facts.agent_id,
        run_id=facts.run_id,
        issue_id=facts.issue_id,
        project_id=facts.project_id,
        goal_id=facts.goal_id,
        billing_code=facts.billing_code,
        usage=usage,
        key=ledger.run_key(facts.run_id, usage.call),
        now=timezone.now(),
    )


def close_run(claimed: runs.Claimed, ending: Ending) -> None:
    """Report to the issue, finish the run, queue what follows. One transaction, under the fence.

    Repeated after a lost acknowledgement it finds its own work done. Raises Stale when the run
    has changed hands.
    """
    now = timezone.now()
    with transaction.atomic():
        run = runs.held(run_id=claimed.run_id, epoch=claimed.epoch)
        if run is None:
            if _is_closed(claimed, ending):
                return
            raise runs.Stale(f"run {claimed.run_id} has left epoch {claimed.epoch}")
        if ending.status == Status.LOST:
            _put_down(run, now)
            return
        retry_at = ending.retry_at or _retry_at(run, ending, now)
        message = _message(run, ending)
        work.report(
            run=run,
            status=ending.status,
            summary=ending.summary,
            wish=ending.wish,
            code=ending.code,
            message=message,
            retry_at=retry_at,
            now=now,
        )
        if not runs.finish(
            run_id=run.pk,
            epoch=run.epoch,
            status=ending.status,
            code=ending.code,
            message=message,
            summary=ending.summary,
            result=ending.result,
            now=now,
        ):
            raise runs.Stale(f"run {claimed.run_id} has left epoch {claimed.epoch}")
        if retry_at is not None:
            waited_only = ending.status == Status.CANCELLED
            runs.again(
                run=run,
                reason="transient_failure_retry",
                not_before=retry_at,
                attempt=run.attempt + (0 if waited_only else 1),
                now=now,
            )
        elif ending.code == Code.QUOTA_EXHAUSTED and run.connection_id is None:
            roster.hold(
                agent=run.agent,
                reason=Hold.Reason.QUOTA,
                note=message,
                actor=activity.SYSTEM,
                now=now,
            )


def _put_down(run: HeartbeatRun, now: datetime) -> None:
    """The instance shuts down: the run goes on elsewhere, or a person decides."""
    loss = runs.loss_of(run, shutdown=True)
    work.report(
        run=run,
        status=loss.status,
        code=loss.code,
        message=loss.message,
        retry_at=now if loss.attempt is not None else None,
        now=now,
    )
    if runs.lose(run=run, loss=loss, now=now) is None:
        raise runs.Stale(f"run {run.pk} has left epoch {run.epoch}")


def _retry_at(run: HeartbeatRun, ending: Ending, now: datetime) -> datetime | None:
    """When a failure is tried again. Never after something may have been changed."""
    if ending.status not in (Status.FAILED, Status.TIMED_OUT) or ending.acted or run.acted_at:
        return None
    if ending.code == Code.QUOTA_EXHAUSTED and run.connection_id is not None:
        # It waits at the gate: the connection is closed to all who use the key.
        return now if run.attempt <= outcomes.MAX_RETRIES else None
    seconds = outcomes.retry_in(ending.code, attempt=run.attempt, retry_after=ending.retry_after)
    return None if seconds is None else now + timedelta(seconds=seconds)


def _message(run: HeartbeatRun, ending: Ending) -> str:
    if ending.status == Status.CANCELLED and run.cancel_reason:
        return run.cancel_reason
    return ending.message


def _is_closed(claimed: runs.Claimed, ending: Ending) -> bool:
    """Did our own commit go through although we did not hear of it?"""
    return HeartbeatRun.objects.filter(
        pk=claimed.run_id, epoch=claimed.epoch + 1, status=ending.status
    ).exists()


def _held(claimed: runs.Claimed) -> HeartbeatRun:
    run = runs.held(run_id=claimed.run_id, epoch=claimed.epoch)
    if run is None:
        raise runs.Stale(f"run {claimed.run_id} has left epoch {claimed.epoch}")
    return run


def _throttled(held: Throttled, *, acted: bool) -> Ending:
    """We held a call back for longer than a run waits: it comes back later, and that is no failed
    attempt. What has acted is not begun again."""
    if acted or held.acted:
        return _failure(held, acted=True)
    later = timezone.now() + timedelta(seconds=about(held.retry_after or 0.0) * 1.2)
    return Ending(Status.CANCELLED, str(held.code), held.message, retry_at=later)


def _failure(error: AdapterError, *, acted: bool = False) -> Ending:
    timed_out = error.code in (Code.TIMED_OUT, Code.IDLE)
    return Ending(
        Status.TIMED_OUT if timed_out else Status.FAILED,
        str(error.code),
        error.message,
        retry_after=error.retry_after,
        acted=acted or error.acted,
        result={"detail": error.detail} if error.detail else {},
    )
