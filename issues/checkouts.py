"""Taking an issue in hand: by an agent's own call, or at the start of its run.

A checkout is a row. "One live checkout an issue" is a unique rule of the database; these verbs lock
the issue before they look, so that a race has one winner and the others get a 409 that says who has
it. Called through `work.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from agents import runs
from agents.models import Agent, HeartbeatRun
from companies import rows
from companies.activity import Actor
from companies.errors import Invalid, NotFound
from issues import consequences, graph, ownership, steps, taking, transitions
from issues.models import Checkout, Issue

S = Issue.Status

EXPECTED = (S.TODO, S.BACKLOG, S.BLOCKED, S.IN_REVIEW)


def checkout(
    *,
    issue: Issue,
    agent: Agent,
    run: HeartbeatRun | None = None,
    expected_statuses: Collection[str] = EXPECTED,
    actor: Actor | None = None,
    now: datetime | None = None,
) -> Issue:
    """The issue is this agent's, and in progress. Again by the owner: no change, the same answer.

    Adopts the lock of a dead run of the same agent and takes over from a dead run of another one
    when the issue is now this agent's. An unassigned issue becomes the agent's. Raises Conflict
    with the current owner and status, Unprocessable when an open issue blocks it.
    """
    _check_expected(expected_statuses)
    now, actor = now or timezone.now(), actor or as_agent(agent, run)
    if run is None and issue.status in {*expected_statuses} - {*Issue.CLOSED, S.IN_PROGRESS}:
        if taking.by_hand(issue, agent, actor, now):
            return issue
        refuse_taken(ownership.look("id", issue.id, [agent.company_id]), agent.id)
    with transaction.atomic():
        return _checkout(
            issue_id=issue.id,
            agent=agent,
            run=run,
            expected_statuses=expected_statuses,
            actor=actor,
            now=now,
        )


def refuse_taken(
    seen: tuple[Issue, Checkout | None] | None, agent_id: uuid.UUID, run_id: uuid.UUID | None = None
) -> None:
    """Raise Conflict, as `checkout` does, when the issue was in others' hands as it was `seen`
    (by `ownership.look`). Who comes too late needs no lock to be told."""
    if seen is None:
        return
    issue, held = seen
    if held is None or not _is_mine(held, agent_id, run_id):
        _check_free(issue, held, agent_id, run_id)


def _checkout(
    *,
    issue_id: uuid.UUID,
    agent: Agent,
    run: HeartbeatRun | None,
    expected_statuses: Collection[str],
    actor: Actor | None,
    now: datetime,
) -> Issue:
    """Refuses before it writes, so that a refusal needs no savepoint."""
    row = graph.lock_row(issue_id)
    if row.company_id != agent.company_id:
        raise NotFound("There is no such issue.")
    held = ownership.holder(row.id)
    run_id = run.id if run is not None else None
    if held is not None and _is_mine(held, agent.id, run_id):
        if run is not None and held.run_id != run.id:
            held.run = run
            held.save(update_fields=["run"])
        if row.status == S.IN_PROGRESS:
            return row
    _check_free(row, held, agent.id, run_id)
    if row.status not in expected_statuses and not (
        row.status == S.IN_PROGRESS and row.assignee_agent_id == agent.id
    ):
        raise ownership.conflict(
            row,
            "unexpected_status",
            f"{row.identifier} is {transitions.word(row.status)}.",
            known=[held],
            expectedStatuses=sorted(expected_statuses),
        )
    if row.status in Issue.CLOSED:
        raise ownership.conflict(
            row, "issue_closed", f"{row.identifier} is {transitions.word(row.status)}.",
            known=[held],
        )  # fmt: skip
    steps.refuse_blocked(row, S.IN_PROGRESS, person=False)
    if held is not None and held.agent_id != agent.id:
        close(held, reason="holder_gone", now=now)
        held = None
    if held is None:
        rows.insert(
            Checkout(company_id=row.company_id, issue=row, agent=agent, run=run, created_at=now)
        )
    before = row.status
    row.assignee_agent = agent
    steps.mark(row, S.IN_PROGRESS, now)
    consequences.save(row, now, {"assignee_agent"})
    consequences.record(
        row,
        actor=actor or as_agent(agent, run),
        action="issue.checked_out",
        now=now,
        details={
            "agentId": str(agent.id),
            "before": {"status": before},
            "after": {"status": row.status},
        },
    )
    consequences.announce(row)
    return row


@transaction.atomic(savepoint=False)
def begin(*, run: HeartbeatRun, now: datetime | None = None) -> Issue | None:
    """What the engine calls at the start of a run: check the run's issue out, where it is the
    agent's to work on. None when the run only answers (somebody else's issue, a closed or blocked
    one) or has no issue. Raises Conflict when the issue is held by a live run, and runs.Stale when
    the run has changed hands: a checkout under a former epoch would be nobody's to end."""
    issue = run.issue
    if issue is None or issue.assignee_agent_id != run.agent_id:
        return None
    if issue.status in (*Issue.CLOSED, S.BACKLOG):
        return None
    now = now or timezone.now()
    if taking.at_once(run, now):
        return issue
    try:
        row = _checkout(
            issue_id=issue.id,
            agent=run.agent,
            run=run,
            expected_statuses=(*EXPECTED, S.IN_PROGRESS),
            actor=None,
            now=now,
        )
    except transitions.Unprocessable as refusal:
        if refusal.code == "open_blockers":
            return None
        raise
    runs.hold(run_id=run.pk, epoch=run.epoch)
    return row


