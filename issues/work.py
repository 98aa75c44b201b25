"""The work: how agents take issues, give them back, and what the end of a run means for one.

A checkout is a row. "One live checkout an issue" is a unique rule of the database; these verbs
lock the issue before they look, so that a race has one winner and the others get a 409 that says
who has it. Releasing closes one's own row and cannot touch a successor's.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.utils import timezone

from agents import runs, wakes
from agents.models import Agent, HeartbeatRun
from companies import activity, rows
from companies.activity import Actor
from companies.errors import Forbidden, Invalid, NotFound
from issues import closing_words, consequences, graph, ownership, steps, taking, transitions
from issues.models import Checkout, Comment, Issue

S = Issue.Status
Run = HeartbeatRun.Status

EXPECTED = (S.TODO, S.BACKLOG, S.BLOCKED, S.IN_REVIEW)
MAX_FOLLOW_UPS = 2  # runs that end without finishing, before a person has to decide
FOLLOW_UP_SECONDS = 60


@transaction.atomic
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
    return _checkout(
        issue_id=issue.id,
        agent=agent,
        run=run,
        expected_statuses=expected_statuses,
        actor=actor,
        now=now or timezone.now(),
    )


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
    _check_expected(expected_statuses)
    row = graph.lock_row(issue_id)
    if row.company_id != agent.company_id:
        raise NotFound("There is no such issue.")
    held = ownership.holder(row.id)
    if held is not None and _is_mine(held, agent, run):
        if run is not None and held.run_id != run.id:
            held.run = run
            held.save(update_fields=["run"])
        if row.status == S.IN_PROGRESS:
            return row
    _check_free(row, held, agent, run)
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
        _close(held, reason="holder_gone", now=now)
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
        actor=actor or _as_agent(agent, run),
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


@transaction.atomic
def release(
    *,
    issue: Issue,
    agent: Agent | None = None,
    run: HeartbeatRun | None = None,
    actor: Actor | None = None,
    now: datetime | None = None,
    reason: str = "released",
    unassign: bool = False,
) -> Issue:
    """Give an issue back: the checkout ends, an issue in progress is to do again.

    Total and idempotent for the holder. With `agent` (and `run`) only that holder's row is closed;
    another agent's raises Forbidden. `unassign` also frees the issue for others. Nobody is woken.
    """
    now = now or timezone.now()
    row = graph.lock_row(issue.id)
    held = ownership.holder(row.id)
    if agent is not None and held is not None and held.agent_id != agent.id:
        raise Forbidden(
            "not_the_holder",
            "Another agent has this issue checked out.",
            details={"checkoutAgentId": str(held.agent_id)},
        )
    if agent is not None and held is None and row.assignee_agent_id not in (None, agent.id):
        raise Forbidden("not_the_assignee", "Another agent works on this issue.")
    if run is not None and held is not None and held.run_id not in (None, run.id):
        return row  # a successor's; mine is over already
    changed = held is not None
    if held is not None:
        _close(held, reason=reason, now=now)
    before = row.status
    if row.status == S.IN_PROGRESS and row.assignee_user_id is None:
        steps.mark(row, S.TODO, now)
        changed = True
    if unassign and row.status not in Issue.CLOSED and row.assignee_agent_id is not None:
        row.assignee_agent = None
        changed = True
    if not changed:
        return row
    consequences.save(row, now, {"assignee_agent"})
    consequences.record(
        row,
        actor=actor or (_as_agent(agent, run) if agent else activity.SYSTEM),
        action="issue.released",
        now=now,
        details={
            "reason": reason,
            "before": {"status": before},
            "after": {"status": row.status},
        },
    )
    consequences.announce(row)
    return row


@transaction.atomic
def force_release(
    *, issue: Issue, actor: Actor, now: datetime | None = None, reason: str = "forced"
) -> Issue:
    """A person takes an issue out of an agent's hands: its running run is asked to stop."""
    now = now or timezone.now()
    row = graph.lock_row(issue.id)
    held = ownership.holder(row.id)
    row = release(issue=row, actor=actor, now=now, reason=reason)
    if held is not None:
        consequences.cancel_runs(
            row, actor=actor, reason="force_released", now=now, of_agent=held.agent_id
        )
    return row


# What the end of a run touches, asked for under the graph's lock: the issue's parent, the issues
# that it blocks, and those that the run has checked out.
_AROUND = """
SELECT issue.parent_id,
       ARRAY(SELECT b.issue_id FROM issues_blocker b WHERE b.blocking_id = wanted.id),
       ARRAY(SELECT c.issue_id FROM issues_checkout c
             WHERE c.run_id = %s AND c.released_at IS NULL)
FROM (SELECT %s::uuid AS id) wanted LEFT JOIN issues_issue issue ON issue.id = wanted.id
"""


