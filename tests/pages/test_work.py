"""The pages of workspaces and work trees, as their readers see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agents.models import Agent, HeartbeatRun
from companies.models import Company, Project, User
from issues import repository as repositories
from issues.models import Issue, Workspace, Worktree
from tests import factories
from tests.pages.conftest import Sign
from tests.repositories import commit, repository

pytestmark = pytest.mark.django_db

EVIL = "<img src=x onerror=alert(1)>.txt"


@pytest.fixture
def repo(tmp_path: Path, settings: Any) -> Path:
    settings.DATA_DIR = tmp_path / "data"
    return repository(tmp_path / "barn")


@pytest.fixture
def project(acme: Company, repo: Path) -> Project:
    return factories.project(acme, workspace=str(repo))


@pytest.fixture
def tree(acme: Company, ada: Agent, project: Project, repo: Path, tmp_path: Path) -> Worktree:
    """The work tree of ACM-1, with a commit that is not merged and a file that is not committed."""
    now = timezone.now()
    issue = factories.issue(acme, "Mend it", assignee=ada, project=project)
    Workspace.objects.create(company=acme, project=project, created_at=now, updated_at=now)
    place = tmp_path / "data" / "worktrees" / "one"
    place.parent.mkdir(parents=True)
    laid = repositories.lay(path=str(repo), tree=str(place), branch="ACM-1-mend-it", base="")
    (place / "made.txt").write_text("<script>alert(2)</script>\n")
    commit(place, "Make <b>it</b>")
    (place / EVIL).write_text("draft")
    (place / "bin").write_bytes(b"\0\1")
    (place / "key").symlink_to("/etc/passwd")
    return Worktree.objects.create(
        company=acme, project=project, issue=issue, repository=str(repo), path=str(place),
        branch="ACM-1-mend-it", git_dir=laid.git_dir, base_commit=laid.base_commit,
        status="ready", created_at=now, last_used_at=now, looked_at=now,
    )  # fmt: skip


def text(answer: Any) -> str:
    return str(answer.content.decode())


def test_an_owner_sets_the_workspace_up(olgas: Client, project: Project, repo: Path) -> None:
    address = f"/c/ACM/projects/{project.id}/workspace"
    assert olgas.get(address).status_code == 200
    sent = {
        "folder": str(repo), "is_repository": "on", "branch_template": "work/{identifier}",
        "setup_command": "npm\r\nci\r\n--no audit\r\n", "clean_up": "closed",
    }  # fmt: skip

    assert olgas.post(address, sent).status_code == 302

    saved = Workspace.objects.get(project=project)
    assert saved.setup_command == ["npm", "ci", "--no audit"]
    assert (saved.branch_template, saved.clean_up) == ("work/{identifier}", "closed")


def test_what_is_wrong_is_said_at_its_field(olgas: Client, project: Project, repo: Path) -> None:
    sent = {"folder": "/nowhere", "is_repository": "on", "clean_up": "keep"}
    answer = olgas.post(f"/c/ACM/projects/{project.id}/workspace", sent)
    assert answer.status_code == 422
    assert "/nowhere is not a folder on this machine." in text(answer)
    project.refresh_from_db()
    assert project.workspace == str(repo)


def test_only_an_owner_may(otto: User, veras: Client, project: Project, sign_in: Sign) -> None:
    address = f"/c/ACM/projects/{project.id}/workspace"
    assert sign_in(otto).post(address, {"folder": "/tmp"}).status_code == 403
    assert veras.get(address).status_code == 200
    assert veras.post(address, {"folder": "/tmp"}).status_code == 403


def test_strangers_find_nothing(
    oscars: Client, tree: Worktree, project: Project, globex: Company
) -> None:
    factories.issue(globex, "Spy")
    for address in ("work", "work/files", "work/files?path=made.txt", "work/remove"):
        assert oscars.get(f"/c/ACM/issues/ACM-1/{address}").status_code == 404
        assert oscars.get(f"/c/GLO/issues/ACM-1/{address}").status_code == 404
    assert oscars.post("/c/ACM/issues/ACM-1/work/remove", {"mark": "x"}).status_code == 404
    assert oscars.get(f"/c/GLO/projects/{project.id}/workspace").status_code == 404
    assert Worktree.objects.get().status == "ready"


def test_the_changes_are_seen_and_nothing_of_them_is_markup(olgas: Client, tree: Worktree) -> None:
    shown = text(olgas.get("/c/ACM/issues/ACM-1/work"))
    assert "1 commit, 1 file changed, +1 −0, 3 not committed" in shown
    assert "1 not merged" in shown
    assert "Make &lt;b&gt;it&lt;/b&gt;" in shown
    assert "+&lt;script&gt;alert(2)&lt;/script&gt;" in shown
    assert "<script>alert" not in shown
    assert "<img src=x" not in shown


def test_the_issue_asks_for_it_only_where_there_may_be_one(
    olgas: Client, acme: Company, tree: Worktree
) -> None:
    factories.issue(acme, "Without a project")
    part = text(olgas.get("/c/ACM/issues/ACM-1/work", headers={"HX-Request": "true"}))
    assert "ACM-1-mend-it" in part
    assert "<html" not in part
    assert "/issues/ACM-1/work" in text(olgas.get("/c/ACM/issues/ACM-1"))
    assert "/issues/ACM-2/work" not in text(olgas.get("/c/ACM/issues/ACM-2"))


def test_files_are_browsed_with_their_names_escaped(veras: Client, tree: Worktree) -> None:
    top = veras.get("/c/ACM/issues/ACM-1/work/files")
    shown = text(top)
    assert "&lt;img src=x onerror=alert(1)&gt;.txt" in shown
    assert "<img src=x" not in shown
    assert "unsafe" not in top["Content-Security-Policy"]
    file = text(veras.get("/c/ACM/issues/ACM-1/work/files", {"path": "made.txt"}))
    assert "&lt;script&gt;alert(2)" in file
    assert "<script>alert" not in file
    evil = text(veras.get("/c/ACM/issues/ACM-1/work/files", {"path": EVIL}))
    assert "draft" in evil
    assert "<img src=x" not in evil
    assert "no text file" in text(veras.get("/c/ACM/issues/ACM-1/work/files", {"path": "bin"}))


@pytest.mark.parametrize("path", ["../secret", "nothing", "a\0b", ".git", "README/x"])
def test_what_is_not_there_is_not_found(olgas: Client, tree: Worktree, path: str) -> None:
    assert olgas.get("/c/ACM/issues/ACM-1/work/files", {"path": path}).status_code == 404


def test_a_link_is_not_opened(olgas: Client, tree: Worktree) -> None:
    shown = text(olgas.get("/c/ACM/issues/ACM-1/work/files", {"path": "key"}))
    assert "not opened" in shown
    assert "root:" not in shown


def test_removal_shows_what_is_lost_and_asks(olgas: Client, veras: Client, tree: Worktree) -> None:
    address = "/c/ACM/issues/ACM-1/work/remove"
    page = olgas.get(address)
    assert "3 not committed." in text(page)
    assert "1 not merged." in text(page)
    assert veras.post(address, {"mark": page.context["mark"]}).status_code == 403
    olgas.post(address, {"mark": "of another day"})
    assert Path(tree.path).exists()

    answer = olgas.post(address, {"mark": page.context["mark"]})

    assert answer["Location"] == "/c/ACM/issues/ACM-1"
    assert not Path(tree.path).exists()
    assert olgas.get(address).status_code == 404


def test_a_work_tree_that_is_gone_can_be_put_away(
    olgas: Client, tree: Worktree, tmp_path: Path
) -> None:
    Path(tree.path).rename(tmp_path / "away")
    page = olgas.get("/c/ACM/issues/ACM-1/work/remove")
    assert "The folder of the work tree is gone." in text(page)
    olgas.post("/c/ACM/issues/ACM-1/work/remove", {"mark": page.context["mark"]})
    assert Worktree.objects.get().status == "removed"


def test_the_list_of_work_trees_costs_the_same_however_long(
    olgas: Client, acme: Company, project: Project, tree: Worktree,
    django_assert_max_num_queries: Any,
) -> None:  # fmt: skip
    now = timezone.now()
    for number in range(20):
        issue = factories.issue(acme, f"Issue {number}", project=project)
        Worktree.objects.create(
            company=acme, project=project, issue=issue, repository="/r", path=f"/gone/{number}",
            branch=f"b{number}", status="ready", created_at=now, last_used_at=now, looked_at=now,
        )  # fmt: skip
    with django_assert_max_num_queries(12):
        shown = text(olgas.get(f"/c/ACM/projects/{project.id}/workspace"))
    assert "b19" in shown


def test_a_run_that_is_in_it_is_not_disturbed(olgas: Client, ada: Agent, tree: Worktree) -> None:
    run = factories.running(ada, Issue.objects.get())
    Worktree.objects.update(holder=run)
    page = olgas.get("/c/ACM/issues/ACM-1/work/remove")
    olgas.post("/c/ACM/issues/ACM-1/work/remove", {"mark": page.context["mark"]})
    assert Path(tree.path).exists()
    assert HeartbeatRun.objects.get().status == "running"
