"""An issue's thread over the API: comments, and what agents ask of people."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from companies import access, wire
from companies.errors import NotFound
from issues import answers, board, deletion, questions, shapes, suggestions
from issues.api import Nothing, find
from issues.models import Comment, Interaction

router = Router(by_alias=True)
Kind = Literal["ask_user_questions", "request_confirmation", "suggest_tasks"]


class NewComment(wire.Body):
    body: Annotated[wire.Text, Field(min_length=1, max_length=100_000)]
    reopen: bool = False
    resume: bool = False  # what other clients call it


class NewInteraction(wire.Body):
    kind: Kind
    title: Annotated[wire.Text, Field(max_length=300)] | None = None
    summary: Annotated[wire.Text, Field(max_length=2_000)] | None = None
    payload: dict[str, Any]


class Response(wire.Body):
    answer: wire.Prose | None = None
    answers: list[Any] | dict[str, Any] | None = None
    reason: wire.Prose | None = None
    selected_client_keys: list[wire.Line] | None = None
    summary_markdown: wire.Prose | None = None


# --- comments --------------------------------------------------------------------------------


@router.get("/issues/{issue}/comments", response=list[answers.Comment], summary="The thread")
def list_comments(
    request: HttpRequest,
    issue: str,
    after: uuid.UUID | None = None,
    order: Literal["asc", "desc"] = "desc",
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    """`after` is the id of the last comment you know: newer ones follow it (`order=asc`)."""
    found = find(request, issue)
    rows = Comment.objects.for_company(found.company_id).filter(issue=found)
    if after is not None:
        known = rows.filter(id=after).first()
        if known is None:
            raise NotFound("after names no comment of this issue.", code="unknown_reference")
        newer = Q(created_at__gt=known.created_at)
        rows = rows.filter(newer | Q(created_at=known.created_at, id__gt=known.id))
    return wire.page(
        request,
        rows,
        keys=("created_at", "id") if order == "asc" else ("-created_at", "-id"),
        shape=lambda page: [shapes.comment(row) for row in page],
        limit=limit,
        cursor=cursor,
    )


@router.post("/issues/{issue}/comments", response={201: answers.Comment}, summary="Say something")
def create_comment(request: HttpRequest, issue: str, body: NewComment) -> HttpResponse:
    """Wakes the assignee and every agent that the text calls by `@name`, never the author."""
    found = find(request, issue, None)
    posted = board.comment(
        issue=found,
        body=body.body,
        reopen=body.reopen or body.resume,
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer(shapes.comment(posted), 201)


@router.get("/issues/{issue}/comments/{comment}", response=answers.Comment, summary="One comment")
def get_comment(request: HttpRequest, issue: str, comment: uuid.UUID) -> HttpResponse:
    found = find(request, issue)
    row = Comment.objects.filter(issue=found, id=comment).first()
    if row is None:
        raise NotFound("There is no such comment.")
    return wire.answer(shapes.comment(row))


@router.delete(
    "/issues/{issue}/comments/{comment}", response=answers.Comment, summary="Take a comment back"
)
def delete_comment(request: HttpRequest, issue: str, comment: uuid.UUID) -> HttpResponse:
    """Its words go, its place in the thread stays. An agent takes back only its own."""
    found = find(request, issue, None)
    row = Comment.objects.select_related("issue").filter(issue=found, id=comment).first()
    if row is None:
        raise NotFound("There is no such comment.")
    row = deletion.delete_comment(
        comment=row, actor=wire.principal(request).actor, now=timezone.now()
    )
    return wire.answer(shapes.comment(row))


# --- interactions ----------------------------------------------------------------------------


@router.get(
    "/issues/{issue}/interactions",
    response=list[answers.Interaction],
    summary="What was asked of people here",
)
def list_interactions(
    request: HttpRequest,
    issue: str,
    status: Literal["pending", "answered", "accepted", "rejected", "cancelled"] | None = None,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = find(request, issue)
    rows = Interaction.objects.for_company(found.company_id).filter(issue=found)
    if status is not None:
        rows = rows.filter(status=status)
    return wire.page(
        request,
        rows,
        keys=("created_at", "id"),
        shape=lambda page: [shapes.interaction(row) for row in page],
        limit=limit,
        cursor=cursor,
    )


@router.post(
    "/issues/{issue}/interactions", response={201: answers.Interaction}, summary="Ask people"
)
def create_interaction(request: HttpRequest, issue: str, body: NewInteraction) -> HttpResponse:
    """The issue waits in review until they answer; the answer wakes the asker."""
    found = find(request, issue, None)
    extra = {"title": body.title, "summary": body.summary}
    payload = {**{key: value for key, value in extra.items() if value}, **body.payload}
    suggestions.check(kind=body.kind, payload=payload, issue=found)
    asked = questions.ask(
        issue=found,
        kind=body.kind,
        payload=payload,
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer(shapes.interaction(asked), 201)


@router.post(
    "/issues/{issue}/interactions/{interaction}/accept",
    response=answers.Interaction,
    summary="Say yes",
)
def accept(
    request: HttpRequest, issue: str, interaction: uuid.UUID, body: Response | None = None
) -> HttpResponse:
    return _answer(request, issue, interaction, body, "accepted")


@router.post(
    "/issues/{issue}/interactions/{interaction}/reject",
    response=answers.Interaction,
    summary="Say no",
)
def reject(
    request: HttpRequest, issue: str, interaction: uuid.UUID, body: Response | None = None
) -> HttpResponse:
    return _answer(request, issue, interaction, body, "rejected")


@router.post(
    "/issues/{issue}/interactions/{interaction}/respond",
    response=answers.Interaction,
    summary="Answer a question",
)
def respond(
    request: HttpRequest, issue: str, interaction: uuid.UUID, body: Response
) -> HttpResponse:
    return _answer(request, issue, interaction, body, "answered")


@router.post(
    "/issues/{issue}/interactions/{interaction}/cancel",
    response=answers.Interaction,
    summary="Take a question back",
)
def cancel(
    request: HttpRequest, issue: str, interaction: uuid.UUID, body: Nothing | None = None
) -> HttpResponse:
    row = _interaction(request, issue, interaction, None)
    row = questions.cancel(interaction=row, actor=wire.principal(request).actor, now=timezone.now())
    return wire.answer(shapes.interaction(row))


def _interaction(
    request: HttpRequest, issue: str, interaction: uuid.UUID, action: access.Action | None
) -> Interaction:
    found = find(request, issue, action)
    row = Interaction.objects.filter(issue=found, id=interaction).first()
    if row is None:
        raise NotFound("There is no such interaction.")
    return row


def _answer(
    request: HttpRequest, issue: str, interaction: uuid.UUID, body: Response | None, outcome: str
) -> HttpResponse:
    row = _interaction(request, issue, interaction, "operate")
    given = body.model_dump(by_alias=True, exclude_unset=True) if body else {}
    if outcome == "accepted":
        row = suggestions.accept(
            interaction=row,
            response=given,
            selected=body.selected_client_keys if body else None,
            actor=wire.principal(request).actor,
            now=timezone.now(),
        )
        return wire.answer(shapes.interaction(row))
    row = questions.answer(
        interaction=row,
        response=given,
        outcome=outcome,
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer(shapes.interaction(row))
