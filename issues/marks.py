"""Labels, work products and what a person has read: small things that hang on an issue."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models.functions import Lower
from django.utils import timezone

from companies import activity, live
from companies.activity import Actor
from companies.errors import Conflict, Invalid
from companies.fields import is_link
from companies.models import Company, User
from issues import consequences, fields, graph
from issues.document_models import IssueLabel, IssueMark, Label, WorkProduct
from issues.models import Issue

COLOR = re.compile(r"#[0-9a-fA-F]{6}")
GREY = "#64748b"
MAX_LABELS = 500
MAX_PRODUCTS = 200
_PRODUCT = {
    "type": 40, "provider": 60, "external_id": 200, "title": 300, "url": 2_000, "status": 40,
    "review_state": 40, "summary": 20_000,
}  # fmt: skip


# --- labels ----------------------------------------------------------------------------------


@transaction.atomic
def create_label(
    *, company: Company, name: str, color: str, actor: Actor, now: datetime | None = None
) -> Label:
    """A new label. Raises Invalid, and Conflict when the name is taken."""
    now = now or timezone.now()
    if not COLOR.fullmatch(color):
        raise Invalid("invalid_color", "A colour such as #cc0000.", field="color")
    if Label.objects.for_company(company.id).count() >= MAX_LABELS:
        raise Conflict("too_many_labels", f"A company has at most {MAX_LABELS} labels.")
    try:
        with transaction.atomic():
            label = Label.objects.create(
                company=company,
                name=fields.text(name, "name", limit=60, required=True, line=True),
                color=color.lower(),
                created_at=now,
                updated_at=now,
            )
    except IntegrityError:
        raise Conflict("label_taken", "There is a label of this name.", field="name") from None
    _record_label(label, "label.created", actor, now)
    return label


def label_named(*, company: Company, name: str, actor: Actor, now: datetime | None = None) -> Label:
    """The label of this name, whatever its case; a new grey one when there is none.

    Raises Invalid, Conflict (too many labels).
    """
    clean = fields.text(name, "label", limit=60, required=True, line=True)
    known = Label.objects.for_company(company.id).filter(name__iexact=clean)
    found = known.first()
    if found is not None:
        return found
    try:
        return create_label(company=company, name=clean, color=GREY, actor=actor, now=now)
    except Conflict:
        found = known.first()  # somebody else was quicker
        if found is None:
            raise
        return found


@transaction.atomic
def delete_label(*, label: Label, actor: Actor, now: datetime | None = None) -> None:
    """Delete a label; the issues lose it."""
    _record_label(label, "label.deleted", actor, now or timezone.now())
    label.delete()


@transaction.atomic
def set_labels(
    *, issue: Issue, labels: Iterable[Label], actor: Actor, now: datetime | None = None
) -> None:
    """Give an issue exactly these labels."""
    wanted = {label.pk: label for label in labels}
    held = IssueLabel.objects.filter(issue=issue)
    before = set(held.values_list("label_id", flat=True))
    if before == set(wanted):
        return
    held.exclude(label_id__in=list(wanted)).delete()
    IssueLabel.objects.bulk_create(
        [
            IssueLabel(company_id=issue.company_id, issue=issue, label=label)
            for pk, label in wanted.items()
            if pk not in before
        ],
        ignore_conflicts=True,
    )
    names = sorted(label.name for label in wanted.values())
    consequences.record(
        issue,
        actor=actor,
        action="issue.labelled",
        now=now or timezone.now(),
        details={"after": {"labels": names}},
    )
    consequences.announce(issue)


@transaction.atomic
def attach(*, issue: Issue, name: str, actor: Actor, now: datetime | None = None) -> Label:
    """Add the label of this name to what an issue has; a new one when there is none.

    Raises Invalid, Conflict (too many labels), NotFound (the issue is gone).
    """
    label = label_named(company=issue.company, name=name, actor=actor, now=now)
    # Who adds another one at the same time must not lose it.
    row = graph.lock_row(issue.id)
    set_labels(issue=row, labels=[*labels_of(row), label], actor=actor, now=now)
    return label


@transaction.atomic
def detach(*, issue: Issue, label: Label, actor: Actor, now: datetime | None = None) -> None:
    """Take a label off an issue; nothing, if it has it no more. Raises NotFound."""
    row = graph.lock_row(issue.id)
    left = [one for one in labels_of(row) if one.pk != label.pk]
    set_labels(issue=row, labels=left, actor=actor, now=now)


def labels_of(issue: Issue) -> list[Label]:
    """The labels of an issue, by name; one query."""
    return list(Label.objects.filter(labelled__issue=issue).order_by(Lower("name"), "id"))


def _record_label(label: Label, action: str, actor: Actor, now: datetime) -> None:
    activity.record(
        company_id=label.company_id,
        actor=actor,
        action=action,
        entity_type="label",
        entity_id=label.pk,
        entity_name=label.name,
        now=now,
    )


# --- work products ---------------------------------------------------------------------------


@transaction.atomic
def add_product(
    *, issue: Issue, actor: Actor, now: datetime | None = None, **given: Any
) -> WorkProduct:
    """Note something that came out of an issue. Needs type and title. Raises Invalid."""
    now = now or timezone.now()
    if WorkProduct.objects.filter(issue=issue).count() >= MAX_PRODUCTS:
        raise Conflict("too_many_products", f"An issue has at most {MAX_PRODUCTS} work products.")
    product = WorkProduct(
        company_id=issue.company_id,
        issue=issue,
        created_by_run_id=actor.run_id,
        created_at=now,
        updated_at=now,
    )
    _set_product(product, {"type": "", "title": "", **given})
    product.save(force_insert=True)
    _tell_product(product, "issue.work_product_created", actor, now)
    return product


@transaction.atomic
def change_product(
    *, product: WorkProduct, changes: Mapping[str, Any], actor: Actor, now: datetime | None = None
) -> WorkProduct:
    """Change a work product. Raises Invalid."""
    now = now or timezone.now()
    row = WorkProduct.objects.select_for_update(no_key=True).get(pk=product.pk)
    _set_product(row, changes)
    row.updated_at = now
    row.save()
    _tell_product(row, "issue.work_product_updated", actor, now)
    return row


@transaction.atomic
def remove_product(*, product: WorkProduct, actor: Actor, now: datetime | None = None) -> None:
    _tell_product(product, "issue.work_product_deleted", actor, now or timezone.now())
    product.delete()


def _set_product(product: WorkProduct, changes: Mapping[str, Any]) -> None:
    for name, value in changes.items():
        if name in _PRODUCT:
            required = name in ("type", "title")
            clean = fields.text(value or "", name, limit=_PRODUCT[name], required=required)
            if name == "url" and clean and not is_link(clean):
                raise Invalid("invalid_url", "An http or https address.", field="url")
            if name in ("status", "review_state") and not clean:
                continue
            setattr(product, name, clean)
        elif name in ("is_primary", "metadata"):
            setattr(product, name, value)
        else:
            raise Invalid("unknown_field", f"{name} cannot be set here.", field=name)


def _tell_product(product: WorkProduct, action: str, actor: Actor, now: datetime) -> None:
    consequences.record(
        product.issue,
        actor=actor,
        action=action,
        now=now,
        details={
            "workProductId": str(product.pk),
            "title": product.title[:200],
            "type": product.type,
            "provider": product.provider,
        },
    )
    live.publish(product.company_id, "issue", product.issue_id)


# --- a person's own inbox --------------------------------------------------------------------


def mark(*, issue: Issue, user_id: uuid.UUID, now: datetime, **wish: bool) -> IssueMark:
    """Note what a person did with an issue: `read` and `archived`, each set or taken back.

    Theirs alone: no activity, nobody is woken.
    """
    values = {f"{name}_at": now if value else None for name, value in wish.items()}
    marked, _ = IssueMark.objects.update_or_create(
        issue=issue,
        user=User(pk=user_id),
        defaults=values,
        create_defaults={"company_id": issue.company_id, **values},
    )
    return marked
