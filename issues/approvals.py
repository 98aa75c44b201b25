"""Approvals: asked for, decided, revised. One typed object for hires, plans, budgets and requests.

An agent asks in its own name and never decides. Every outcome wakes the asker.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson
from django.db import IntegrityError, transaction
from django.utils import timezone

from agents import roster, wakes
from agents.models import Agent, HeartbeatRun
from companies import activity, live
from companies.activity import Actor
from companies.errors import Conflict, Forbidden, Invalid
from companies.models import Company
from issues import fields, questions
from issues.approval_models import Approval, ApprovalComment, ApprovalIssue
from issues.models import Issue

State = Approval.Status
MAX_OPEN = 100
REASONS = {
    State.APPROVED: "approval_approved",
    State.REJECTED: "approval_rejected",
    State.REVISION: "approval_revision_requested",
}


@transaction.atomic
def request(
    *,
    company: Company,
    type: str,
    payload: Mapping[str, Any],
    actor: Actor,
    now: datetime | None = None,
    requester: Agent | None = None,
    agent: Agent | None = None,
    issues: Iterable[Issue] = (),
    single_use: bool = False,
) -> Approval:
    """Ask for an approval. `requester` is the agent that asks (for an agent: itself). What somebody
    asks for again while it waits is answered with the approval that there is; the database lets
    one of them in, however many ask at once. `single_use`: see `consume`.

    Raises Invalid, Forbidden (in another's name), Conflict (too many are open).
    """
    now = now or timezone.now()
    if type not in Approval.Type.values:
        raise Invalid("invalid_type", "type: " + ", ".join(Approval.Type.values), field="type")
    if actor.type == "agent" and requester is not None and requester.pk != actor.id:
        raise Forbidden("not_yours", "An agent asks in its own name.")
    by_agent = requester.pk if requester else actor.id if actor.type == "agent" else None
    about = {issue.pk for issue in issues}
    wish = Approval(
        company=company,
        type=type,
        payload=questions.plain_json(payload),
        requested_by_agent_id=by_agent,
        requested_by_user_id=actor.id if actor.type == "user" else None,
        agent=agent,
        single_use=single_use,
        created_at=now,
        updated_at=now,
    )
    wish.fingerprint = _fingerprint(wish, about)
    known = _waiting(wish)
    if known is not None:
        return known
    if Approval.objects.for_company(company.id).filter(status__in=Approval.OPEN).count() > MAX_OPEN:
        raise Conflict("too_many_approvals", "Enough approvals wait for a decision.")
    while True:
        # Waits for whoever files the same at this moment, and then does nothing.
        Approval.objects.bulk_create([wish], ignore_conflicts=True)
        if Approval.objects.filter(pk=wish.pk).exists():
            break
        known = _waiting(wish)
        if known is not None:
            return known
    ApprovalIssue.objects.bulk_create(
        [ApprovalIssue(company=company, approval=wish, issue_id=pk) for pk in sorted(about)]
    )
    _tell(wish, "approval.requested", actor, now)
    return wish


def _waiting(wish: Approval) -> Approval | None:
    """The same wish, still open."""
    return Approval.objects.filter(
        company_id=wish.company_id, fingerprint=wish.fingerprint, status__in=Approval.OPEN
    ).first()


def _fingerprint(wish: Approval, about: Iterable[uuid.UUID]) -> str:
    """Of who asks for what, about which issues; blanks make no other wish."""
    asker = wish.requested_by_agent_id or wish.requested_by_user_id
    parts = [wish.type, asker, wish.agent_id, sorted(about), wish.single_use, _plain(wish.payload)]
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


@transaction.atomic
def decide(
    *, approval: Approval, outcome: str, note: str = "", actor: Actor, now: datetime | None = None
) -> Approval:
    """Approve, reject or ask for a revision, as a person. The same decision again is no change.

    A hire that is approved becomes active, one that is rejected is let go. Raises Conflict when
    it was decided otherwise.
    """
    now = now or timezone.now()
    if actor.type != "user":
        raise Forbidden("people_only", "Approvals are decided by people.")
    row = _locked(approval)
    if row.status == outcome:
        return row
    if row.status not in Approval.OPEN:
        raise Conflict(
            "already_decided", "This approval was decided.", details={"status": row.status}
        )
    row.status = outcome
    row.decision_note = fields.text(note, "decisionNote", limit=20_000)
    row.decided_by_id, row.decided_at, row.updated_at = actor.id, now, now
    row.save()
    if row.type == Approval.Type.HIRE and row.agent is not None:
        _settle_hire(row.agent, outcome, actor, now)
    _tell(row, f"approval.{outcome}", actor, now)
    _wake(row, actor, now)
    return row


@transaction.atomic
def resubmit(
    *,
    approval: Approval,
    actor: Actor,
    payload: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> Approval:
    """Ask again after a revision was asked for: by whoever asked first. Raises Conflict, also when
    the revised wish waits already."""
    now = now or timezone.now()
    row = _locked(approval)
    if actor.type == "agent" and row.requested_by_agent_id != actor.id:
        raise Forbidden("not_yours", "Another agent asks for this.")
    if row.status != State.REVISION:
        raise Conflict(
            "not_in_revision", "No revision was asked for.", details={"status": row.status}
        )
    if payload is not None:
        row.payload = questions.plain_json(payload)
        row.fingerprint = _fingerprint(row, row.links.values_list("issue_id", flat=True))
    row.status, row.updated_at = State.PENDING, now
    row.decided_by = row.decided_at = None
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError as error:
        if "one_open_approval_a_wish" not in str(error):
            raise
        raise Conflict("already_asked", "The same is asked for in another approval.") from None
    _tell(row, "approval.resubmitted", actor, now)
    return row


@transaction.atomic
def consume(*, approval: Approval, actor: Actor, now: datetime | None = None) -> Approval:
    """Spend a granted single-use approval, as the run that does what it allows: the first run gets
    it, and gets it again when it asks twice; every other one gets Conflict.

    Raises Forbidden for whoever is no run, or a run that has nothing to do with it: of another
    agent than the one that asked, and about none of its issues.
    """
    now = now or timezone.now()
    if actor.run_id is None:
        raise Forbidden("runs_only", "An approval is consumed by the run that acts on it.")
    run = HeartbeatRun.objects.get(pk=actor.run_id)
    asker = approval.requested_by_agent_id
    if asker not in (None, run.agent_id) and not approval.links.filter(issue=run.issue_id).exists():
        raise Forbidden("not_yours", "Another agent asked for this, about another issue.")
    consumed = Approval.objects.filter(
        pk=approval.pk, status=State.APPROVED, single_use=True, consumed_at=None
    ).update(consumed_by_run=run, consumed_at=now, updated_at=now)
    row = Approval.objects.get(pk=approval.pk)
    if consumed:
        _tell(row, "approval.consumed", actor, now)
    elif row.consumed_by_run_id != run.pk:
        raise _not_to_be_had(row)
    return row


def _not_to_be_had(row: Approval) -> Conflict:
    details = {"status": row.status, "consumedAt": row.consumed_at}
    if row.consumed_at is not None:
        return Conflict("already_consumed", "Another run has used this approval.", details=details)
    if row.status != State.APPROVED:
        return Conflict("not_approved", "This approval was not granted.", details=details)
    return Conflict("not_single_use", "This approval is there to be read.", details=details)


@transaction.atomic
def comment(
    *, approval: Approval, body: str, actor: Actor, now: datetime | None = None
) -> ApprovalComment:
    """Say something about an approval."""
    now = now or timezone.now()
    posted = ApprovalComment.objects.create(
        company_id=approval.company_id,
        approval=approval,
        author_user_id=actor.id if actor.type == "user" else None,
        author_agent_id=actor.id if actor.type == "agent" else None,
        body=fields.body(body),
        created_at=now,
    )
    _tell(approval, "approval.commented", actor, now)
    return posted


@transaction.atomic
def link(*, approval: Approval, issue: Issue, actor: Actor, now: datetime | None = None) -> None:
    """Say that an approval is about an issue."""
    ApprovalIssue.objects.get_or_create(
        approval=approval, issue=issue, defaults={"company_id": approval.company_id}
    )
    _tell(approval, "approval.linked", actor, now or timezone.now())


@transaction.atomic
def unlink(*, approval: Approval, issue: Issue, actor: Actor, now: datetime | None = None) -> bool:
    """Take that back. False when it was not said."""
    gone, _ = ApprovalIssue.objects.filter(approval=approval, issue=issue).delete()
    if gone:
        _tell(approval, "approval.unlinked", actor, now or timezone.now())
    return bool(gone)


def _settle_hire(agent: Agent, outcome: str, actor: Actor, now: datetime) -> None:
    agent.refresh_from_db()
    if agent.status != Agent.Status.PENDING_APPROVAL:
        return
    if outcome == State.APPROVED:
        roster.approve(agent=agent, actor=actor, now=now)
    elif outcome == State.REJECTED:
        roster.terminate(agent=agent, actor=actor, now=now)


def _wake(approval: Approval, actor: Actor, now: datetime) -> None:
    asker = approval.requested_by_agent
    if asker is None:
        return
    about = approval.links.select_related("issue").order_by("id").first()
    ids = approval.links.values_list("issue_id", flat=True)
    wakes.wake(
        agent=asker,
        issue=about.issue if about else None,
        reason=REASONS[State(approval.status)],
        source=HeartbeatRun.Source.AUTOMATION,
        actor=actor,
        now=now,
        payload={
            "approvalId": str(approval.pk),
            "approvalStatus": approval.status,
            "singleUse": approval.single_use,
            "linkedIssueIds": [str(one) for one in ids],
        },
    )


def _locked(approval: Approval) -> Approval:
    return Approval.objects.select_for_update(no_key=True).get(pk=approval.pk)


def _tell(approval: Approval, action: str, actor: Actor, now: datetime) -> None:
    activity.record(
        company_id=approval.company_id,
        actor=actor,
        action=action,
        entity_type="approval",
        entity_id=approval.pk,
        entity_name=str(approval.payload.get("title") or approval.get_type_display())[:200],
        details={"type": approval.type, "status": approval.status},
        now=now,
    )
    live.publish(approval.company_id, "inbox")