@transaction.atomic(savepoint=False)
def report(
    *,
    run: HeartbeatRun,
    status: str,
    summary: str = "",
    wish: str | None = None,
    code: str = "",
    message: str = "",
    retry_at: datetime | None = None,
    now: datetime | None = None,
) -> Issue | None:
    """What the end of a run means for its issue. Called before the run's row is finished.

    `status` is what the run becomes; `wish` the status that the adapter's `Done` asks for;
    `retry_at` is set when another attempt follows. Success: the summary is a comment (unless the
    agent wrote one in this run) and an issue still in progress goes where the wish or the agent's
    policy says. Failure: to do again while an attempt follows, else blocked with the reason in the
    thread. Cancelled: to do again, silently. Always: this run's checkouts end, also those of
    other issues that it took on its way. Twice is once.
    """
    now = now or timezone.now()
    graph.lock(run.company_id, "read")
    neighbours, taken = _around(run)
    others = taken - {run.issue_id}
    locked = graph.lock_rows(others | neighbours | ({run.issue_id} if run.issue_id else set()))
    for issue_id in sorted(others & locked.keys()):
        release(issue=locked[issue_id], agent=run.agent, run=run, now=now, reason=f"run_{status}")
    row = locked.pop(run.issue_id, None) if run.issue_id else None
    if row is None:
        return None
    actor = _as_agent(run.agent, run)
    held = _close_of(row, run, reason=f"run_{status}", now=now)
    failed = status not in (Run.SUCCEEDED, Run.CANCELLED) and retry_at is None
    # It failed before it had the issue in hand: still nobody else will do it.
    unstarted = not held and failed and row.status == S.TODO
    if status == Run.SUCCEEDED:
        closing_words.say(row, run, summary, now)
    elif failed and (held or unstarted) and row.assignee_agent_id == run.agent_id:
        unstarted = closing_words.say_failed(row, run, code, message, now) and unstarted
    if not held and not unstarted:
        return row
    before = row.status
    mine = row.status == S.IN_PROGRESS or unstarted
    if mine and row.assignee_agent_id == run.agent_id:
        if status == Run.SUCCEEDED:
            _settle(row, run, wish, now)
        elif status == Run.CANCELLED or retry_at is not None:
            steps.mark(row, S.TODO, now)
        else:
            steps.mark(row, S.BLOCKED, now)
            row.blocked_reason = closing_words.failure(run, code)[:500]
    if row.status != before:
        consequences.save(row, now)
        consequences.record(
            row,
            actor=actor,
            action="issue.updated",
            now=now,
            details={
                "before": {"status": before},
                "after": {"status": row.status},
                "by": "end of run",
                **({"code": code} if code else {}),
            },
        )
    consequences.announce(row)
    if row.status != before and row.status in Issue.CLOSED:
        consequences.closed(row, actor=actor, now=now, locked=locked)
    return row


def _around(run: HeartbeatRun) -> tuple[set[uuid.UUID], set[uuid.UUID]]:
    """Whom closing the run's issue may free, and all issues that the run has checked out."""
    with connection.cursor() as cursor:
        cursor.execute(_AROUND, [run.pk, run.issue_id])
        parent, blocked, taken = cursor.fetchone()
    return {*blocked, *([parent] if parent else [])}, set(taken)


def _close_of(row: Issue, run: HeartbeatRun, *, reason: str, now: datetime) -> bool:
    """End the run's own checkout of a locked issue. Had it one?"""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE issues_checkout SET released_at = %s, release_reason = %s"
            " WHERE issue_id = %s AND run_id = %s AND released_at IS NULL",
            [now, reason[:40], row.pk, run.pk],
        )
        return cursor.rowcount > 0


# What decides where an issue goes whose agent ended well; people's comments that wait for the
# agent's next run are only looked for when there is such a run.
_OPEN_ENDS = """
SELECT EXISTS (SELECT 1 FROM issues_interaction WHERE issue_id = %(id)s AND status = 'pending'),
       EXISTS (SELECT 1 FROM agents_heartbeatrun
               WHERE agent_id = %(agent_id)s AND issue_id = %(id)s AND status = 'queued'),
       EXISTS (SELECT 1 FROM issues_blocker WHERE issue_id = %(id)s)
"""


