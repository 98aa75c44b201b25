"""A project's workspace: the folder that agents work in, and whether each issue gets a work tree
of its own there. Read next: `worktrees.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.text import slugify

from companies import activity, goals
from companies.activity import Actor
from companies.errors import Invalid
from companies.models import Project
from issues import repository
from issues.git import GitError
from issues.models import Issue, Workspace

MAX_ARGUMENTS = 50
ARGUMENT_CHARS = 1_000
SLUG_CHARS = 40
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_KNOWN = frozenset({"identifier", "slug"})


def of(project: Project) -> Workspace | None:
    """How the project's issues get work trees; None when they get none."""
    return Workspace.objects.filter(project=project).first()


@transaction.atomic
def save(
    *,
    project: Project,
    folder: str,
    is_repository: bool,
    actor: Actor,
    now: datetime | None = None,
    **fields: Any,
) -> Workspace | None:
    """Set the folder of a project and how it is used. `fields`: base_branch, branch_template,
    setup_command (a list of arguments), clean_up; they count for a repository only.

    Raises Invalid: a folder that is not there, or no repository where one is wanted.
    """
    now = now or timezone.now()
    project = goals.update_project(
        project=project, changes={"workspace": folder}, actor=actor, now=now
    )
    if is_repository and not project.workspace:
        raise Invalid("no_folder", "Give the folder of the repository.", field="folder")
    known = Workspace.objects.select_for_update(no_key=True).filter(project=project).first()
    if not is_repository:
        _check_folder(project.workspace)
        if known is not None:
            known.delete()
            _tell(project, {"repository": False}, actor, now)
        return None
    if said := repository.problem(project.workspace):
        raise Invalid("not_a_repository", said, field="folder")
    wanted = _cleaned(project.workspace, fields)
    saved, _ = Workspace.objects.update_or_create(
        project=project,
        defaults={**wanted, "updated_at": now},
        create_defaults={
            **wanted,
            "company_id": project.company_id,
            "created_at": now,
            "updated_at": now,
        },
    )
    _tell(project, {"repository": True, **wanted}, actor, now)
    return saved


def branch_for(template: str, issue: Issue) -> str:
    """The name of an issue's branch, by its project's template; always a good name."""
    slug = slugify(issue.title)[:SLUG_CHARS].strip("-") or "work"
    return _filled(template, identifier=issue.identifier, slug=slug)


def _filled(template: str, **values: str) -> str:
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], ""), template)


def _cleaned(path: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "base_branch": _base(path, str(fields.get("base_branch") or "").strip()),
        "branch_template": _template(str(fields.get("branch_template") or "").strip()),
        "setup_command": _command(fields.get("setup_command") or []),
        "clean_up": _clean_up(fields.get("clean_up") or Workspace.CleanUp.KEEP),
    }


def _check_folder(path: str) -> None:
    if path and not os.path.isdir(path):
        raise Invalid("no_folder", f"{path} is not a folder on this machine.", field="folder")


def _base(path: str, name: str) -> str:
    if name and not repository.is_branch_name(name):
        raise Invalid("invalid_branch", "This is no name of a branch.", field="base_branch")
    try:
        repository.commit_of(path, name)
    except GitError as error:
        raise Invalid("no_branch", str(error), field="base_branch") from error
    return name


def _template(template: str) -> str:
    """Two issues may never mean the same branch, so that the identifier has to be in it."""
    names = _PLACEHOLDER.findall(template)
    if "identifier" not in names or not set(names) <= _KNOWN:
        said = "A template has {identifier} in it, and may have {slug}."
        raise Invalid("invalid_template", said, field="branch_template")
    longest = _filled(template, identifier="ABCDEFGH-1234567", slug="a" * SLUG_CHARS)
    if not repository.is_branch_name(longest):
        said = "What comes of it is no name of a branch, or too long."
        raise Invalid("invalid_template", said, field="branch_template")
    return template


def _command(arguments: Sequence[Any]) -> list[str]:
    said = ""
    if not isinstance(arguments, list | tuple) or len(arguments) > MAX_ARGUMENTS:
        said = f"A list of at most {MAX_ARGUMENTS} arguments."
    elif not all(isinstance(one, str) and len(one) <= ARGUMENT_CHARS for one in arguments):
        said = f"Each argument is a text of at most {ARGUMENT_CHARS} characters."
    elif any("\0" in one for one in arguments) or (arguments and not arguments[0].strip()):
        said = "The first argument is the program; none has a NUL character."
    if said:
        raise Invalid("invalid_command", said, field="setup_command")
    return list(arguments)


def _clean_up(value: Any) -> str:
    if value not in Workspace.CleanUp.values:
        raise Invalid("invalid_choice", "Choose one of the list.", field="clean_up")
    return str(value)


def _tell(project: Project, after: dict[str, Any], actor: Actor, now: datetime) -> None:
    activity.record(
        company_id=project.company_id,
        actor=actor,
        action="project.workspace_updated",
        entity_type="project",
        entity_id=project.id,
        entity_name=project.name,
        details={"after": after},
        now=now,
    )
