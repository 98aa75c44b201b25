"""Goals (what for) and projects (where): what issues hang on."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, TypeVar

from django.conf import settings
from django.db import connection, models, transaction
from django.utils import timezone

from companies import activity
from companies import fields as cleaning
from companies.activity import Actor
from companies.errors import Invalid, NotFound
from companies.models import Company, Goal, Project

T = TypeVar("T", Goal, Project)

MAX_DEPTH = 20
TITLE_CHARS = 200
NAME_CHARS = 120
TEXT_CHARS = 20_000
PATH_CHARS = 1_000

_ABOVE = """
WITH RECURSIVE walk (id, parent_id, depth) AS (
    SELECT id, parent_id, 1 FROM companies_goal WHERE id = %(start)s
    UNION ALL
    SELECT g.id, g.parent_id, walk.depth + 1
    FROM walk JOIN companies_goal g ON g.id = walk.parent_id WHERE walk.depth <= %(depth)s
)
SELECT id FROM walk
"""


@transaction.atomic
def create_goal(
    *, company: Company, actor: Actor, now: datetime | None = None, title: str, **fields: Any
) -> Goal:
    """A goal. `fields`: description, level, status, parent, owner_agent.

    Raises Invalid, NotFound."""
    goal = Goal(company=company)
    _set(goal, {"title": title, **fields}, _GOAL, company.id)
    goal.save(force_insert=True)
    _record("goal", goal, actor, "goal.created", now, {"after": {"title": goal.title}})
    return goal


@transaction.atomic
def update_goal(
    *, goal: Goal, changes: Mapping[str, Any], actor: Actor, now: datetime | None = None
) -> Goal:
    """Change a goal; one below it cannot become its parent. Raises Invalid, NotFound."""
    _lock_tree(goal.company_id)
    goal = _locked(Goal, goal)
    parent = changes.get("parent")
    if parent is not None:
        _refuse_circle(goal, parent)
    details = _set(goal, changes, _GOAL, goal.company_id)
    if details["after"]:
        goal.save()
        _record("goal", goal, actor, "goal.updated", now, details)
    return goal


@transaction.atomic
def delete_goal(*, goal: Goal, actor: Actor, now: datetime | None = None) -> None:
    """Delete a goal; what hangs on it stays, without it."""
    _record("goal", goal, actor, "goal.deleted", now, {"before": {"title": goal.title}})
    goal.delete()


@transaction.atomic
def create_project(
    *, company: Company, actor: Actor, now: datetime | None = None, name: str, **fields: Any
) -> Project:
    """A project. `fields`: description, status, goal, lead_agent, workspace (an absolute folder),
    target_date. Raises Invalid, NotFound."""
    project = Project(company=company)
    _set(project, {"name": name, **fields}, _PROJECT, company.id)
    project.save(force_insert=True)
    _record("project", project, actor, "project.created", now, {"after": {"name": project.name}})
    return project


@transaction.atomic
def update_project(
    *, project: Project, changes: Mapping[str, Any], actor: Actor, now: datetime | None = None
) -> Project:
    """Change a project. Raises Invalid, NotFound."""
    project = _locked(Project, project)
    details = _set(project, changes, _PROJECT, project.company_id)
    if details["after"]:
        project.save()
        _record("project", project, actor, "project.updated", now, details)
    return project


@transaction.atomic
def archive_project(
    *, project: Project, actor: Actor, archived: bool = True, now: datetime | None = None
) -> Project:
    """Take a project off the lists, or put it back. Its issues stay."""
    now = now or timezone.now()
    project = _locked(Project, project)
    if archived == (project.archived_at is not None):
        return project
    project.archived_at = now if archived else None
    project.save(update_fields=["archived_at", "updated_at"])
    action = "project.archived" if archived else "project.unarchived"
    _record("project", project, actor, action, now, {})
    return project


# --- fields ----------------------------------------------------------------------------------

Clean = Callable[[Any, str], Any]


def _text(limit: int, *, required: bool = False) -> Clean:
    def clean(value: Any, field: str) -> str:
        return cleaning.text(value, field, limit=limit, required=required)

    return clean


def _choice(choices: type[models.TextChoices]) -> Clean:
    def clean(value: Any, field: str) -> str:
        if value not in choices.values:
            raise Invalid(
                "invalid_choice", f"{field} is one of " + ", ".join(choices.values), field=field
            )
        return str(value)

    return clean


def _folder(value: Any, field: str) -> str:
    path: str = _text(PATH_CHARS)(value, field)
    if path and (not path.startswith("/") or ".." in path.split("/")):
        raise Invalid("invalid_path", "An absolute folder without “..”.", field=field)
    if path and _is_ours(path):
        raise Invalid("invalid_path", "Not Paperclip's own data folder.", field=field)
    return path


def _is_ours(path: str) -> bool:
    """Does it lie in the folder with our own data, or hold it? Links are followed."""
    real, ours = os.path.realpath(path), os.path.realpath(settings.DATA_DIR)
    return os.path.commonpath([real, ours]) in (real, ours)


def _day(value: Any, field: str) -> date | None:
    if value in (None, ""):
        return None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise Invalid("invalid_date", "A day such as 2026-12-31.", field=field) from None


_GOAL: dict[str, Clean | None] = {
    "title": _text(TITLE_CHARS, required=True),
    "description": _text(TEXT_CHARS),
    "level": _choice(Goal.Level),
    "status": _choice(Goal.Status),
    "parent": None,  # a row of the same company
    "owner_agent": None,
}
_PROJECT: dict[str, Clean | None] = {
    "name": _text(NAME_CHARS, required=True),
    "description": _text(TEXT_CHARS),
    "status": _choice(Project.Status),
    "goal": None,
    "lead_agent": None,
    "workspace": _folder,
    "target_date": _day,
}


def _set(
    thing: Goal | Project,
    changes: Mapping[str, Any],
    known: Mapping[str, Clean | None],
    company_id: uuid.UUID,
) -> dict[str, dict[str, Any]]:
    """Set clean values on the row; return what changed, before and after, for the activity."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for field, value in changes.items():
        if field not in known:
            raise Invalid("unknown_field", f"{field} cannot be set here.", field=field)
        clean = known[field]
        if clean is not None:
            value = clean(value, field)
        elif value is not None and getattr(value, "company_id", None) != company_id:
            raise NotFound(f"{field}: there is no such entry.")
        old = getattr(thing, field)
        if old != value:
            before[field], after[field] = _shown(old), _shown(value)
            setattr(thing, field, value)
    return {"before": before, "after": after}


