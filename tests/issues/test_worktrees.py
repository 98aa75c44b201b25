"""Work trees of a real repository: who takes them, what removes them, what never does."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.adapters.base import AdapterError, Code
from agents.models import Agent, HeartbeatRun
from companies.activity import Actor
from companies.errors import Conflict, Invalid
from companies.models import Activity, Company, Project, User
from issues import deletion, repository, workspaces, worktrees
from issues.models import Issue, Workspace, Worktree
from tests import factories
from tests.repositories import commit, git
from tests.repositories import repository as made

pytestmark = pytest.mark.django_db

LATER = timedelta(hours=1)
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def data_dir(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path / "data"
    settings.DATA_DIR.mkdir()
    return tmp_path / "data"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return made(tmp_path / "barn")


@pytest.fixture
def by(olga: User) -> Actor:
    return Actor("user", olga.id, "Olga")


@pytest.fixture
def project(acme: Company, repo: Path, by: Actor) -> Project:
    project = factories.project(acme)
    workspaces.save(
        project=project, folder=str(repo), is_repository=True, actor=by,
        branch_template="{identifier}-{slug}", clean_up="merged",
    )  # fmt: skip
    project.refresh_from_db()
    return project


@pytest.fixture
def issue(acme: Company, project: Project, ada: Agent) -> Issue:
    return factories.issue(acme, "Mend the door", assignee=ada, project=project)


def work(agent: Agent, issue: Issue) -> tuple[HeartbeatRun, worktrees.Plan]:
    """A run that is at work in the issue's work tree."""
    run = factories.running(agent, issue)
    plan = worktrees.take(run_id=run.pk, epoch=run.epoch)
    assert plan is not None
    laid = worktrees.lay(plan)
    if laid is not None:
        worktrees.note_laid(plan, laid, run_id=run.pk)
    return run, plan


def rest(run: HeartbeatRun) -> Worktree:
    """The run is over, and nobody is in its work tree any more."""
    tree = Worktree.objects.select_related("issue").get(holder=run)
    HeartbeatRun.objects.filter(pk=run.pk).update(status="succeeded", finished_at=timezone.now())
    worktrees.leave(run_id=run.pk)
    tree.refresh_from_db()
    return tree


def test_a_second_run_waits_until_the_first_one_has_left(ada: Agent, issue: Issue) -> None:
    first, _ = work(ada, issue)
    HeartbeatRun.objects.filter(pk=first.pk).update(
        status="cancelled", finished_at=timezone.now()
    )  # its program may still be ending
    second = factories.running(ada, issue)

    with pytest.raises(worktrees.Busy) as refused:
        worktrees.take(run_id=second.pk, epoch=second.epoch)
    worktrees.leave(run_id=first.pk)
    plan = worktrees.take(run_id=second.pk, epoch=second.epoch)

    assert refused.value.code == Code.WORKSPACE_BUSY
    assert plan is not None
    assert plan.is_ready


def test_a_run_whose_worker_died_is_not_waited_for(ada: Agent, issue: Issue) -> None:
    first, _ = work(ada, issue)
    HeartbeatRun.objects.filter(pk=first.pk).update(status="lost", finished_at=timezone.now())
    second = factories.running(ada, issue)

    plan = worktrees.take(run_id=second.pk, epoch=second.epoch)

    assert plan is not None
    assert Worktree.objects.get().holder_id == second.pk


