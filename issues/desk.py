"""A person's desk: what waits for them, what they put aside, what was decided.

`inbox.py` says what waits for the people of a company; this is one person's view of it. Putting
aside is theirs alone: no activity, nobody is woken, and it comes back when something new happens.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Q

from agents.models import HeartbeatRun
from companies import live
from companies.errors import Invalid, NotFound
from companies.models import Company, User
from issues import inbox, questions, results
from issues.inbox import Item
from issues.models import Approval, Blocker, Comment, InboxMark, Interaction, Issue
from issues.results import Result

SNOOZES = {"1h": timedelta(hours=1), "4h": timedelta(hours=4), "1d": timedelta(days=1)}
DECIDED = 50


@dataclass(frozen=True, slots=True)
class Desk:
    """`waiting` needs the person now; `aside` holds (item, until when), None for put away."""

    waiting: list[Item]
    aside: list[tuple[Item, datetime | None]]


def of(*, company_id: uuid.UUID, user: User, now: datetime, limit: int = 100) -> Desk:
    """Everything that waits for people, split by what this person put aside; seven queries."""
    items = inbox.for_operators(company_id, now=now, limit=limit)
    marks = {
        mark.ref: mark
        for mark in InboxMark.objects.for_company(company_id).filter(
            user=user, ref__in=[item.ref for item in items]
        )
    }
    desk = Desk([], [])
    for item in items:
        mark = marks.get(item.ref)
        if mark and mark.marked_at >= item.at and (mark.until is None or mark.until > now):
            desk.aside.append((item, mark.until))
        else:
            desk.waiting.append(item)
    return desk


def put_aside(
    *, company: Company, user: User, ref: uuid.UUID, snooze: str = "", now: datetime
) -> datetime | None:
    """Put an item away, or with `snooze` (a key of SNOOZES) until then, which is returned.

    Raises Invalid, NotFound (nothing of this company waits under that id).
    """
    if snooze and snooze not in SNOOZES:
        raise Invalid("invalid_snooze", "snooze: " + ", ".join(SNOOZES), field="snooze")
    items = inbox.for_operators(company.id, now=now, limit=100)
    if ref not in {item.ref for item in items}:
        raise NotFound("This does not wait any more.")
    until = now + SNOOZES[snooze] if snooze else None
    InboxMark.objects.update_or_create(
        company=company, user=user, ref=ref, defaults={"marked_at": now, "until": until}
    )
    live.publish(company.id, "inbox")
    return until


def take_back(*, company: Company, user: User, ref: uuid.UUID) -> None:
    """It waits again, as if it had never been put aside."""
    InboxMark.objects.for_company(company.id).filter(user=user, ref=ref).delete()
    live.publish(company.id, "inbox")


@dataclass(frozen=True, slots=True)
class Price:
    """What waiting costs."""

    blocked: int  # open issues that wait for this one
    queued: int  # runs of the agent that cannot start meanwhile


def price(item: Item) -> Price:
    """Who waits behind an item; at most two queries."""
    blocked = queued = 0
    if item.issue is not None:
        blocked = (
            Blocker.objects.filter(blocking=item.issue)
            .exclude(issue__status__in=Issue.CLOSED)
            .aggregate(n=Count("id"))["n"]
        )
    # A failure keeps none of an agent's other runs from starting; a hold keeps all.
    if item.kind == "hold" and item.agent is not None:
        queued = HeartbeatRun.objects.filter(
            agent=item.agent, status=HeartbeatRun.Status.QUEUED
        ).count()
    return Price(blocked, queued)


@dataclass(frozen=True, slots=True)
class HandedIn:
    """What a review is about: what its agent said last, and what it left."""

    comment: Comment | None
    results: list[Result]


def handed_in(issue: Issue) -> HandedIn:
    """The newest words of an agent about an issue, and its results; two queries."""
    said = (
        Comment.objects.for_company(issue.company_id)
        .filter(issue=issue, deleted_at=None, author_agent__isnull=False)
        .select_related("author_agent")
        .order_by("-created_at", "-id")
    )
    return HandedIn(said.first(), results.of(issue))


@dataclass(frozen=True, slots=True)
class Decision:
    """Something a person decided: an approval or a question."""

    at: datetime
    title: str
    outcome: str
    by: User | None
    note: str
    issue: Issue | None = None


def decided(
    *, company_id: uuid.UUID, before: datetime | None = None
) -> tuple[list[Decision], datetime | None]:
    """What was decided, the newest first, and where the next page begins (None at the end)."""
    when = Q(at__lt=before) if before else Q()
    found = [*_approvals(company_id, when), *_answers(company_id, when)]
    found.sort(key=lambda one: one.at, reverse=True)
    shown = found[:DECIDED]
    return shown, shown[-1].at if len(found) > DECIDED else None


def _approvals(company_id: uuid.UUID, when: Q) -> list[Decision]:
    rows = (
        Approval.objects.for_company(company_id)
        .annotate(at=F("decided_at"))
        .filter(when, at__isnull=False)
        .select_related("decided_by", "requested_by_agent", "requested_by_user", "agent")
        .order_by("-at", "-id")[: DECIDED + 1]
    )
    return [
        Decision(row.decided_at, inbox.approval_title(row), row.status, row.decided_by,
                 row.decision_note)
        for row in rows
        if row.decided_at
    ]  # fmt: skip


def _answers(company_id: uuid.UUID, when: Q) -> list[Decision]:
    rows: Any = (
        Interaction.objects.for_company(company_id)
        .annotate(at=F("answered_at"))
        .filter(when, at__isnull=False, answered_by__isnull=False)
        .select_related("answered_by", "issue")
        .order_by("-at", "-id")[: DECIDED + 1]
    )
    return [
        Decision(
            row.answered_at,
            questions.question(row),
            row.status,
            row.answered_by,
            str((row.response or {}).get("answer") or ""),
            row.issue,
        )
        for row in rows
    ]
