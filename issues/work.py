"""The work: how agents take issues (in `checkouts.py`, called through this module), give them
back, and what the end of a run means for one.

A checkout is a row; releasing closes one's own and cannot touch a successor's. What the end of a
run reads, locks and writes is in `endings.py`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from agents import wakes
from agents.models import Agent, HeartbeatRun
from companies import activity, live
from companies.activity import Actor
from companies.errors import Forbidden
from issues import checkouts, closing_words, consequences, endings, graph, ownership, steps
from issues.checkouts import EXPECTED, as_agent, begin, checkout, refuse_taken
from issues.models import Comment, Issue

__all__ = ["EXPECTED", "begin", "checkout", "force_release", "refuse_taken", "release", "report"]

S = Issue.Status
Run = HeartbeatRun.Status

MAX_FOLLOW_UPS = 2  # runs that end without finishing, before a person has to decide
FOLLOW_UP_SECONDS = 60


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
        checkouts.close(held, reason=reason, now=now)
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
        actor=actor or (as_agent(agent, run) if agent else activity.SYSTEM),
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
    seen: endings.Seen | None = None,
    now: datetime | None = None,
) -> Issue | None:
    """What the end of a run means for its issue. Called before the run's row is finished.

    `status` is what the run becomes; `wish` the status that the adapter's `Done` asks for;
    `retry_at` is set when another attempt follows; `seen` when the run was read by `endings.read`
    in this transaction. Success: the summary is a comment (unless the agent wrote one in this run)
    and an issue still in progress goes where the wish or the agent's policy says. Failure: to do
    again while an attempt follows, else blocked with the reason in the thread. Cancelled: to do
    again, silently. Always: this run's checkouts end, also those of other issues that it took on
    its way. Twice is once.
    """
    now = now or timezone.now()
    if seen is not None and not seen.holds and run.issue_id is None:
        return None
    if seen is None or run.issue_id is None:
        graph.lock(run.company_id, "read")
    locked, taken = endings.lock(run)
    for issue_id in sorted(taken - {run.issue_id}):
        release(issue=locked[issue_id], agent=run.agent, run=run, now=now, reason=f"run_{status}")
    row = locked.pop(run.issue_id, None) if run.issue_id else None
    if row is None:
        return None
    _conclude(
        row,
        run,
        endings.look(row, run),
        _End(status, summary, wish, code, message, retry_at, now),
        locked,
    )
    return row


@dataclass(frozen=True, slots=True)
class _End:
    """How a run ended, as `report` is told."""

    status: str
    summary: str
    wish: str | None
    code: str
    message: str
    retry_at: datetime | None
    now: datetime

    @property
    def failed(self) -> bool:
        """For good: no attempt follows."""
        return self.status not in (Run.SUCCEEDED, Run.CANCELLED) and self.retry_at is None


def _conclude(
    row: Issue, run: HeartbeatRun, look: endings.Look, end: _End, locked: dict[uuid.UUID, Issue]
) -> None:
    """Leave the run's words at its locked issue, and put it where it goes on."""
    now = end.now
    # It failed before it had the issue in hand: still nobody else will do it.
    unstarted = not look.is_mine and end.failed and row.status == S.TODO
    said = _closing_words(row, run, look, end, about_work=look.is_mine or unstarted)
    unstarted = unstarted and not (look.has_failed and row.assignee_agent_id == run.agent_id)
    if said is not None:
        _tell(row, run, said, now)
    before = row.status
    mine = (look.is_mine and row.status == S.IN_PROGRESS) or unstarted
    if mine and row.assignee_agent_id == run.agent_id:
        if end.status == Run.SUCCEEDED:
            _settle(row, run, look, end.wish, now)
        elif end.status == Run.CANCELLED or end.retry_at is not None:
            steps.mark(row, S.TODO, now)
        else:
            steps.mark(row, S.BLOCKED, now)
            row.blocked_reason = closing_words.failure(run, end.code)[:500]
    changed = row.status != before
    if said is not None or look.is_mine or changed:
        reason = f"run_{end.status}"
        endings.write(row, run, reason=reason, said=said, changed=changed, now=now)
    if said is not None and said.author_agent_id is not None:
        _call(row, run, said, now)
    if not look.is_mine and not unstarted:
        return
    if changed:
        consequences.record(
            row,
            actor=as_agent(run.agent, run),
            action="issue.updated",
            now=now,
            details={
                "before": {"status": before},
                "after": {"status": row.status},
                "by": "end of run",
                **({"code": end.code} if end.code else {}),
                **(
                    {"stopped": run.cancel_reason}
                    if end.status == Run.CANCELLED and run.cancel_reason
                    else {}
                ),
            },
        )
    consequences.announce(row)
    if changed and row.status in Issue.CLOSED:
        consequences.closed(
            row,
            actor=as_agent(run.agent, run),
            now=now,
            locked=locked,
            left=(look.is_held, look.is_run, look.is_asked),
        )


