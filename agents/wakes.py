"""A wake is a wish that an agent does a heartbeat. It is a queued run, written in the transaction
of its cause; wishes about the same issue fold into one queued run.

Read next: `claims.py` (how a queued run starts), `runs.py` (all verbs of a run's life).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import orjson
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from agents import meters
from agents.models import Agent, HeartbeatRun
from companies import activity, live
from companies.activity import Actor
from companies.ids import new_id
from companies.models import Activity

MANUAL = "manual"  # a person's word, and nobody else's
CALLED = "agent_called"  # another agent asked for a heartbeat
TIMER = "heartbeat_timer"
MEDIUM = 2
# That agents may cause on one issue, or of one agent about none, without a person's word between.
WAKES_AN_HOUR = 30
# Reasons that call an agent to answer, also on an issue that is closed or somebody else's.
ANSWERING = (
    MANUAL,
    CALLED,
    "issue_commented",
    "issue_comment_mentioned",
    "issue_reopened_via_comment",
    "interaction_answered",
    "approval_approved",
    "approval_rejected",
    "approval_revision_requested",
    "execution_review_requested",
    "execution_changes_requested",
)
# The reason of the first attempt, kept in the payload of a retry.
ORIGINAL_REASON = "originalReason"


class Wakeable(Protocol):
    """What a wake needs to know of an issue."""

    @property
    def pk(self) -> uuid.UUID: ...

    priority: int


@dataclass(frozen=True, slots=True)
class Wake:
    """What became of a wish: a new run, one that was queued already, or a refusal by reason."""

    run_id: uuid.UUID | None = None
    created: bool = False
    refused: str = ""


_INSERT = """
INSERT INTO agents_heartbeatrun AS run (
    id, company_id, agent_id, issue_id, status, priority, source, reason, wake_count,
    comment_ids, payload, idempotency_key, scheduled_for, not_before, attempt, retry_of_id,
    created_at, epoch, adapter_type, model, cancel_reason, session, code, message, summary,
    result, input_tokens, cached_tokens, output_tokens, cost_micros, unpriced_calls)
SELECT %(id)s, a.company_id, a.id, %(issue_id)s, 'queued', %(priority)s, %(source)s, %(reason)s, 1,
    %(comment_ids)s::uuid[], %(payload)s::jsonb, %(idempotency_key)s, %(scheduled_for)s,
    -- A machine whose clock is ahead must not put off what is meant for now.
    coalesce(%(not_before)s::timestamptz, least(%(now)s::timestamptz, clock_timestamp())),
    %(attempt)s, %(retry_of)s,
    %(now)s, 0, a.adapter_type, '', '', '{}', '', '', '', '{}', 0, 0, 0, 0, 0
FROM agents_agent a JOIN companies_company c ON c.id = a.company_id
WHERE a.id = %(agent_id)s AND a.status = 'active' AND c.status <> 'archived'
  AND (a.wake_on_demand OR %(unasked)s)
ON CONFLICT (agent_id, issue_id) WHERE status = 'queued' DO UPDATE SET
    wake_count = run.wake_count + 1,
    priority = least(run.priority, excluded.priority),
    -- A regular beat is the weakest reason to be awake, an agent's call the next; anything else
    -- says more.
    reason = CASE WHEN excluded.reason = 'heartbeat_timer'
                    OR excluded.reason = 'agent_called' AND run.reason <> 'heartbeat_timer'
                  THEN run.reason ELSE excluded.reason END,
    comment_ids = run.comment_ids || ARRAY(
        SELECT fresh.id FROM unnest(excluded.comment_ids) WITH ORDINALITY AS fresh (id, place)
        WHERE fresh.id <> ALL (run.comment_ids) ORDER BY fresh.place),
    payload = run.payload || excluded.payload,
    idempotency_key = coalesce(run.idempotency_key, excluded.idempotency_key),
    scheduled_for = coalesce(run.scheduled_for, excluded.scheduled_for),
    -- A retry waits out its back-off, unless a person asks.
    not_before = CASE WHEN run.attempt > 1 AND NOT %(hurry)s THEN run.not_before
                      ELSE least(run.not_before, excluded.not_before) END,
    attempt = greatest(run.attempt, excluded.attempt),
    retry_of_id = coalesce(run.retry_of_id, excluded.retry_of_id)
