"""Approvals over the API: agents ask, people decide."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents.models import Agent
from companies import access, wire
from companies.answers import Ok
from companies.errors import NotFound
from issues import answers, approvals, shapes
from issues import document_shapes as more_shapes
from issues.api import find as find_issue
from issues.api import issues_of
from issues.approval_models import Approval, ApprovalComment
from issues.models import Issue

router = Router(by_alias=True)
Outcome = Literal["approved", "rejected", "revision_requested"]


class NewApproval(wire.Body):
    type: Literal[
        "hire_agent", "approve_ceo_strategy", "budget_override_required", "request_board_approval"
    ] = "request_board_approval"
    payload: dict[str, Any]
    requested_by_agent_id: uuid.UUID | None = None
    issue_ids: Annotated[list[uuid.UUID], Field(max_length=50)] = []
    single_use: bool = False


class Decision(wire.Body):
    decision_note: Annotated[wire.Text, Field(max_length=20_000)] | None = None


class Resubmission(wire.Body):
    payload: dict[str, Any] | None = None


class NewApprovalComment(wire.Body):
    body: Annotated[wire.Text, Field(min_length=1, max_length=100_000)]


class Link(wire.Body):
    approval_id: uuid.UUID


@router.get(
    "/companies/{company}/approvals",
    response=list[answers.Approval],
    summary="Approvals, newest first",
)
def list_approvals(
    request: HttpRequest,
    company: str,
    status: Literal["pending", "approved", "rejected", "revision_requested"] | None = None,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = wire.company(request, company)
    rows = Approval.objects.for_company(found.id)
    if status is not None:
        rows = rows.filter(status=status)
    return wire.page(
        request,
        rows,
        keys=("-created_at", "-id"),
        shape=lambda page: [more_shapes.approval(row) for row in page],
        limit=limit,
        cursor=cursor,
    )


@router.post(
    "/companies/{company}/approvals",
    response={201: answers.Approval},
    summary="Ask for an approval",
)
def create_approval(request: HttpRequest, company: str, body: NewApproval) -> HttpResponse:
    """An agent asks in its own name; the outcome wakes it. The same wish again, while it waits, is
    answered with the approval that there is."""
    found = wire.company(request, company, None)
    requester = wire.one_of_company(
        Agent, found.id, body.requested_by_agent_id, "requestedByAgentId"
    )
    approval = approvals.request(
        company=found,
        type=body.type,
        payload=body.payload,
        requester=requester,
        issues=issues_of(found.id, body.issue_ids, "issueIds"),
        single_use=body.single_use,
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer(more_shapes.approval(approval), 201)


@router.get("/approvals/{approval_id}", response=answers.Approval, summary="One approval")
def get_approval(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    return wire.answer(more_shapes.approval(_find(request, approval_id)))


@router.get(
    "/approvals/{approval_id}/issues",
    response=list[answers.Issue],
    summary="The issues it is about",
)
def list_approval_issues(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    found = _find(request, approval_id)
    rows = Issue.objects.filter(approvals__approval=found).order_by("created_at", "id")
    return wire.answer([shapes.issue(row) for row in shapes.rows(rows)])


@router.get(
    "/approvals/{approval_id}/comments",
    response=list[answers.ApprovalComment],
    summary="What was said about it",
)
def list_approval_comments(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    found = _find(request, approval_id)
    rows = ApprovalComment.objects.filter(approval=found).order_by("created_at", "id")
    return wire.answer([more_shapes.approval_comment(row) for row in rows[: wire.MAX_PAGE]])


@router.post(
    "/approvals/{approval_id}/comments",
    response={201: answers.ApprovalComment},
    summary="Say something about it",
)
def comment_on_approval(
    request: HttpRequest, approval_id: uuid.UUID, body: NewApprovalComment
) -> HttpResponse:
    found = _find(request, approval_id, None)
    posted = approvals.comment(
        approval=found, body=body.body, actor=wire.principal(request).actor, now=timezone.now()
    )
    return wire.answer(more_shapes.approval_comment(posted), 201)


@router.post("/approvals/{approval_id}/approve", response=answers.Approval, summary="Say yes")
def approve(
    request: HttpRequest, approval_id: uuid.UUID, body: Decision | None = None
) -> HttpResponse:
    return _decide(request, approval_id, body, "approved")


@router.post("/approvals/{approval_id}/reject", response=answers.Approval, summary="Say no")
def reject(
    request: HttpRequest, approval_id: uuid.UUID, body: Decision | None = None
) -> HttpResponse:
    return _decide(request, approval_id, body, "rejected")


@router.post(
    "/approvals/{approval_id}/request-revision",
    response=answers.Approval,
    summary="Ask for a better one",
)
def request_revision(
    request: HttpRequest, approval_id: uuid.UUID, body: Decision | None = None
) -> HttpResponse:
    return _decide(request, approval_id, body, "revision_requested")


@router.post(
    "/approvals/{approval_id}/resubmit", response=answers.Approval, summary="Ask again, revised"
)
def resubmit(
    request: HttpRequest, approval_id: uuid.UUID, body: Resubmission | None = None
) -> HttpResponse:
    found = _find(request, approval_id, None)
    again = approvals.resubmit(
        approval=found,
        payload=body.payload if body else None,
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer(more_shapes.approval(again))


@router.post(
    "/approvals/{approval_id}/consume",
    response=answers.Approval,
    summary="Use a single-use approval up",
)
def consume(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """For the run that does what was allowed, before it does it: the first run gets 200, also when
    it asks twice, every other one 409."""
    found = _find(request, approval_id, "work")
    used = approvals.consume(
        approval=found, actor=wire.principal(request).actor, now=timezone.now()
    )
    return wire.answer(more_shapes.approval(used))


# --- from the issue's side -------------------------------------------------------------------


@router.get(
    "/issues/{issue}/approvals",
    response=list[answers.Approval],
    summary="The approvals about an issue",
)
def list_issue_approvals(request: HttpRequest, issue: str) -> HttpResponse:
    found = find_issue(request, issue)
    rows = Approval.objects.filter(links__issue=found).order_by("-created_at", "-id")
    return wire.answer([more_shapes.approval(row) for row in rows[: wire.MAX_PAGE]])


@router.post(
    "/issues/{issue}/approvals",
    response={201: answers.Approval},
    summary="Say that an approval is about this issue",
)
def link_approval(request: HttpRequest, issue: str, body: Link) -> HttpResponse:
    found = find_issue(request, issue, None)
    approval = wire.one_of_company(Approval, found.company_id, body.approval_id, "approvalId")
    assert approval is not None  # the body always names one
    approvals.link(
        approval=approval,
        issue=found,
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer(more_shapes.approval(approval), 201)


@router.delete("/issues/{issue}/approvals/{approval_id}", response=Ok, summary="Take that back")
def unlink_approval(request: HttpRequest, issue: str, approval_id: uuid.UUID) -> HttpResponse:
    found = find_issue(request, issue, None)
    approval = Approval.objects.for_company(found.company_id).filter(id=approval_id).first()
    if approval is None or not approvals.unlink(
        approval=approval,
        issue=found,
        actor=wire.principal(request).actor,
        now=timezone.now(),
    ):
        raise NotFound("This issue has no such approval.")
    return wire.answer({"ok": True})


def _find(
    request: HttpRequest, approval_id: uuid.UUID, action: access.Action | None = "view"
) -> Approval:
    caller = wire.principal(request)
    rows = wire.in_companies(caller, Approval.objects.all())
    found = rows.filter(id=approval_id).first()
    if found is None:
        raise NotFound("There is no such approval.")
    access.authorize(caller, action or wire.contribution(caller), found.company_id)
    return found


def _decide(
    request: HttpRequest, approval_id: uuid.UUID, body: Decision | None, outcome: Outcome
) -> HttpResponse:
    found = _find(request, approval_id, "operate")
    decided = approvals.decide(
        approval=found,
        outcome=outcome,
        note=(body.decision_note if body else "") or "",
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer(more_shapes.approval(decided))