def _closing_words(
    row: Issue, run: HeartbeatRun, look: endings.Look, end: _End, *, about_work: bool
) -> endings.Words | None:
    """The agent's, unless it has spoken itself; or once why it failed, where it should have done
    the work."""
    if end.status == Run.SUCCEEDED:
        body = "" if look.has_spoken else closing_words.of(end.summary)
        return endings.words(body, run.agent) if body else None
    if not (end.failed and about_work and row.assignee_agent_id == run.agent_id):
        return None
    if look.has_failed:
        return None
    return endings.words(closing_words.failed(run, end.code, end.message), None)


def _tell(row: Issue, run: HeartbeatRun, said: endings.Words, now: datetime) -> None:
    """Note the agent's words in the activity; the system's are for the inbox."""
    if said.author_agent_id is None:
        live.publish(row.company_id, "inbox")
        return
    consequences.record(
        row,
        actor=as_agent(run.agent, run),
        action="issue.commented",
        now=now,
        details={"commentId": str(said.id), "excerpt": said.body[:200]},
    )


def _call(row: Issue, run: HeartbeatRun, said: endings.Words, now: datetime) -> None:
    """Wake whom the agent's closing words call; who calls nobody wakes nobody."""
    actor = as_agent(run.agent, run)
    if "@" not in said.body or consequences.talk_is_paused(row, actor, now):
        return
    comment = Comment(
        id=said.id, company_id=row.company_id, issue=row, author_agent=run.agent, run=run,
        body=said.body, created_at=now,
    )  # fmt: skip
    consequences.wake_mentioned(comment, row, actor=actor, now=now)


def _settle(
    row: Issue, run: HeartbeatRun, look: endings.Look, wish: str | None, now: datetime
) -> None:
    """Where an issue goes whose agent ended well without saying so itself. People's comments that
    wait for the agent's next run are only looked for when there is such a run."""
    if look.is_asked:
        steps.mark(row, S.IN_REVIEW, now)
    elif wish == S.IN_PROGRESS:
        _go_on(row, run, now)
    elif wish == S.BLOCKED:
        steps.mark(row, S.BLOCKED, now)
        row.blocked_reason = f"{run.agent.name} cannot go on; its last comment says why."
    elif wish == S.CANCELLED:
        steps.mark(row, S.CANCELLED, now)
    elif wish is None and look.has_open_children:
        steps.mark(row, S.BLOCKED, now)
        row.blocked_reason = consequences.WAITS_FOR_CHILDREN
    elif look.is_called and consequences.unread_by(run.agent, row):
        steps.mark(row, S.TODO, now)  # people wrote meanwhile: the queued run takes that up
    else:
        to = wish or run.agent.on_finish
        blocked = to == S.DONE and look.has_blockers and bool(graph.open_blockers(row.id))
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
