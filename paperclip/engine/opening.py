"""How a run begins: its issue checked out, its budget looked at, its brief written, its secrets
opened. Blocking; about an issue it is one transaction. Read next: `heartbeat.py`.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from agents import loop_limits, meters, providers, runs
from agents.adapters.base import AdapterError, Code, Route
from agents.models import HeartbeatRun
from billing import budgets
from companies import clock, secrets
from companies.models import SecretRead
from issues import briefing, work
from issues.briefing import Briefing
from issues.models import Issue

# An operator may name a variable of the server's environment as a key, but not any variable.
KEY_VARIABLE = re.compile(r"[A-Z0-9_]*(?:API_KEY|KEY|TOKEN)")
NEVER = re.compile(r"SECRET_KEY|DATABASE_.*|PAPERCLIP_.*|DJANGO_.*|PG.*")


@dataclass(frozen=True, slots=True)
class Opening:
    """What a run starts with."""

    briefing: Briefing
    token: str = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)
    tool_issue: Issue | None
    routes: Sequence[Route] = ()
    limits: loop_limits.Limits = field(default_factory=loop_limits.of_instance)


def open_run(claimed: runs.Claimed) -> Opening:
    """Check the issue out, look at the budget, brief. All or nothing.

    Raises Stale, Gone, BudgetExhausted, AdapterError (a secret that cannot be opened) and the
    Refusals of a checkout. Safe to repeat.
    """
    now = clock.now()
    # Without an issue nothing is written that a refusal would have to take back.
    with transaction.atomic() if claimed.issue_id is not None else nullcontext():
        run, around = briefing.read(run_id=claimed.run_id, epoch=claimed.epoch)
        _meter(run)
        _note_fallback(run)
        run.issue = work.begin(run=run, now=now) or run.issue
        facts = briefing.of(run, around)
        # Last, since it may lock the totals that the whole company waits for.
        budgets.check_call(agent=run.agent, run_id=run.pk, now=now)
    return Opening(
        briefing=facts,
        token=claimed.token,
        secrets=_secrets(facts, SecretRead.Purpose.RUN, now),
        tool_issue=run.issue,
        routes=_routes(facts, run.connection_id, now),
        limits=loop_limits.of(run.agent),
    )


def _meter(run: HeartbeatRun) -> None:
    """How long it took from the moment the run was due to its start; both on one clock or close."""
    if run.started_at is not None:
        waited = run.started_at - max(run.not_before, run.created_at)
        transaction.on_commit(lambda: meters.observe(meters.WAKE_TO_START, waited.total_seconds()))


def _note_fallback(run: HeartbeatRun) -> None:
    """It was claimed on another connection than its agent's own."""
    if run.connection_id is not None and run.connection_id != run.agent.connection_id:
        HeartbeatRun.objects.filter(pk=run.pk, epoch=run.epoch).update(on_fallback=True)


def _secrets(facts: Briefing, purpose: SecretRead.Purpose, now: datetime) -> dict[str, str]:
    """The values a run asks for: stored secrets, and the one variable that `apiKeyEnv` names.

    Such a variable must look like a key (…API_KEY, …KEY, …TOKEN) and never is one of the
    server's own (SECRET_KEY, DATABASE_…, PAPERCLIP_…, DJANGO_…, PG…).
    """
    try:
        values = secrets.reveal(
            company_id=facts.company_id,
            names=facts.secret_names,
            reader=secrets.Reader(purpose, facts.run_id),
            now=now,
        )
    except secrets.CannotOpen as error:
        raise AdapterError(Code.CONFIG_INVALID, str(error)) from error
    name = facts.config.get("apiKeyEnv")
    if isinstance(name, str) and KEY_VARIABLE.fullmatch(name) and not NEVER.fullmatch(name):
        value = os.environ.get(name)
        if value:
            values[name] = value
    return values


def known_secrets(run: HeartbeatRun) -> list[str]:
    """The values that a run was given, to keep them out of what it says later. Raises Gone."""
    facts = briefing.write(run_id=run.pk, epoch=run.epoch)
    try:
        return list(_secrets(facts, SecretRead.Purpose.REDACTION, clock.now()).values())
    except AdapterError:  # not to be opened any more, so nobody can compare with them
        return []


def _routes(facts: Briefing, start: uuid.UUID | None, now: datetime) -> Sequence[Route]:
    """The ways to a model that the agent's connections give, with their keys."""
    try:
        return providers.routes(
            company_id=facts.company_id,
            config=facts.config,
            start=start,
            run_id=facts.run_id,
            now=now,
        )
    except secrets.CannotOpen as error:
        raise AdapterError(Code.CONFIG_INVALID, str(error)) from error


def held(claimed: runs.Claimed) -> HeartbeatRun:
    """The claimed run with its agent and issue. Raises Stale when it has changed hands."""
    run = runs.held(run_id=claimed.run_id, epoch=claimed.epoch)
    if run is None:
        raise runs.Stale(f"run {claimed.run_id} has left epoch {claimed.epoch}")
    return run