RETURNING run.id, run.xmax = 0
"""
# The same within a statement that writes more; its parameters are those of `about_new`.
WISH = _INSERT.replace("%(", "%(wish_")


@meters.refusals
def wake(
    *,
    agent: Agent,
    issue: Wakeable | None = None,
    reason: str,
    source: str,
    actor: Actor,
    now: datetime | None = None,
    priority: int | None = None,
    comment_ids: Sequence[uuid.UUID] = (),
    payload: Mapping[str, Any] | None = None,
    not_before: datetime | None = None,
    scheduled_for: datetime | None = None,
    idempotency_key: str | None = None,
    attempt: int = 1,
    retry_of: uuid.UUID | None = None,
) -> Wake:
    """Queue a heartbeat of `agent` about `issue`, in the caller's transaction.

    Folds into the agent's queued run about the same issue where there is one; a run that is
    going on is never touched, so the wish becomes the next run. A repeated `idempotency_key` or
    timer slot (`scheduled_for`) is the run that it made before. Holds and caps do not refuse a
    wish, they keep the run waiting. Refusals: own_change (an agent's own acts never wake it),
    agent_terminated, agent_pending_approval, wake_on_demand_off, company_archived, wake_limit
    (agents have called each other about this issue too often within an hour, or this agent about
    none). Raises ValueError when anyone but a person gives the reason MANUAL.
    """
    now = now or timezone.now()
    if reason == MANUAL and actor.type == "agent":
        raise ValueError("An agent is no person: its wakes are not manual.")
    if _own_change(agent, actor, reason, source):
        return Wake(refused="own_change")
    keyed = idempotency_key is not None or scheduled_for is not None
    keys = {
        "agent_id": agent.pk,
        "idempotency_key": idempotency_key,
        "scheduled_for": scheduled_for,
    }
    known = _known(keys) if keyed else None
    if known is not None:
        return Wake(run_id=known)
    if actor.type == "agent" and _is_ping_pong(agent, issue, now):
        return Wake(refused="wake_limit")
    values = {
        **_values(agent, issue, reason=reason, source=source, actor=actor, now=now),
        **keys,
        "priority": _priority(issue, priority),
        "comment_ids": list(comment_ids),
        "payload": orjson.dumps(dict(payload or {}), default=str).decode(),
        "not_before": not_before,
        "attempt": attempt,
        "retry_of": retry_of,
    }
    try:
        # Only a key can collide with something else than the queued run; it pays for a savepoint.
        row = _insert_alone(values) if keyed else _insert(values)
    except IntegrityError:
        known = _known(keys) if keyed else None
        if known is None:
            raise
        return Wake(run_id=known)
    return _became(agent, issue, row)


def about_new(
    *, agent: Agent, issue: Wakeable, reason: str, source: str, actor: Actor, now: datetime
) -> dict[str, Any]:
    """The parameters of `WISH` about an issue that the same statement writes. Nobody has been woken
    about it yet, so nothing folds and nobody is called in circles."""
    values = _values(agent, issue, reason=reason, source=source, actor=actor, now=now)
    return {f"wish_{name}": value for name, value in values.items()}


@meters.refusals
def wished(*, agent: Agent, run_id: uuid.UUID | None) -> Wake:
    """A statement has carried `WISH` out, and wrote this run; None: it found no agent to wake. The
    caller tells the pages (the topic `runs` and the issue)."""
    if run_id is None:
        return Wake(refused=_refusal(agent))
    live.wake()
    return Wake(run_id=run_id, created=True)


_HURRY = """
UPDATE agents_heartbeatrun SET not_before = %(now)s WHERE id IN (
    SELECT run.id FROM agents_heartbeatrun run
    JOIN agents_heartbeatrun refused ON refused.id = run.retry_of_id
    WHERE run.company_id = %(company_id)s AND run.status = 'queued' AND run.not_before > %(now)s
      AND refused.status = 'cancelled' AND refused.code = %(code)s
    FOR NO KEY UPDATE OF run SKIP LOCKED)
"""


def hurry(*, company_id: uuid.UUID, code: str, now: datetime) -> int:
    """Let the runs start now that wait because `code` kept them from starting; says how many."""
    with connection.cursor() as cursor:
        cursor.execute(_HURRY, {"company_id": company_id, "code": code, "now": now})
        count = cursor.rowcount
    if count:
        live.publish(company_id, "issues")
        live.wake()
    return count


def _values(
    agent: Agent,
    issue: Wakeable | None,
    *,
    reason: str,
    source: str,
    actor: Actor,
    now: datetime,
) -> dict[str, Any]:
    """The parameters of a wish that is for now, with no key, no comments and no payload."""
    return {
        "agent_id": agent.pk,
        "idempotency_key": None,
        "scheduled_for": None,
        "id": new_id(),
        "issue_id": issue.pk if issue is not None else None,
        "priority": _priority(issue, None),
        "source": str(source),
        "reason": reason,
        "comment_ids": [],
        "payload": "{}",
        "not_before": None,
        "attempt": 1,
        "retry_of": None,
        "now": now,
        "unasked": source in (HeartbeatRun.Source.TIMER, HeartbeatRun.Source.RETRY)
        or reason == MANUAL,
        "hurry": actor.type == "user" or reason == MANUAL,
    }


def _became(agent: Agent, issue: Wakeable | None, row: tuple[uuid.UUID, bool] | None) -> Wake:
    if row is None:
        return Wake(refused=_refusal(agent))
    run_id, created = row
    live.wake()
    live.publish(agent.company_id, "runs")
    if issue is not None:
        live.publish(agent.company_id, "issue", issue.pk)
    return Wake(run_id=run_id, created=created)


def _own_change(agent: Agent, actor: Actor, reason: str, source: str) -> bool:
    return actor.type == "agent" and actor.id == agent.pk and source != HeartbeatRun.Source.RETRY


def _is_ping_pong(agent: Agent, issue: Wakeable | None, now: datetime) -> bool:
    """Have agents been called about this issue, or this agent about none, as often as they may?
    Said once in the activity."""
    since = now - timedelta(hours=1)
    subject = issue or agent
    kind = "agent" if issue is None else "issue"
    if issue is None:
        runs = HeartbeatRun.objects.filter(agent_id=agent.pk, issue__isnull=True, reason=CALLED)
    else:
        runs = HeartbeatRun.objects.filter(issue_id=issue.pk).exclude(reason__in=(MANUAL, TIMER))
    if runs.filter(created_at__gt=since).count() < WAKES_AN_HOUR:
        return False  # nearly always; the rest is asked for when it matters
    about = Activity.objects.filter(entity_id=subject.pk, occurred_at__gt=since)
    spoke = about.filter(actor_type=Activity.ActorType.USER).order_by("-occurred_at").first()
    if spoke is not None:
        since = spoke.occurred_at
        about = about.filter(occurred_at__gt=since)
        if runs.filter(created_at__gt=since).count() < WAKES_AN_HOUR:
            return False
    activity.flush()
    if not about.filter(action=f"{kind}.wakes_cut").exists():
        activity.record(
            company_id=agent.company_id,
            actor=activity.SYSTEM,
            action=f"{kind}.wakes_cut",
            entity_type=kind,
            entity_id=subject.pk,
            entity_name=str(subject),
            details={"wakesAnHour": WAKES_AN_HOUR, "agentId": str(agent.pk)},
            now=now,
        )
        live.publish(agent.company_id, "inbox")
    return True


def _priority(issue: Wakeable | None, priority: int | None) -> int:
    if priority is not None:
        return priority
    return issue.priority if issue is not None else MEDIUM


_KNOWN = """
SELECT r.id FROM agents_heartbeatrun r
WHERE r.agent_id = %(agent_id)s AND r.idempotency_key = %(idempotency_key)s
UNION ALL
SELECT r.id FROM agents_heartbeatrun r
WHERE r.agent_id = %(agent_id)s AND r.scheduled_for = %(scheduled_for)s
UNION ALL
SELECT k.run_id FROM agents_wakekey k
WHERE k.agent_id = %(agent_id)s AND k.key = ANY (%(keys)s)
LIMIT 1
"""
# A run has room for one key and one slot; those of wishes that fold into it later stand beside it.
_REMEMBER = """
INSERT INTO agents_wakekey (company_id, agent_id, key, run_id)
SELECT r.company_id, r.agent_id, later.key, r.id
FROM agents_heartbeatrun r
CROSS JOIN unnest(%(keys)s::text[]) AS later (key)
WHERE r.id = %(run_id)s
ON CONFLICT DO NOTHING
"""


def _known(values: Mapping[str, Any]) -> uuid.UUID | None:
    """The run that this key or slot made before, or folded into."""
    with connection.cursor() as cursor:
        cursor.execute(_KNOWN, {**values, "keys": _keys(values)})
        row = cursor.fetchone()
    return row[0] if row is not None else None


def _keys(values: Mapping[str, Any]) -> list[str]:
    """The key and the slot of a wish under one roof, so that neither can be taken for the other."""
    key, slot = values["idempotency_key"], values["scheduled_for"]
    return [
        *([f"key:{key}"] if key is not None else []),
        *([f"slot:{slot.astimezone(UTC).isoformat()}"] if slot is not None else []),
    ]


def _insert(values: Mapping[str, Any]) -> tuple[uuid.UUID, bool] | None:
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, values)
        return cursor.fetchone()


def _insert_alone(values: Mapping[str, Any]) -> tuple[uuid.UUID, bool] | None:
    """Insert with a key, one at a time with this key until the caller's transaction ends: two
    inserts that collide in two unique rules at once would wait for each other."""
    keys = _keys(values)
    with transaction.atomic(), connection.cursor() as cursor:
        for key in keys:
            cursor.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
                [f"wake:{values['agent_id']}:{key}"],
            )
        known = _known(values)
        if known is not None:
            return known, False
        row = _insert(values)
        if row is not None and not row[1]:
            cursor.execute(_REMEMBER, {"run_id": row[0], "keys": keys})
        return row


def _refusal(agent: Agent) -> str:
    """Why the insert found no agent to wake. Asked afresh: the caller's copy may be old."""
    status, on_demand = Agent.objects.values_list("status", "wake_on_demand").get(pk=agent.pk)
    if status != Agent.Status.ACTIVE:
        return f"agent_{status}"
    return "company_archived" if on_demand else "wake_on_demand_off"