def _settle(row: Issue, run: HeartbeatRun, wish: str | None, now: datetime) -> None:
    """Where an issue goes whose agent ended well without saying so itself."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN_ENDS, {"id": row.id, "agent_id": run.agent_id})
        is_asked, is_called, has_blockers = cursor.fetchone()
    if is_asked:
        steps.mark(row, S.IN_REVIEW, now)
    elif wish == S.IN_PROGRESS:
        _go_on(row, run, now)
    elif wish == S.BLOCKED:
        steps.mark(row, S.BLOCKED, now)
        row.blocked_reason = f"{run.agent.name} cannot go on; its last comment says why."
    elif wish == S.CANCELLED:
        steps.mark(row, S.CANCELLED, now)
    elif wish is None and row.children.open().exists():
        steps.mark(row, S.BLOCKED, now)
        row.blocked_reason = consequences.WAITS_FOR_CHILDREN
    elif is_called and consequences.unread_by(run.agent, row):
        steps.mark(row, S.TODO, now)  # people wrote meanwhile: the queued run takes that up
    else:
        to = wish or run.agent.on_finish
        blocked = to == S.DONE and has_blockers and bool(graph.open_blockers(row.id))
        steps.mark(row, S.IN_REVIEW if blocked else to, now)


def _go_on(row: Issue, run: HeartbeatRun, now: datetime) -> None:
    """The agent wants to go on: it is woken again soon, a few times, then a person decides."""
    ended = HeartbeatRun.objects.filter(issue=row, agent=run.agent, status=Run.SUCCEEDED)
    last_word = (
        Comment.objects.filter(issue=row, author_user__isnull=False)
        .order_by("-created_at", "-id")
        .values_list("created_at", flat=True)
        .first()
    )
    if last_word is not None:
        ended = ended.filter(created_at__gt=last_word)
    if ended.count() >= MAX_FOLLOW_UPS:
        steps.mark(row, S.BLOCKED, now)
        row.blocked_reason = (
            f"{run.agent.name} has ended {MAX_FOLLOW_UPS + 1} runs without finishing."
            " A person decides how to go on."
        )
        return
    steps.mark(row, S.TODO, now)
    wakes.wake(
        agent=run.agent,
        issue=row,
        reason="issue_status_changed",
        source=HeartbeatRun.Source.AUTOMATION,
        actor=activity.SYSTEM,
        now=now,
        not_before=now + timedelta(seconds=FOLLOW_UP_SECONDS),
    )


def _check_expected(expected: Collection[str]) -> None:
    if not expected or any(one not in S.values for one in expected):
        raise Invalid(
            "invalid_status",
            "expectedStatuses is a list of issue statuses.",
            field="expected_statuses",
        )


def _check_free(row: Issue, held: Checkout | None, agent: Agent, run: HeartbeatRun | None) -> None:
    """Raise Conflict when the issue is somebody else's, or in the hands of a live run."""
    if row.assignee_user_id is not None:
        raise ownership.conflict(
            row, "assigned_to_person", "This issue belongs to a person.", known=[held]
        )
    if held is not None and held.agent_id == agent.id and not _is_mine(held, agent, run):
        raise ownership.conflict(
            row,
            "checkout_conflict",
            "Another run of this agent works on this issue.",
            known=[held],
        )
    if row.assignee_agent_id not in (None, agent.id):
        raise ownership.conflict(
            row, "checkout_conflict", "Another agent has this issue.", known=[held]
        )
    if held is not None and held.agent_id != agent.id and _is_alive(held):
        raise ownership.conflict(
            row, "checkout_conflict", "Another agent works on this issue.", known=[held]
        )


def _is_alive(held: Checkout) -> bool:
    """Does the holder still work? A checkout without a run (an agent that works elsewhere with
    its own key) lives until it is released."""
    return held.run is None or held.run.status in HeartbeatRun.LIVE


def _is_mine(held: Checkout, agent: Agent, run: HeartbeatRun | None) -> bool:
    """The same agent, by the same run, or no other live one."""
    if held.agent_id != agent.id:
        return False
    return run is None or held.run_id in (None, run.id) or not _is_alive(held)


def _close(held: Checkout, *, reason: str, now: datetime) -> None:
    Checkout.objects.filter(id=held.id, released_at=None).update(
        released_at=now, release_reason=reason[:40]
    )


def _as_agent(agent: Agent, run: HeartbeatRun | None) -> Actor:
    run_id: uuid.UUID | None = run.id if run is not None else None
    return Actor("agent", agent.id, agent.name, run_id)
