"""The minute hand: what comes due by the clock. Every function may run in several processes at
once and as often as anybody likes; rows and locks see to it that each slot is used once.

`beats` also runs in every shift, each few seconds, so that a beat is in time; the rest is called
once a minute by django-q2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from cronsim import CronSimError
from django.db import transaction
from django.db.models import Exists, OuterRef
from django_q.models import Task

from agents import meters, runs, timers
from agents.models import Agent, AgentTally, HeartbeatRun
from billing import audit, budgets
from companies import activity, clock, partitions, seals
from companies.errors import Conflict
from companies.models import CliLogin, IdempotencyRecord, SecretRead, SignInLink, Throttle
from issues import worktrees
from issues.models import Blocker, Issue
from paperclip.engine import recover, spool, upkeep

log = logging.getLogger(__name__)

BATCH = 200
KEEP_ANSWERS = timedelta(days=1)
KEEP_LINKS = timedelta(days=7)
KEEP_THROTTLES = timedelta(days=1)
KEEP_READS = timedelta(days=90)  # of secrets
KEEP_TALLIES = timedelta(days=90)
KEEP_FAILED_TASKS = timedelta(days=14)  # django-q2 prunes successes only
SWEEP_ROWS = 5_000


def beats(*, now: datetime | None = None) -> int:
    """Queue the regular heartbeats that are due, for agents that have something to do.

    An agent without open work that could go on is not woken: an idle beat costs nothing. Its
    slot is used all the same, so that the next one comes in its own time. Returns how many runs
    were made.
    """
    now = now or clock.now()
    made = 0
    while True:
        with transaction.atomic():
            due = list(
                Agent.objects.select_for_update(skip_locked=True, no_key=True)
                .filter(heartbeat_enabled=True, status=Agent.Status.ACTIVE, next_beat_at__lte=now)
                .order_by("next_beat_at")[:BATCH]
            )
            made += sum(_beat(agent, now) for agent in due)
        if len(due) < BATCH:
            return made


def _beat(agent: Agent, now: datetime) -> bool:
    """Use an agent's slot and move it to the next one, counted from now: one beat after an
    outage, not one for each that was missed."""
    try:
        slot = timers.due_slot(agent, now)
        following = timers.next_slot(agent, now)
    except (CronSimError, StopIteration, KeyError, ValueError) as error:
        log.error("agent %s: its timer does not work and is off: %s", agent.pk, error)
        Agent.objects.filter(pk=agent.pk).update(heartbeat_enabled=False, next_beat_at=None)
        return False
    Agent.objects.filter(pk=agent.pk).update(next_beat_at=following, last_beat_at=slot)
    issue = _next_work(agent)
    if issue is None:
        meters.count_at_commit(meters.BEATS_SAVED, _why_idle(agent), agent_id=agent.pk)
        return False
    return runs.wake(
        agent=agent,
        issue=issue,
        reason=runs.TIMER,
        source=HeartbeatRun.Source.TIMER,
        actor=activity.SYSTEM,
        scheduled_for=slot,
        now=now,
    ).created


def _next_work(agent: Agent) -> Issue | None:
    """The most urgent issue that the agent could go on with and that nothing else wakes it for."""
    waiting = Blocker.objects.filter(issue=OuterRef("pk")).exclude(
        blocking__status__in=Issue.CLOSED
    )
    live = HeartbeatRun.objects.filter(issue=OuterRef("pk"), status__in=HeartbeatRun.LIVE)
    return (
        Issue.objects.filter(
            assignee_agent=agent,
            archived_at=None,
            status__in=[Issue.Status.TODO, Issue.Status.IN_PROGRESS],
        )
        .filter(~Exists(waiting), ~Exists(live))
        .order_by("priority", "id")
        .first()
    )


def _why_idle(agent: Agent) -> str:
    """Why an agent's beat has nothing to do: no open work, work that a run is about already, or
    work that waits for something else."""
    open_work = Issue.objects.filter(
        assignee_agent=agent,
        archived_at=None,
        status__in=[Issue.Status.TODO, Issue.Status.IN_PROGRESS],
    )
    if not open_work.exists():
        return "idle"
    live = HeartbeatRun.objects.filter(agent=agent, status__in=HeartbeatRun.LIVE)
    return "under_way" if live.exists() else "waiting"


def minute(*, now: datetime | None = None) -> None:
    """Everything that comes due by the clock. One part's failure does not stop the others."""
    now = now or clock.now()
    parts: list[Callable[[], object]] = [
        lambda: beats(now=now),
        spool.book_all,
        lambda: recover.sweep(now=now),
        lambda: recover.tidy(now=now),
        lambda: budgets.turn(now=now),
        lambda: audit.look(now=now),
        lambda: seal(now=now),
        lambda: forget(now=now),
        lambda: worktrees.tidy(now=now),
        upkeep.clear,
    ]
    failures = []
    for part in parts:
        try:
            part()
        except Exception as error:
            log.exception("a part of the minute's round failed")
            failures.append(error)
    if failures:
        raise failures[0]


def seal(*, now: datetime) -> None:
    """Chain what activity was committed since. That the database was moved is for a person, who
    hears of it in each round; the rest of the round goes on."""
    try:
        seals.advance(now=now)
    except Conflict as refusal:
        log.error("audit: %s", refusal.message)


def forget(*, now: datetime) -> None:
    """Delete what has served its time, a bounded number of rows at once."""
    answers = IdempotencyRecord.objects.filter(created_at__lt=now - KEEP_ANSWERS)
    links = SignInLink.objects.filter(expires_at__lt=now - KEEP_LINKS)
    logins = CliLogin.objects.filter(expires_at__lt=now - KEEP_LINKS)
    throttles = Throttle.objects.filter(window_start__lt=now - KEEP_THROTTLES)
    tallies = AgentTally.objects.filter(day__lt=(now - KEEP_TALLIES).date())
    reads = SecretRead.objects.filter(read_at__lt=now - KEEP_READS)
    tasks = Task.objects.filter(success=False, stopped__lt=now - KEEP_FAILED_TASKS)
    for old in (answers, links, logins, throttles, tallies, reads, tasks):
        old.filter(pk__in=list(old.values_list("pk", flat=True)[:SWEEP_ROWS])).delete()


def night(*, now: datetime | None = None) -> None:
    """Once a day: partitions for the months to come, and the proof that the books agree."""
    now = now or clock.now()
    partitions.ensure_all(now=now)
    audit.watch(now=now)