def _shown(value: Any) -> Any:
    return None if value is None else str(value)[:200]


def _lock_tree(company_id: uuid.UUID) -> None:
    """One writer of goals' parents at a time, so that two cannot close a circle between them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtext('companies.goals'), hashtext(%s))",
            [str(company_id)],
        )


def _refuse_circle(goal: Goal, parent: Goal) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_ABOVE, {"start": parent.id, "depth": MAX_DEPTH})
        above = [row[0] for row in cursor.fetchall()]
    if goal.id in above:
        raise Invalid(
            "parent_cycle",
            "A goal below this one cannot be its parent.",
            field="parent",
            status=422,
        )
    if len(above) > MAX_DEPTH:
        raise Invalid(
            "tree_too_deep", f"Goals nest at most {MAX_DEPTH} deep.", field="parent", status=422
        )


def _locked(model: type[T], row: T) -> T:
    fresh = model.objects.select_for_update(no_key=True).filter(pk=row.pk).first()
    if fresh is None:
        raise NotFound()
    return fresh


def _record(
    kind: str,
    thing: Goal | Project,
    actor: Actor,
    action: str,
    now: datetime | None,
    details: Mapping[str, Any],
) -> None:
    activity.record(
        company_id=thing.company_id,
        actor=actor,
        action=action,
        entity_type=kind,
        entity_id=thing.id,
        entity_name=str(thing),
        details=details,
        now=now or timezone.now(),
    )