def test_the_database_is_the_referee(acme: Company, project: Project, issue: Issue) -> None:
    other = factories.issue(acme, "Other", project=project)
    now = timezone.now()
    given: dict[str, Any] = {
        "company": acme, "project": project, "issue": issue, "repository": "/r", "path": "/one",
        "branch": "b", "created_at": now, "last_used_at": now, "looked_at": now,
    }  # fmt: skip
    Worktree.objects.create(**given)
    for change in (
        {"path": "/two", "branch": "c"},  # the issue has one
        {"issue": other, "branch": "c"},  # the path is taken
        {"issue": other, "path": "/two"},  # the branch is taken
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            Worktree.objects.create(**{**given, **change})


def test_a_branch_that_is_checked_out_elsewhere_is_refused(
    ada: Agent, issue: Issue, repo: Path
) -> None:
    git(repo, "checkout", "-q", "-b", "ACM-1-mend-the-door")
    run = factories.running(ada, issue)
    plan = worktrees.take(run_id=run.pk, epoch=run.epoch)
    assert plan is not None
    with pytest.raises(AdapterError) as failed:
        worktrees.lay(plan)
    assert failed.value.code == Code.WORKSPACE_FAILED
    assert "ACM-1-mend-the-door" in failed.value.message


def test_a_folder_that_git_has_forgotten_is_left_alone(
    ada: Agent, issue: Issue, repo: Path
) -> None:
    run, _ = work(ada, issue)
    tree = rest(run)
    Path(tree.path, "precious").write_text("x")
    Path(tree.git_dir).rename(repo / "elsewhere")
    again = factories.running(ada, issue)
    plan = worktrees.take(run_id=again.pk, epoch=again.epoch)
    assert plan is not None
    with pytest.raises(AdapterError):
        worktrees.lay(plan)
    assert Path(tree.path, "precious").exists()


def test_git_ends_with_the_process_that_asked_and_the_next_one_goes_on(
    ada: Agent, issue: Issue, repo: Path, tmp_path: Path
) -> None:
    (repo / ".gitattributes").write_text("README filter=slow\n")
    commit(repo, "Filter")
    begun = tmp_path / "begun"
    git(repo, "config", "filter.slow.smudge", f"touch {begun}; sleep 20; cat")
    run = factories.running(ada, issue)
    plan = worktrees.take(run_id=run.pk, epoch=run.epoch)
    assert plan is not None
    os.makedirs(os.path.dirname(plan.path))
    code = f"from issues import repository as r; r.lay(path={str(repo)!r}, tree={plan.path!r}, branch={plan.branch!r}, base='')"  # noqa: E501
    worker = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    wait_for(begun.exists)
    worker.kill()
    worker.wait()
    wait_for(lambda: not any(plan.path in line for line in commands()))
    assert not Path(plan.path, "README").exists()
    git(repo, "config", "--unset", "filter.slow.smudge")

    laid = worktrees.lay(plan)

    assert laid is not None
    assert Path(plan.path, "README").read_text() == "A barn.\n"


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(400):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come to be in time")


def commands() -> Iterator[str]:
    """The command lines of all `git worktree add`."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if "worktree add" in line:
                yield line


def test_an_issue_with_a_work_tree_is_not_deleted(ada: Agent, issue: Issue, by: Actor) -> None:
    run, _ = work(ada, issue)
    tree = rest(run)
    with pytest.raises(Conflict) as refused:
        deletion.delete_issue(issue=issue, actor=by)
    assert refused.value.code == "worktree_exists"
    worktrees.remove(worktree=tree, mark=worktrees.state(tree).mark, actor=by)
    deletion.delete_issue(issue=issue, actor=by)
    assert not Issue.objects.filter(pk=issue.pk).exists()


# --- policy ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["in_progress", "done"])
def test_policy_never_removes_what_is_not_committed(
    ada: Agent, issue: Issue, repo: Path, status: str
) -> None:
    run, _ = work(ada, issue)
    tree = rest(run)
    commit_in(tree, "made")
    git(repo, "merge", "-q", tree.branch)
    Path(tree.path, "draft").write_text("x")
    Issue.objects.filter(pk=issue.pk).update(status=status)

    assert worktrees.tidy(now=timezone.now() + LATER) == 0
    assert Path(tree.path, "draft").exists()


@pytest.mark.parametrize("status", ["in_progress", "done"])
def test_policy_never_removes_what_is_not_merged(ada: Agent, issue: Issue, status: str) -> None:
    run, _ = work(ada, issue)
    tree = rest(run)
    commit_in(tree, "made")
    Issue.objects.filter(pk=issue.pk).update(status=status)

    assert worktrees.tidy(now=timezone.now() + LATER) == 0
    assert Path(tree.path, "made").exists()


@pytest.mark.parametrize(
    ("policy", "status", "goes"),
    [
        ("merged", "in_progress", 1),
        ("closed", "in_progress", 0),
        ("closed", "done", 1),
        ("keep", "done", 0),
    ],
)
def test_what_is_merged_goes_as_the_policy_says(
    ada: Agent, issue: Issue, repo: Path, policy: str, status: str, goes: int
) -> None:
    Workspace.objects.update(clean_up=policy)
    run, _ = work(ada, issue)
    tree = rest(run)
    commit_in(tree, "made")
    git(repo, "merge", "-q", tree.branch)
    Issue.objects.filter(pk=issue.pk).update(status=status)

    assert worktrees.tidy(now=timezone.now() + LATER) == goes
    assert os.path.exists(tree.path) == (not goes)
    tree.refresh_from_db()
    assert tree.status == ("removed" if goes else "ready")
    assert git(repo, "branch", "--list", tree.branch)  # the branch stays


def test_one_that_was_only_begun_is_not_merged_but_empty(ada: Agent, issue: Issue) -> None:
    run, _ = work(ada, issue)
    rest(run)
    assert worktrees.tidy(now=timezone.now() + LATER) == 0


def test_policy_leaves_alone_what_a_run_is_in_or_waits_for(
    ada: Agent, issue: Issue, repo: Path
) -> None:
    run, _ = work(ada, issue)
    tree = Worktree.objects.get()
    commit_in(tree, "made")
    git(repo, "merge", "-q", tree.branch)
    assert worktrees.tidy(now=timezone.now() + LATER) == 0
    rest(run)
    factories.run(ada, issue, status="queued")
    assert worktrees.tidy(now=timezone.now() + LATER) == 0


def test_a_round_looks_at_few(ada: Agent, acme: Company, project: Project) -> None:
    now = timezone.now()
    for number in range(worktrees.LOOKS + 3):
        one = factories.issue(acme, f"Issue {number}", project=project)
        Worktree.objects.create(
            company=acme, project=project, issue=one, repository="/r", path=f"/gone/{number}",
            branch=f"b{number}", status="ready", created_at=now, last_used_at=now, looked_at=now,
        )  # fmt: skip
    worktrees.tidy(now=now + LATER)
    assert Worktree.objects.filter(looked_at=now + LATER).count() == worktrees.LOOKS


# --- by a person -----------------------------------------------------------------------------


def test_a_person_removes_what_they_have_seen_and_nothing_else(
    ada: Agent, issue: Issue, by: Actor
) -> None:
    run, _ = work(ada, issue)
    tree = rest(run)
    seen = worktrees.state(tree)
    Path(tree.path, "news").write_text("x")

    with pytest.raises(Conflict) as refused:
        worktrees.remove(worktree=tree, mark=seen.mark, actor=by)
    assert refused.value.code == "workspace_changed"
    tree.refresh_from_db()
    worktrees.remove(worktree=tree, mark=worktrees.state(tree).mark, actor=by)

    assert not os.path.exists(tree.path)
    assert Activity.objects.filter(action="issue.worktree_removed", entity_id=issue.pk).exists()


def test_nobody_removes_it_under_a_run(ada: Agent, issue: Issue, by: Actor) -> None:
    work(ada, issue)
    tree = Worktree.objects.select_related("issue").get()
    with pytest.raises(Conflict) as refused:
        worktrees.remove(worktree=tree, mark=worktrees.state(tree).mark, actor=by)
    assert refused.value.code == "workspace_busy"


def test_a_removal_that_was_cut_short_is_taken_up(ada: Agent, issue: Issue, repo: Path) -> None:
    run, _ = work(ada, issue)
    tree = rest(run)
    commit_in(tree, "made")
    long_ago = timezone.now() - LATER
    Worktree.objects.update(status="removing", last_used_at=long_ago)
    os.rename(tree.path, f"{tree.path}.removed")  # and then the machine went down

    again, plan = work(ada, issue)

    assert Path(plan.path, "made").exists()  # it was committed
    assert Worktree.objects.get().holder_id == again.pk


# --- names -----------------------------------------------------------------------------------

HOSTILE = [
    "", "-d", "--force", "a b", "a..b", "a~1", "a^", "a:b", "a?b", "a*", "a[b", "a\\b", "a.lock",
    ".a", "a/.b", "a//b", "/a", "a/", "a.", "@", "HEAD", "a@{1}", "refs/heads/a", "a\nb", "a\0b",
    "a\x7f", "x" * 121, "a/b.lock/c",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_branch_names_are_no_names(name: str, project: Project, by: Actor) -> None:
    assert not repository.is_branch_name(name)
    wishes: list[dict[str, Any]] = [
        {"branch_template": f"{{identifier}}{name}/{name}"},
        {"base_branch": name},
    ]
    for fields in wishes:
        if name in ("", "@", "HEAD", "-d", "--force", "refs/heads/a") or "x" * 9 in name:
            continue  # harmless in the middle of a name
        with pytest.raises(Invalid):
            workspaces.save(
                project=project, folder=project.workspace, is_repository=True, actor=by,
                **{"branch_template": "{identifier}", **fields},
            )  # fmt: skip


@pytest.mark.parametrize("name", ["main", "feature/one", "ACM-1-mend", "a.b", "ä"])
def test_git_agrees_about_good_names(name: str, repo: Path) -> None:
    assert repository.is_branch_name(name)
    assert git(repo, "check-ref-format", "--branch", name) == name


@pytest.mark.parametrize("title", ["..", "-rf /", "$(touch x)", "日本語", "a" * 300, "HEAD^{}"])
def test_whatever_the_title_its_branch_is_a_good_name(acme: Company, title: str) -> None:
    issue = factories.issue(acme, title)
    assert repository.is_branch_name(workspaces.branch_for("{identifier}-{slug}", issue))


# --- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"folder": "relative"}, "workspace"),
        ({"folder": "/nowhere/at/all"}, "folder"),
        ({"folder": ""}, "folder"),
        ({"branch_template": "{slug}"}, "branch_template"),
        ({"branch_template": "{identifier}-{evil}"}, "branch_template"),
        ({"base_branch": "nobody"}, "base_branch"),
        ({"setup_command": "rm -rf"}, "setup_command"),
        ({"setup_command": ["a\0"]}, "setup_command"),
        ({"setup_command": [""]}, "setup_command"),
        ({"clean_up": "always"}, "clean_up"),
    ],
)
def test_what_cannot_work_is_refused_at_its_field(
    project: Project, by: Actor, change: dict[str, Any], field: str
) -> None:
    given = {"folder": project.workspace, "branch_template": "{identifier}", **change}
    with pytest.raises(Invalid) as refused:
        workspaces.save(project=project, is_repository=True, actor=by, **given)
    assert refused.value.field == field


def test_our_own_data_folder_is_no_workspace(
    project: Project, by: Actor, data_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(data_dir)
    for folder in (data_dir, data_dir / "runs", tmp_path, tmp_path / "link"):
        with pytest.raises(Invalid):
            workspaces.save(project=project, folder=str(folder), is_repository=False, actor=by)


def commit_in(tree: Worktree, name: str) -> None:
    Path(tree.path, name).write_text("x")
    commit(tree.path, f"Make {name}")
