"""Issues over the API: lists, one issue, changes. Threads: `thread_api.py`, work: `work_api.py`."""

from __future__ import annotations

import contextlib
import functools
import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

from django.db import transaction
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents.models import Agent
from companies import access, rows, wire
from companies import shapes as company_shapes
from companies.activity import Actor
from companies.answers import ActivityEntry
from companies.errors import Invalid, NotFound
from companies.models import Activity, Company, Goal, Project, User
from issues import answers, board, deletion, inbox, listed, marks, shapes
from issues.document_models import Label
from issues.models import Comment, Issue, Priority

router = Router(by_alias=True)

Status = Literal["backlog", "todo", "in_progress", "in_review", "blocked", "done", "cancelled"]
PriorityName = Literal["critical", "high", "medium", "low"]
Ids = Annotated[list[uuid.UUID], Field(max_length=100)]
Title = Annotated[wire.Text, Field(min_length=1, max_length=300)]
SORTS = {
    "created": ("-created_at", "-id"),
    "updated": ("-updated_at", "-id"),
    "priority": ("priority", "id"),
}


class Written(wire.Body):
    """The fields that a create and a change have in common."""

    description: wire.Prose | None = None
    priority: PriorityName | None = None
    assignee_agent_id: uuid.UUID | None = None
    assignee_user_id: uuid.UUID | None = None
    project_id: uuid.UUID | None = None
    goal_id: uuid.UUID | None = None
    parent_id: uuid.UUID | None = None
    blocked_by_issue_ids: Ids | None = None
    billing_code: Annotated[wire.Text, Field(max_length=80)] | None = None
    label_ids: Ids | None = None


class NewIssue(Written):
    title: Title
    status: Status | None = None


class IssueChange(Written):
    title: Title | None = None
    status: Status | None = None
    blocked_reason: Annotated[wire.Text, Field(max_length=500)] | None = None
    comment: wire.Prose | None = None
    resume: bool = False


class NewChild(NewIssue):
    block_parent_until_done: bool = False


class Nothing(wire.Body):
    """A body that says nothing; clients send `{}`."""


def find(request: HttpRequest, ref: str, action: access.Action | None = "view") -> Issue:
    """The issue that `ref` names, by UUID or identifier. Raises NotFound and Forbidden.

    `action` None: to take part in the company's work.
    """
    caller = wire.principal(request)
    key, wanted = reference(ref)
    values = {"wanted": wanted, "companies": access.company_ids(caller)}
    met = rows.fetch(_found_by(key), values, Issue, Project, Goal, Goal)
    if not met:
        raise NotFound("There is no such issue.")
    found: Issue
    found, found.project, goal_of_project, found.goal = met[0]
    if found.project is not None:
        found.project.goal = goal_of_project
    if action != "view":
        access.authorize(caller, action or wire.contribution(caller), found.company_id)
    return found


def reference(ref: str) -> tuple[Literal["id", "identifier"], str]:
    """The column that `ref` is about, and its value there. Raises NotFound."""
    try:
        return "id", str(uuid.UUID(ref))
    except ValueError:
        if "\x00" in ref:
            raise NotFound("There is no such issue.") from None
        return "identifier", ref[:24].upper()


@functools.cache
def _found_by(key: Literal["id", "identifier"]) -> str:
    """An issue with what it belongs to: the first statement of every call about one issue."""
    columns = ", ".join(
        rows.columns(model, alias)
        for model, alias in ((Issue, "i"), (Project, "p"), (Goal, "pg"), (Goal, "g"))
    )
    return f"""SELECT {columns} FROM issues_issue i
        LEFT JOIN companies_project p ON p.id = i.project_id
        LEFT JOIN companies_goal pg ON pg.id = p.goal_id
        LEFT JOIN companies_goal g ON g.id = i.goal_id
        WHERE i.{key} = %(wanted)s AND i.company_id = ANY (%(companies)s)"""  # noqa: S608


# --- lists -----------------------------------------------------------------------------------


