"""Runs in work trees of their own, of a real repository, from the wake to the work products."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from agents import runs
from agents.models import Agent, HeartbeatRun, RunEvent
from companies import activity
from companies.models import Company, Project
from issues.models import Issue, WorkProduct, Workspace, Worktree
from tests import factories
from tests.adapters.test_isolation import real
from tests.engine.conftest import until
from tests.engine.test_sessions import carry
from tests.repositories import git, repository

pytestmark = pytest.mark.django_db(transaction=True)

# What the agent does: write a file named by its issue, commit it, leave another one lying about.
WORK = """
import os, pathlib, subprocess
pathlib.Path("made.txt").write_text(os.environ["PAPERCLIP_TASK_ID"] + "\\n")
subprocess.run(["git", "add", "made.txt"], check=True)
subprocess.run(["git", "commit", "-q", "-m", "Make it <b>"], check=True)
pathlib.Path("draft.txt").write_text(os.getcwd())
print(os.environ["PAPERCLIP_WORKSPACE_BRANCH"])
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "barn")


@pytest.fixture
def project(acme: Company, repo: Path) -> Project:
    made = factories.project(acme, workspace=str(repo))
    now = timezone.now()
    Workspace.objects.create(company=acme, project=made, created_at=now, updated_at=now)
    return made


def program(acme: Company, code: str, name: str = "Pat", **more: Any) -> Agent:
    return factories.agent(
        acme,
        name,
        adapter_type="process",
        on_finish="done",
        adapter_config={"command": sys.executable, "args": ["-c", code], **more},
    )


def test_a_run_works_in_a_work_tree_and_leaves_its_products(
    during: Any, acme: Company, project: Project, repo: Path
) -> None:
    pat = program(acme, WORK)
    issue = factories.issue(acme, "Paint the barn", assignee=pat, project=project)

    run = carry(during, pat, issue)

    assert (run.status, run.code) == ("succeeded", "")
    tree = Worktree.objects.get(issue=issue)
    assert (tree.status, tree.branch, tree.holder_id) == ("ready", "ACM-1-paint-the-barn", None)
    assert Path(tree.path, "draft.txt").read_text() == tree.path
    assert git(repo, "log", "-1", "--format=%an %s", tree.branch) == "Pat Make it <b>"
    assert git(repo, "status", "--porcelain") == ""
    products = {row.type: row for row in WorkProduct.objects.filter(issue=issue)}
    assert sorted(products) == ["branch", "commit", "diff"]
    assert products["branch"].summary == "1 commit, 1 file changed, +1 −0, 1 not committed"
    assert products["commit"].title == "Make it <b>"
    assert products["commit"].created_by_run_id == run.pk


@real
def test_an_isolated_program_commits_in_its_work_tree(
    during: Any, acme: Company, project: Project, repo: Path
) -> None:
    Workspace.objects.update(setup_command=["/bin/sh", "-c", "ls /proc | grep -c '^[0-9]'"])
    config = {"command": os.path.realpath(sys.executable), "args": ["-c", WORK]}
    pat = program(acme, "")
    Agent.objects.filter(pk=pat.pk).update(
        adapter_config={**config, "isolation": "bubblewrap", "isolationNetwork": False}
    )
    pat.refresh_from_db()
    issue = factories.issue(acme, "Paint the barn", assignee=pat, project=project)

    run = carry(during, pat, issue)

    assert (run.status, run.message) == ("succeeded", "")
    tree = Worktree.objects.get(issue=issue)
    assert Path(tree.path, "draft.txt").read_text() == tree.path
    assert git(repo, "log", "-1", "--format=%an %s", tree.branch) == "Pat Make it <b>"
    said = "".join(RunEvent.objects.filter(run_id=run.pk).values_list("text", flat=True))
    assert int(said.split("grep")[-1].splitlines()[1]) < 10  # the set-up command, too


def test_the_next_run_goes_on_in_the_same_one_and_doubles_no_product(
    during: Any, acme: Company, project: Project
) -> None:
    pat = program(acme, "import os; print(os.listdir())")
    issue = factories.issue(acme, assignee=pat, project=project)
    carry(during, pat, issue)
    first = Worktree.objects.get(issue=issue)
    Path(first.path, "left.txt").write_text("x")

    for _ in range(2):
        Issue.objects.filter(pk=issue.pk).update(status="todo")
        carry(during, pat, issue)

    assert Worktree.objects.get(issue=issue).pk == first.pk
    assert Path(first.path, "left.txt").exists()
    assert WorkProduct.objects.filter(issue=issue).count() == 2  # the branch and the changes


