"""One change of many issues at once, and the way back.

Each issue is changed by the board's own verb in a transaction of its own: one that refuses does not
hold up the others, and no two callers wait for each other's rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from companies.activity import Actor
from companies.errors import Conflict, Invalid, Refusal
from companies.models import Company
from issues import board, marks, retrace
from issues.document_models import IssueLabel, Label
from issues.models import Issue

MOST = 200
Before = tuple[str, int, dict[str, Any]]  # issue id, version after the change, what was there


@dataclass(slots=True)
class Outcome:
    """What came of it. `before` is what `take_back` wants; `refused` holds (identifier, why)."""

    before: list[Before] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)


def change(
    *,
    company: Company,
    issue_ids: Iterable[uuid.UUID],
    changes: Mapping[str, Any],
    actor: Actor,
    now: datetime,
) -> Outcome:
    """Set `changes` on all these issues: status, priority, assignee_agent, assignee_user (as in
    `board.update`), `label` to add, or `archived` True.

    Raises Invalid when nothing is chosen, too much, or nothing is to be changed.
    """
    found = _found(company, issue_ids)
    plain = {name: value for name, value in changes.items() if name not in ("label", "archived")}
    names = _names(changes)
    if not names:
        raise Invalid("nothing_to_change", "Choose what should change.")
    outcome = Outcome()

    def one(issue: Issue) -> None:
        before = retrace.snapshot(issue, names)
        row = issue
        if plain:
            row = board.update(issue=issue, changes=plain, actor=actor, now=now)
        if "label" in changes:
            _add_label(issue, changes["label"], actor, now)
        if changes.get("archived"):
            row = board.archive(issue=row, actor=actor, now=now)
        outcome.before.append((str(issue.id), row.version, before))

    _each(found, one, outcome)
    return outcome


def take_back(
    *, company: Company, before: Iterable[Before], actor: Actor, now: datetime
) -> Outcome:
    """Undo a `change`, where nobody has touched the issue since."""
    known = {uuid.UUID(key): (version, was) for key, version, was in before}
    outcome = Outcome()

    def one(issue: Issue) -> None:
        version, was = known[issue.id]
        row = retrace.restore(issue=issue, before=was, version=version, actor=actor, now=now)
        outcome.before.append((str(row.id), row.version, {}))

    _each(_found(company, known), one, outcome)
    return outcome


def _found(company: Company, issue_ids: Iterable[uuid.UUID]) -> list[Issue]:
    wanted = set(issue_ids)
    if not wanted:
        raise Invalid("nothing_chosen", "Choose at least one issue.")
    if len(wanted) > MOST:
        raise Invalid("too_many", f"At most {MOST} issues at once.")
    return list(
        Issue.objects.for_company(company.id)
        .filter(id__in=wanted)
        .select_related("assignee_agent", "assignee_user")
        .order_by("number")
    )


def _each(found: list[Issue], verb: Callable[[Issue], None], outcome: Outcome) -> None:
    for issue in found:
        try:
            verb(issue)
        except Refusal as refusal:
            outcome.refused.append((issue.identifier, refusal.message))


def _names(changes: Mapping[str, Any]) -> tuple[str, ...]:
    """Which of `retrace.FIELDS` a change touches. A new assignee may move the status as well."""
    names: set[str] = set()
    if changes.keys() & {"assignee_agent", "assignee_user"}:
        names |= {"assignee", "status"}
    for name, kept in (("status", "status"), ("priority", "priority"), ("label", "labels")):
        if name in changes:
            names.add(kept)
    if changes.get("archived"):
        names.add("archived")
    return tuple(name for name in retrace.FIELDS if name in names)


def _add_label(issue: Issue, label: Label, actor: Actor, now: datetime) -> None:
    if label.company_id != issue.company_id:
        raise Conflict("foreign_label", "There is no such label.")
    held = [row.label for row in IssueLabel.objects.filter(issue=issue).select_related("label")]
    marks.set_labels(issue=issue, labels=[*held, label], actor=actor, now=now)
