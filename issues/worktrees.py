"""An issue's own work tree: taken by one run at a time, made, left, removed.

The rows are the referee (one live work tree an issue, one run in it, one path and one branch
each); Git works between the transactions, never inside one. A step that was cut short is seen by
its status and done again: what is `making` or `removing` holds nobody's work. Blocking.
Read next: `repository.py` for what is asked of Git, `harvest.py` for what comes of a run.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from agents import runs
from agents.adapters.base import AdapterError, Code
from agents.models import HeartbeatRun
from companies import live
from companies.activity import SYSTEM, Actor
from companies.errors import Conflict, NotFound
from companies.models import Project
from issues import consequences, repository, workspaces
from issues.git import GitError
from issues.models import Issue, Workspace, Worktree
from issues.repository import Laid, State

S = Worktree.Status
Run = HeartbeatRun.Status

# A run that was cancelled may still be ending its program; one whose worker died has none, and what
# that had started is ended within seconds (`paperclip/engine/strays.py`).
ENDING = timedelta(seconds=60)
SHOWN = 100
REMOVAL = timedelta(minutes=5)  # a removal that takes longer was cut short
GONE = "gone"  # the mark of a work tree that Git cannot be asked about


class Busy(AdapterError):
    """Somebody is still in the work tree; asked again, it may be free."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.WORKSPACE_BUSY, message, retry_after=60.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """A work tree that a run holds, and what has to be done before the run can work in it."""

    worktree_id: uuid.UUID
    repository: str
    path: str
    branch: str
    base_branch: str
    git_dir: str
    base_commit: str
    is_ready: bool
    is_set_up: bool
    setup_command: Sequence[str]


@transaction.atomic
def take(*, run_id: uuid.UUID, epoch: int, now: datetime | None = None) -> Plan | None:
    """Take the work tree of a run's issue; None when its project has no repository. Safe to
    repeat. Raises Stale, Busy, AdapterError (another repository, a branch that is taken)."""
    now = now or timezone.now()
    runs.hold(run_id=run_id, epoch=epoch)
    run = HeartbeatRun.objects.select_related("issue__project").get(pk=run_id)
    issue = run.issue
    if issue is None or issue.project is None or not issue.project.workspace:
        return None
    given = workspaces.of(issue.project)
    if given is None:
        return None
    held = _live().filter(issue=issue).select_for_update(no_key=True).first()
    if held is None:
        held = _new(issue, given, run_id, now)
    elif held.repository != issue.project.workspace:
        said = f"The issue has a work tree of {held.repository} already; remove that one first."
        raise AdapterError(Code.WORKSPACE_FAILED, said)
    else:
        _check_free(held, run_id, now)
        if held.status == S.REMOVING:  # cut short, before or after the folder went
            held.status = _before(held)
        held.holder_id, held.last_used_at = run_id, now
        held.save(update_fields=["status", "holder", "last_used_at"])
    return _plan(held, given)


def _new(issue: Issue, given: Workspace, run_id: uuid.UUID, now: datetime) -> Worktree:
    assert issue.project is not None
    made = Worktree(
        company_id=issue.company_id,
        project=issue.project,
        issue=issue,
        repository=issue.project.workspace,
        branch=workspaces.branch_for(given.branch_template, issue),
        base_branch=given.base_branch,
        holder_id=run_id,
        created_at=now,
        last_used_at=now,
        looked_at=now,
    )
    made.path = str(Path(settings.DATA_DIR, "worktrees", str(made.id)))
    try:
        with transaction.atomic():
            made.save(force_insert=True)
    except IntegrityError as error:
        said = f"Another issue's work tree is on the branch {made.branch} already."
        raise AdapterError(Code.WORKSPACE_FAILED, said) from error
    return made


def _check_free(held: Worktree, run_id: uuid.UUID, now: datetime) -> None:
    if held.status == S.REMOVING and held.last_used_at > now - REMOVAL:
        raise Busy("The work tree is being removed.")
    if held.holder_id not in (None, run_id) and _is_inside(held, now):
        raise Busy("Another run is still in the work tree.")


def _is_inside(held: Worktree, now: datetime) -> bool:
    """May a program of the run that holds it still be at work?"""
    run = held.holder
    if run is None or run.status in (Run.LOST, Run.UNKNOWN):
        return False
    return run.status == Run.RUNNING or (run.finished_at or now) > now - ENDING


def _plan(held: Worktree, given: Workspace) -> Plan:
    return Plan(
        worktree_id=held.pk,
        repository=held.repository,
        path=held.path,
        branch=held.branch,
        base_branch=held.base_branch,
        git_dir=held.git_dir,
        base_commit=held.base_commit,
        is_ready=held.status == S.READY,
        is_set_up=held.is_set_up,
        setup_command=tuple(given.setup_command),
    )


def lay(plan: Plan) -> Laid | None:
    """Make the folder; None when it is there already. No database. Raises AdapterError."""
    if plan.is_ready and os.path.lexists(plan.path):
        if os.path.isdir(plan.git_dir):
            return None
        said = "The repository has forgotten the work tree (git worktree prune?); it was left as"
        raise AdapterError(Code.WORKSPACE_FAILED, f"{said} it is: {plan.path}")
    if said := repository.problem(plan.repository):
        raise AdapterError(Code.WORKSPACE_FAILED, said)
    os.makedirs(os.path.dirname(plan.path), mode=0o700, exist_ok=True)
    try:
        return repository.lay(
            path=plan.repository, tree=plan.path, branch=plan.branch, base=plan.base_branch
        )
    except GitError as error:
        raise AdapterError(Code.WORKSPACE_FAILED, f"Git: {error}") from error


def note_laid(plan: Plan, laid: Laid, *, run_id: uuid.UUID) -> None:
    """The folder is there. Raises Stale when the run does not hold it any more."""
    _mine(
        plan, run_id, status=S.READY, git_dir=laid.git_dir, base_commit=laid.base_commit,
        is_set_up=False,
    )  # fmt: skip


def note_set_up(plan: Plan, *, run_id: uuid.UUID) -> None:
    """The set-up command has ended well; it is not run again. Raises Stale."""
    _mine(plan, run_id, is_set_up=True)


def _mine(plan: Plan, run_id: uuid.UUID, **values: object) -> None:
    if not Worktree.objects.filter(pk=plan.worktree_id, holder_id=run_id).update(**values):
        raise runs.Stale(f"run {run_id} does not hold the work tree {plan.worktree_id}")


def leave(*, run_id: uuid.UUID, now: datetime | None = None) -> None:
    """The run's programs have ended: the next one may come. Safe to repeat."""
    Worktree.objects.filter(holder_id=run_id).update(
        holder=None, last_used_at=now or timezone.now()
    )


