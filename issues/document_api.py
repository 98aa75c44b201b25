"""What hangs on an issue, over the API: documents, work products, labels, a person's marks."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from companies import access, wire
from companies.answers import Ok
from companies.errors import NotFound
from issues import answers, documents, marks
from issues import document_shapes as shapes
from issues.api import Nothing, find
from issues.document_models import DocumentRevision, Label, WorkProduct

router = Router(by_alias=True)


class DocumentBody(wire.Body):
    title: Annotated[wire.Text, Field(max_length=300)] | None = None
    format: Literal["markdown", "text", "json"] = "markdown"
    body: Annotated[wire.Text, Field(max_length=documents.BODY_CHARS)]
    base_revision_id: uuid.UUID | None = None
    change_summary: Annotated[wire.Text, Field(max_length=500)] | None = None


class Product(wire.Body):
    type: Annotated[wire.Text, Field(min_length=1, max_length=40)] | None = None
    title: Annotated[wire.Text, Field(min_length=1, max_length=300)] | None = None
    provider: Annotated[wire.Text, Field(max_length=60)] | None = None
    external_id: Annotated[wire.Text, Field(max_length=200)] | None = None
    url: Annotated[wire.Text, Field(max_length=2_000)] | None = None
    status: Annotated[wire.Text, Field(max_length=40)] | None = None
    review_state: Annotated[wire.Text, Field(max_length=40)] | None = None
    is_primary: bool = False
    summary: Annotated[wire.Text, Field(max_length=20_000)] | None = None
    metadata: dict[str, Any] | None = None


class NewProduct(Product):
    type: Annotated[wire.Text, Field(min_length=1, max_length=40)]
    title: Annotated[wire.Text, Field(min_length=1, max_length=300)]


class NewLabel(wire.Body):
    name: Annotated[wire.Text, Field(min_length=1, max_length=60)]
    color: Annotated[wire.Text, Field(pattern=r"^#[0-9a-fA-F]{6}$")] = "#64748b"


# --- documents -------------------------------------------------------------------------------


@router.get(
    "/issues/{issue}/documents",
    response=list[answers.Document],
    summary="The documents of an issue",
)
def list_documents(request: HttpRequest, issue: str) -> HttpResponse:
    found = find(request, issue)
    rows = list(found.documents.order_by("key", "id"))
    return wire.answer(shapes.documents(rows))


@router.get("/issues/{issue}/documents/{key}", response=answers.Document, summary="One document")
def get_document(request: HttpRequest, issue: str, key: str) -> HttpResponse:
    row = documents.find(find(request, issue), wire.word(key))
    return wire.answer(shapes.documents([row])[0], version=row.revision)


@router.put(
    "/issues/{issue}/documents/{key}",
    response={200: answers.Document, 201: answers.Document},
    summary="Write a document",
)
def put_document(request: HttpRequest, issue: str, key: str, body: DocumentBody) -> HttpResponse:
    """With `baseRevisionId`, or `If-Match`, a write over somebody else's is a 409."""
    found = find(request, issue, None)
    row, created = documents.put(
        issue=found,
        key=wire.word(key),
        title=body.title or "",
        format=body.format,
        body=body.body,
        base_revision=body.base_revision_id,
        if_version=wire.if_match(request),
        change_summary=body.change_summary or "",
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer(shapes.documents([row])[0], 201 if created else 200, version=row.revision)


@router.delete("/issues/{issue}/documents/{key}", response=Ok, summary="Delete a document")
def delete_document(request: HttpRequest, issue: str, key: str) -> HttpResponse:
    row = documents.find(find(request, issue, "operate"), wire.word(key))
    documents.delete(
        document=row,
        actor=wire.principal(request).actor,
        now=timezone.now(),
        if_version=wire.if_match(request),
    )
    return wire.answer({"ok": True})


@router.post(
    "/issues/{issue}/documents/{key}/lock",
    response=answers.Document,
    summary="Keep a document as it is",
)
def lock_document(
    request: HttpRequest, issue: str, key: str, body: Nothing | None = None
) -> HttpResponse:
    row = documents.find(find(request, issue, None), wire.word(key))
    row = documents.lock(document=row, actor=wire.principal(request).actor, now=timezone.now())
    return wire.answer(shapes.documents([row])[0])


@router.post(
    "/issues/{issue}/documents/{key}/unlock",
    response=answers.Document,
    summary="Let it be written again",
)
def unlock_document(
    request: HttpRequest, issue: str, key: str, body: Nothing | None = None
) -> HttpResponse:
    row = documents.find(find(request, issue, None), wire.word(key))
    row = documents.unlock(document=row, actor=wire.principal(request).actor, now=timezone.now())
    return wire.answer(shapes.documents([row])[0])


@router.get(
    "/issues/{issue}/documents/{key}/revisions",
    response=list[answers.DocumentRevision],
    summary="Its revisions, newest first",
)
def list_revisions(
    request: HttpRequest,
    issue: str,
    key: str,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    row = documents.find(find(request, issue), wire.word(key))
    return wire.page(
        request,
        DocumentRevision.objects.filter(document=row),
        keys=("-number", "-id"),
        shape=lambda page: [shapes.revision(one, row) for one in page],
        limit=limit,
        cursor=cursor,
    )


@router.post(
    "/issues/{issue}/documents/{key}/revisions/{revision_id}/restore",
    response=answers.Document,
    summary="Write an old revision anew",
)
def restore_revision(
    request: HttpRequest, issue: str, key: str, revision_id: uuid.UUID, body: Nothing | None = None
) -> HttpResponse:
    row = documents.find(find(request, issue, None), wire.word(key))
    old = DocumentRevision.objects.filter(document=row, id=revision_id).first()
    if old is None:
        raise NotFound("There is no such revision.")
    row = documents.restore(
        document=row, revision=old, actor=wire.principal(request).actor, now=timezone.now()
    )
    return wire.answer(shapes.documents([row])[0], version=row.revision)


# --- work products ---------------------------------------------------------------------------


@router.get(
    "/issues/{issue}/work-products",
    response=list[answers.WorkProduct],
    summary="What came out of an issue",
)
def list_products(request: HttpRequest, issue: str) -> HttpResponse:
    found = find(request, issue)
    rows = found.work_products.select_related("issue").order_by("created_at", "id")
    return wire.answer([shapes.product(row) for row in rows])


@router.post(
    "/issues/{issue}/work-products",
    response={201: answers.WorkProduct},
    summary="Note a result that lives elsewhere",
)
def add_product(request: HttpRequest, issue: str, body: NewProduct) -> HttpResponse:
    found = find(request, issue, None)
    row = marks.add_product(
        issue=found, actor=wire.principal(request).actor, now=timezone.now(), **body.given()
    )
    return wire.answer(shapes.product(row), 201)


@router.patch("/work-products/{product_id}", response=answers.WorkProduct, summary="Change it")
def change_product(request: HttpRequest, product_id: uuid.UUID, body: Product) -> HttpResponse:
    row = _product(request, product_id)
    row = marks.change_product(
        product=row, changes=body.given(), actor=wire.principal(request).actor, now=timezone.now()
    )
    return wire.answer(shapes.product(row))


@router.delete("/work-products/{product_id}", response=answers.WorkProduct, summary="Forget it")
def remove_product(request: HttpRequest, product_id: uuid.UUID) -> HttpResponse:
    row = _product(request, product_id)
    shape = shapes.product(row)
    marks.remove_product(product=row, actor=wire.principal(request).actor, now=timezone.now())
    return wire.answer(shape)


def _product(request: HttpRequest, product_id: uuid.UUID) -> WorkProduct:
    caller = wire.principal(request)
    rows = wire.in_companies(caller, WorkProduct.objects.select_related("issue"))
    found = rows.filter(id=product_id).first()
    if found is None:
        raise NotFound("There is no such work product.")
    access.authorize(caller, wire.contribution(caller), found.company_id)
    return found


# --- labels ----------------------------------------------------------------------------------


@router.get("/companies/{company}/labels", response=list[answers.Label], summary="Labels, by name")
def list_labels(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    return wire.answer([shapes.label(row) for row in Label.objects.for_company(found.id)])


@router.post("/companies/{company}/labels", response={201: answers.Label}, summary="A new label")
def create_label(request: HttpRequest, company: str, body: NewLabel) -> HttpResponse:
    found = wire.company(request, company, None)
    label = marks.create_label(
        company=found,
        name=body.name,
        color=body.color,
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer(shapes.label(label), 201)


@router.delete(
    "/labels/{label_id}", response=answers.Label, summary="Delete a label; the issues lose it"
)
def delete_label(request: HttpRequest, label_id: uuid.UUID) -> HttpResponse:
    caller = wire.principal(request)
    found = wire.in_companies(caller, Label.objects.all()).filter(id=label_id).first()
    if found is None:
        raise NotFound("There is no such label.")
    access.authorize(caller, "operate", found.company_id)
    shape = shapes.label(found)
    marks.delete_label(label=found, actor=caller.actor, now=timezone.now())
    return wire.answer(shape)


# --- a person's own inbox --------------------------------------------------------------------


@router.post("/issues/{issue}/read", response=answers.InboxMark, summary="I have read it")
def mark_read(request: HttpRequest, issue: str, body: Nothing | None = None) -> HttpResponse:
    return _mark(request, issue, read=True)


@router.delete("/issues/{issue}/read", response=answers.InboxMark, summary="I have not read it")
def mark_unread(request: HttpRequest, issue: str) -> HttpResponse:
    return _mark(request, issue, read=False)


@router.post(
    "/issues/{issue}/inbox-archive", response=answers.InboxMark, summary="Put it away in my inbox"
)
def put_away(request: HttpRequest, issue: str, body: Nothing | None = None) -> HttpResponse:
    return _mark(request, issue, archived=True)


@router.delete(
    "/issues/{issue}/inbox-archive",
    response=answers.InboxMark,
    summary="Take it back into my inbox",
)
def take_back(request: HttpRequest, issue: str) -> HttpResponse:
    return _mark(request, issue, archived=False)


def _mark(request: HttpRequest, issue: str, **wish: bool) -> HttpResponse:
    user_id = wire.user_only(wire.principal(request))
    found = find(request, issue)
    row = marks.mark(issue=found, user_id=user_id, now=timezone.now(), **wish)
    return wire.answer(
        {
            "issueId": found.id,
            "userId": user_id,
            "lastReadAt": row.read_at,
            "archivedAt": row.archived_at,
        }
    )