def _check_expected(expected: Collection[str]) -> None:
    if not expected or any(one not in S.values for one in expected):
        raise Invalid(
            "invalid_status",
            "expectedStatuses is a list of issue statuses.",
            field="expected_statuses",
        )


def _check_free(
    row: Issue, held: Checkout | None, agent_id: uuid.UUID, run_id: uuid.UUID | None
) -> None:
    """Raise Conflict when the issue is somebody else's, or in the hands of a live run."""
    if row.assignee_user_id is not None:
        raise ownership.conflict(
            row, "assigned_to_person", "This issue belongs to a person.", known=[held]
        )
    if held is not None and held.agent_id == agent_id and not _is_mine(held, agent_id, run_id):
        raise ownership.conflict(
            row,
            "checkout_conflict",
            "Another run of this agent works on this issue.",
            known=[held],
        )
    if row.assignee_agent_id not in (None, agent_id):
        raise ownership.conflict(
            row, "checkout_conflict", "Another agent has this issue.", known=[held]
        )
    if held is not None and held.agent_id != agent_id and _is_alive(held):
        raise ownership.conflict(
            row, "checkout_conflict", "Another agent works on this issue.", known=[held]
        )


def _is_alive(held: Checkout) -> bool:
    """Does the holder still work? A checkout without a run (an agent that works elsewhere with
    its own key) lives until it is released."""
    return held.run is None or held.run.status in HeartbeatRun.LIVE


def _is_mine(held: Checkout, agent_id: uuid.UUID, run_id: uuid.UUID | None) -> bool:
    """The same agent, by the same run, or no other live one."""
    if held.agent_id != agent_id:
        return False
    return run_id is None or held.run_id in (None, run_id) or not _is_alive(held)


def close(held: Checkout, *, reason: str, now: datetime) -> None:
    """End a live checkout; one that has ended stays as it is."""
    Checkout.objects.filter(id=held.id, released_at=None).update(
        released_at=now, release_reason=reason[:40]
    )


def as_agent(agent: Agent, run: HeartbeatRun | None) -> Actor:
    """The agent as who acts, by its run if it has one."""
    run_id: uuid.UUID | None = run.id if run is not None else None
    return Actor("agent", agent.id, agent.name, run_id)