# --- what people see and remove --------------------------------------------------------------


def find(issue: Issue) -> Worktree | None:
    """The issue's live work tree."""
    return _live().filter(issue=issue).select_related("holder", "project").first()


def of_project(project: Project) -> list[Worktree]:
    """The live work trees of a project, the newest first, at most SHOWN."""
    found = _live().filter(project=project).select_related("issue")
    return list(found.order_by("-created_at", "-id")[:SHOWN])


def state(worktree: Worktree) -> State:
    """How it stands, asked of Git now. Raises GitError."""
    return repository.state(
        path=worktree.repository,
        tree=worktree.path,
        git_dir=worktree.git_dir,
        base=worktree.base_branch,
        base_commit=worktree.base_commit,
    )


def state_of(plan: Plan) -> State:
    """The same for a run that holds it."""
    row = Worktree(
        repository=plan.repository, path=plan.path, base_branch=plan.base_branch,
        git_dir=plan.git_dir, base_commit=plan.base_commit,
    )  # fmt: skip
    return state(row)


def remove(*, worktree: Worktree, mark: str, actor: Actor, now: datetime | None = None) -> None:
    """Remove it as a person who has seen its state `mark` wants it. The branch stays, with what
    was committed. Raises Conflict when a run is in it or something has changed since."""
    now = now or timezone.now()
    _claim(worktree, now)
    try:
        seen = _mark(worktree)
        if mark != seen:
            raise Conflict("workspace_changed", "Something has changed in it. Look again.")
        repository.clear(path=worktree.repository, tree=worktree.path)
    except (Conflict, OSError):
        _unclaim(worktree)
        raise
    _note_removed(worktree, actor, now, {"forced": True})


def _mark(worktree: Worktree) -> str:
    """The mark of its state; of one that cannot be asked: that it is gone."""
    try:
        return state(worktree).mark
    except GitError:
        return GONE