@router.get(
    "/companies/{company}/issues",
    response=list[answers.ListedIssue],
    summary="Issues, newest first",
)
def list_issues(
    request: HttpRequest,
    company: str,
    status: Annotated[wire.Text, Field(max_length=100)] = "",
    priority: Annotated[wire.Text, Field(max_length=40)] = "",
    assigneeAgentId: uuid.UUID | None = None,
    assigneeUserId: uuid.UUID | Literal["me"] | None = None,
    projectId: uuid.UUID | None = None,
    goalId: uuid.UUID | None = None,
    parentId: uuid.UUID | None = None,
    labelId: uuid.UUID | None = None,
    q: Annotated[wire.Text, Field(max_length=200)] = "",
    archived: bool = False,
    sort: Literal["created", "updated", "priority"] = "created",
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    """`status` and `priority` take several values with commas. `descriptionTruncated` tells that
    an issue's description is longer than shown here."""
    found = wire.company_id(request, company)
    if assigneeUserId == "me":
        wire.user_only(wire.principal(request))
        assigneeUserId = wire.principal(request).user_id
    equal = {
        "assignee_agent_id": assigneeAgentId,
        "assignee_user_id": assigneeUserId,
        "project_id": projectId,
        "goal_id": goalId,
        "parent_id": parentId,
    }
    names = _choices(priority, list(shapes.PRIORITIES.values()), "priority")
    wanted = listed.Filter(
        found,
        status=_choices(status, Issue.Status.values, "status"),
        priority=[Priority[name.upper()].value for name in names],
        text=q,
        archived=archived,
        label_id=labelId,
        equal={name: value for name, value in equal.items() if value is not None},
    )
    return listed.respond(request, wanted, keys=SORTS[sort], limit=limit, cursor=cursor)


@router.get(
    "/companies/{company}/issues/count",
    response=answers.IssueCounts,
    summary="How many issues, by status",
)
def count_issues(
    request: HttpRequest,
    company: str,
    status: Annotated[wire.Text, Field(max_length=100)] = "",
    q: Annotated[wire.Text, Field(max_length=200)] = "",
) -> HttpResponse:
    found = wire.company_id(request, company)
    chosen = _choices(status, Issue.Status.values, "status")
    by_status = listed.count(listed.Filter(found, status=chosen, text=q))
    return wire.answer({"count": by_status.total(), "byStatus": by_status})


def _choices(given: str, known: list[str], field: str) -> list[str]:
    chosen = [part.strip() for part in given.split(",") if part.strip()]
    for one in chosen:
        if one not in known:
            raise Invalid("invalid", f"{field} is one of {', '.join(known)}.", field=field)
    return chosen


@router.get(
    "/agents/me/inbox-lite",
    response=list[answers.InboxIssue],
    summary="What waits for the calling agent",
)
def inbox_lite(request: HttpRequest) -> HttpResponse:
    """Open issues assigned to the caller, what it can act on first, at most 100."""
    agent = Agent.objects.get(id=wire.agent_only(wire.principal(request)))
    return wire.answer(inbox.for_agent(agent, limit=100))


# --- one issue -------------------------------------------------------------------------------


@router.post(
    "/companies/{company}/issues", response={201: answers.WrittenIssue}, summary="A new issue"
)
def create_issue(request: HttpRequest, company: str, body: NewIssue) -> HttpResponse:
    """Assigned to an agent and to do, it wakes the agent."""
    # All that is needed of a company is its id, which needs no look at it.
    found = Company.from_db(None, ["id"], [wire.company_id(request, company, None)])
    made = _create(request, found, body)
    shape = shapes.created(
        made, linked=bool(body.blocked_by_issue_ids), labelled=bool(body.label_ids)
    )
    return wire.answer(shape, 201, version=made.version)


@router.get(
    "/issues/{issue}", response=answers.WholeIssue, summary="One issue, by UUID or identifier"
)
def get_issue(request: HttpRequest, issue: str) -> HttpResponse:
    found = find(request, issue)
    return wire.answer(shapes.full(found), version=found.version)


@router.patch(
    "/issues/{issue}",
    response=answers.ChangedIssue,
    summary="Change an issue, with a comment if wanted",
)
def change_issue(request: HttpRequest, issue: str, body: IssueChange) -> HttpResponse:
    """All or nothing. With `If-Match` a change of somebody else in between is a 409. `resume`
    puts a closed issue back on to do; say why in the comment."""
    found = find(request, issue, None)
    given = body.given()
    comment = given.pop("comment", None)
    label_ids = given.pop("label_ids", None)
    if given.pop("resume", False) and found.status in Issue.CLOSED:
        given.setdefault("status", Issue.Status.TODO)
    actor, now = wire.principal(request).actor, timezone.now()
    before = {"status": found.status, "version": found.version}
    with transaction.atomic():
        updated = board.update(
            issue=found,
            changes=_fields(found.company_id, given),
            actor=actor,
            now=now,
            if_version=wire.if_match(request),
            comment=comment,
        )
        _label(updated, label_ids, actor, now)
    answer = shapes.written(updated)
    after = {"status": updated.status, "version": updated.version}
    answer["changes"] = {
        name: {"from": before[name], "to": after[name]}
        for name in before
        if before[name] != after[name]
    }
    if comment is not None:
        posted = Comment.objects.filter(issue=updated, created_at=now).order_by("-id").first()
        answer["comment"] = shapes.comment(posted) if posted else None
    return wire.answer(answer, version=updated.version)


@router.delete(
    "/issues/{issue}", response=answers.WrittenIssue, summary="Delete an issue with its thread"
)
def delete_issue(request: HttpRequest, issue: str) -> HttpResponse:
    """409 while a run works on it, or with `If-Match` after a change of somebody else. Runs, costs
    and activity stay."""
    found = find(request, issue, "operate")
    shape = shapes.written(found)
    deletion.delete_issue(
        issue=found,
        actor=wire.principal(request).actor,
        now=timezone.now(),
        if_version=wire.if_match(request),
    )
    return wire.answer(shape)


@router.post(
    "/issues/{issue}/children",
    response={201: answers.WrittenIssue},
    summary="A new issue below this one",
)
def create_child(request: HttpRequest, issue: str, body: NewChild) -> HttpResponse:
    parent = find(request, issue, None)
    made = _create(request, parent.company, body, parent=parent)
    if body.block_parent_until_done:
        blocking = [*parent.blocked_by.all(), made]
        board.set_blockers(
            issue=parent,
            blocked_by=blocking,
            actor=wire.principal(request).actor,
            now=timezone.now(),
        )
    return wire.answer(shapes.written(made), 201, version=made.version)


@router.get(
    "/issues/{issue}/children",
    response=list[answers.ListedIssue],
    summary="The issues below this one",
)
def list_children(
    request: HttpRequest,
    issue: str,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = find(request, issue)
    wanted = listed.Filter(found.company_id, archived=True, equal={"parent_id": found.id})
    keys = ("created_at", "id")
    return listed.respond(request, wanted, keys=keys, limit=limit, cursor=cursor)


@router.get(
    "/issues/{issue}/heartbeat-context",
    response=answers.HeartbeatContext,
    summary="What an agent reads first",
)
def heartbeat_context(
    request: HttpRequest,
    issue: str,
    wakeCommentId: uuid.UUID | None = None,
) -> HttpResponse:
    found = find(request, issue)
    wake = Comment.objects.filter(issue=found, id=wakeCommentId).first() if wakeCommentId else None
    return wire.answer(shapes.context(found, wake), version=found.version)


@router.get(
    "/issues/{issue}/activity", response=list[ActivityEntry], summary="Who did what to this issue"
)
def list_activity(
    request: HttpRequest,
    issue: str,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = find(request, issue)
    return wire.page(
        request,
        Activity.objects.for_company(found.company_id).filter(entity_id=found.id),
        keys=("-occurred_at", "-id"),
        shape=lambda page: [company_shapes.activity(row) for row in page],
        limit=limit,
        cursor=cursor,
    )


# --- bodies into domain words ----------------------------------------------------------------


def _create(
    request: HttpRequest, company: Company, body: NewIssue, *, parent: Issue | None = None
) -> Issue:
    given = body.given()
    given.pop("block_parent_until_done", None)
    label_ids = given.pop("label_ids", None)
    fields = _fields(company.id, given)
    fields = {name: value for name, value in fields.items() if value is not None}
    if parent is not None:
        fields["parent"] = parent
    actor, now = wire.principal(request).actor, timezone.now()
    with contextlib.nullcontext() if label_ids is None else transaction.atomic():
        made = board.create(company=company, actor=actor, now=now, **fields)
        _label(made, label_ids, actor, now)
    return made


def _label(issue: Issue, label_ids: list[uuid.UUID] | None, actor: Actor, now: datetime) -> None:
    if label_ids is None:
        return
    labels = list(Label.objects.for_company(issue.company_id).filter(id__in=label_ids))
    if len(labels) != len(set(label_ids)):
        raise NotFound("labelIds names an unknown label.", code="unknown_reference")
    marks.set_labels(issue=issue, labels=labels, actor=actor, now=now)


def _fields(company_id: uuid.UUID, given: dict[str, Any]) -> dict[str, Any]:
    """Ids in a body become rows of the caller's company. Raises NotFound for others."""
    fields = dict(given)
    references: tuple[tuple[str, str, type[Model], tuple[str, ...]], ...] = (
        ("assignee_agent_id", "assignee_agent", Agent, ("id", "company_id", "name", "status")),
        ("project_id", "project", Project, ()),
        ("goal_id", "goal", Goal, ()),
        ("parent_id", "parent", Issue, ()),
    )
    for key, name, model, only in references:
        if key in fields:
            value = fields.pop(key)
            fields[name] = wire.one_of_company(model, company_id, value, key, *only)
    if "assignee_user_id" in fields:
        fields["assignee_user"] = _member(company_id, fields.pop("assignee_user_id"))
    if "blocked_by_issue_ids" in fields:
        ids = fields.pop("blocked_by_issue_ids") or []
        fields["blocked_by"] = issues_of(company_id, ids, "blockedByIssueIds")
    for name in ("description", "billing_code", "blocked_reason"):
        if name in fields and fields[name] is None:
            fields[name] = ""
    for name in ("title", "status", "priority"):
        if name in fields and fields[name] is None:
            del fields[name]
    return fields


def _member(company_id: uuid.UUID, user_id: uuid.UUID | None) -> User | None:
    if user_id is None:
        return None
    found = User.objects.filter(id=user_id, memberships__company_id=company_id).first()
    if found is None:
        raise NotFound("assigneeUserId names no member.", code="unknown_reference")
    return found


def issues_of(company_id: uuid.UUID, ids: list[uuid.UUID], field: str) -> list[Issue]:
    """The issues that ids in a body name, in order. Raises NotFound for a stranger's."""
    found = {row.id: row for row in Issue.objects.for_company(company_id).filter(id__in=ids)}
    if len(found) != len(set(ids)):
        raise NotFound(f"{field} names an unknown issue.", code="unknown_reference")
    return [found[one] for one in dict.fromkeys(ids)]