def test_two_runs_at_once_get_two_work_trees(
    during: Any, acme: Company, project: Project, tmp_path: Path
) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    wait = f"""
import os, pathlib, time
here = pathlib.Path({str(meeting)!r}, os.environ["PAPERCLIP_TASK_ID"])
here.write_text(os.getcwd())
for _ in range(400):
    if len(list(here.parent.iterdir())) == 2: break
    time.sleep(0.05)
else: raise SystemExit("alone")
"""
    one, two = program(acme, wait, "Pat"), program(acme, wait, "Quin")
    issues = [factories.issue(acme, assignee=agent, project=project) for agent in (one, two)]
    for issue in issues:
        assert issue.assignee_agent is not None
        runs.wake(
            agent=issue.assignee_agent, issue=issue, reason="manual", source="on_demand",
            actor=activity.SYSTEM,
        )  # fmt: skip

    async def watch(shift: Any) -> None:
        live = HeartbeatRun.objects.filter(status__in=HeartbeatRun.LIVE)
        await until(lambda: not live.exists(), 40)

    during(watch)

    assert {run.status for run in HeartbeatRun.objects.all()} == {"succeeded"}
    places = {path.read_text() for path in meeting.iterdir()}
    assert places == set(Worktree.objects.values_list("path", flat=True))
    assert len(places) == 2


def test_the_set_up_command_runs_once_and_is_heard_in_the_log(
    during: Any, acme: Company, project: Project
) -> None:
    code = "import os; print('planting', os.environ.get('PAPERCLIP_API_KEY')); open('seed', 'a').write('x')"  # noqa: E501
    Workspace.objects.update(setup_command=[sys.executable, "-c", code])
    pat = program(acme, "print(open('seed').read())")
    issue = factories.issue(acme, assignee=pat, project=project)

    first = carry(during, pat, issue)
    Issue.objects.filter(pk=issue.pk).update(status="todo")
    second = carry(during, pat, issue)

    assert (first.status, second.status) == ("succeeded", "succeeded")
    said = "".join(RunEvent.objects.filter(run_id=first.pk).values_list("text", flat=True))
    assert "planting None" in said
    assert Path(Worktree.objects.get().path, "seed").read_text() == "x"


def test_a_set_up_that_fails_says_so_and_is_run_again(
    during: Any, acme: Company, project: Project
) -> None:
    code = "import sys; print('no seeds', file=sys.stderr); sys.exit(3)"
    Workspace.objects.update(setup_command=[sys.executable, "-c", code])
    pat = program(acme, "print('never')")
    issue = factories.issue(acme, assignee=pat, project=project)

    run = carry(during, pat, issue)

    assert (run.status, run.code) == ("failed", "setup_failed")
    assert "no seeds" in run.message
    tree = Worktree.objects.get()
    assert (tree.status, tree.is_set_up, tree.holder_id) == ("ready", False, None)


def test_a_repository_that_is_gone_fails_the_run_and_holds_nothing(
    during: Any, acme: Company, project: Project
) -> None:
    Project.objects.filter(pk=project.pk).update(workspace="/nowhere/at/all")
    pat = program(acme, "print('never')")
    issue = factories.issue(acme, assignee=pat, project=project)

    run = carry(during, pat, issue)

    assert (run.status, run.code) == ("failed", "workspace_failed")
    assert "/nowhere/at/all is not a folder on this machine." in run.message
    assert Worktree.objects.get().holder_id is None


def test_what_a_killed_run_left_is_taken_over(
    during: Any, acme: Company, project: Project, repo: Path, data_dir: Path
) -> None:
    pat = program(acme, "import os; print(sorted(os.listdir()))")
    issue = factories.issue(acme, "Mend it", assignee=pat, project=project)
    dead = factories.run(pat, issue, status="lost")
    half = data_dir / "worktrees" / "half"
    git(repo, "branch", "ACM-1-mend-it")  # made, and killed before the folder was whole
    half.mkdir(parents=True)
    (half / "torn").write_text("x")
    now = timezone.now()
    Worktree.objects.create(
        company=acme, project=project, issue=issue, repository=str(repo), path=str(half),
        branch="ACM-1-mend-it", holder=dead, created_at=now, last_used_at=now, looked_at=now,
    )  # fmt: skip

    run = carry(during, pat, issue)

    assert run.status == "succeeded"
    assert sorted(path.name for path in half.iterdir()) == [".git", "README"]


def test_an_agent_without_hands_needs_no_work_tree(
    during: Any, acme: Company, project: Project
) -> None:
    dee = factories.agent(acme, "Dee", adapter_type="demo", adapter_config={"pace": 0})
    issue = factories.issue(acme, assignee=dee, project=project)
    carry(during, dee, issue)
    assert not Worktree.objects.exists()


def test_hooks_of_the_repository_are_not_run(
    during: Any, acme: Company, project: Project, repo: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "hooked"
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        hook = repo / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {trace}\n")
        hook.chmod(0o755)
    subprocess.run(["git", "-C", repo, "config", "core.fsmonitor", f"touch {trace}"], check=True)
    pat = program(acme, "print('ok')")
    issue = factories.issue(acme, assignee=pat, project=project)

    assert carry(during, pat, issue).status == "succeeded"
    assert not trace.exists()