def remove_if_safe(*, worktree: Worktree, actor: Actor, now: datetime | None = None) -> bool:
    """Remove it if nothing would be lost. Returns whether it went. Raises Conflict when a run is
    in it."""
    now = now or timezone.now()
    _claim(worktree, now)
    try:
        if not state(worktree).is_safe:
            _unclaim(worktree)
            return False
        repository.clear(path=worktree.repository, tree=worktree.path)
    except (GitError, OSError):
        _unclaim(worktree)
        return False
    _note_removed(worktree, actor, now, {"forced": False})
    return True


@transaction.atomic
def _claim(worktree: Worktree, now: datetime) -> None:
    row = Worktree.objects.select_for_update(no_key=True).filter(pk=worktree.pk).first()
    if row is None or row.status == S.REMOVED:
        raise NotFound()
    if row.status == S.REMOVING and row.last_used_at > now - REMOVAL:
        raise Conflict("workspace_busy", "It is being removed already.")
    if row.holder_id is not None and _is_inside(row, now):
        raise Conflict("workspace_busy", "A run is at work in it. Stop the run first.")
    row.status, row.holder, row.last_used_at = S.REMOVING, None, now
    row.save(update_fields=["status", "holder", "last_used_at"])


def _unclaim(worktree: Worktree) -> None:
    Worktree.objects.filter(pk=worktree.pk, status=S.REMOVING).update(status=_before(worktree))


def _before(worktree: Worktree) -> str:
    """What it was before its removal began: what was never laid has no Git folder."""
    return S.READY if worktree.git_dir else S.MAKING


@transaction.atomic
def _note_removed(
    worktree: Worktree, actor: Actor, now: datetime, details: dict[str, object]
) -> None:
    Worktree.objects.filter(pk=worktree.pk, status=S.REMOVING).update(
        status=S.REMOVED, last_used_at=now
    )
    told = {"branch": worktree.branch, **details}
    consequences.record(
        worktree.issue, actor=actor, action="issue.worktree_removed", now=now, details=told
    )
    live.publish(worktree.company_id, "issue", worktree.issue_id)


def _live() -> QuerySet[Worktree]:
    return Worktree.objects.filter(~Q(status=S.REMOVED))


# --- by the clock ----------------------------------------------------------------------------

LOOKS = 5  # work trees that one round looks at
LOOK_EVERY = timedelta(minutes=15)
RESTING = timedelta(minutes=10)  # nobody was in it for so long


def tidy(*, now: datetime | None = None) -> int:
    """Look at a few work trees, the longest unseen first, and remove those whose project's policy
    says so. Nothing that is not committed and merged ever goes. Returns how many went."""
    now = now or timezone.now()
    return sum(_tidy_one(one, policy, now) for one, policy in _due(now))


def _due(now: datetime) -> list[tuple[Worktree, str]]:
    """Those to look at, marked as looked at, each with its policy. Nobody else gets the same."""
    with transaction.atomic():
        policies = dict(
            Workspace.objects.exclude(clean_up=Workspace.CleanUp.KEEP).values_list(
                "project_id", "clean_up"
            )
        )
        found = list(
            Worktree.objects.select_for_update(skip_locked=True, no_key=True)
            .filter(
                status=S.READY,
                holder=None,
                project_id__in=policies,
                looked_at__lte=now - LOOK_EVERY,
                last_used_at__lte=now - RESTING,
            )
            .order_by("looked_at", "id")[:LOOKS]
        )
        Worktree.objects.filter(pk__in=[one.pk for one in found]).update(looked_at=now)
    issues = Issue.objects.in_bulk([one.issue_id for one in found])
    for one in found:
        one.issue = issues[one.issue_id]
    return [(one, policies[one.project_id]) for one in found]


def _tidy_one(worktree: Worktree, policy: str, now: datetime) -> bool:
    issue = worktree.issue
    if issue.status not in Issue.CLOSED and (
        policy == Workspace.CleanUp.CLOSED or not _has_work(worktree)
    ):
        return False
    live_runs = HeartbeatRun.objects.filter(issue=issue, status__in=HeartbeatRun.LIVE)
    try:
        return not live_runs.exists() and remove_if_safe(worktree=worktree, actor=SYSTEM, now=now)
    except (Conflict, NotFound):
        return False  # somebody was faster


def _has_work(worktree: Worktree) -> bool:
    """Did anything come of it? One that was only just begun is not merged, but empty."""
    try:
        return state(worktree).head != worktree.base_commit
    except GitError:
        return False
