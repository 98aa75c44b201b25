"""What came of an issue: its work tree's changes, its files, and its removal."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render

from companies.errors import NotFound, Refusal
from companies.views.door import PageRequest, page
from issues import folder, harvest, repository, thread, worktrees
from issues.git import GitError
from issues.models import Issue, Worktree

DIFF_LINES = 3_000
LINE_CHARS = 2_000


@page()
def work(request: PageRequest, identifier: str) -> HttpResponse:
    """The work tree of an issue: a page, or the part of the issue's page that loads by itself."""
    issue, tree = _find(request, identifier)
    context = {"section": "issues", "issue": issue, "tree": tree, **_seen(tree)}
    if request.htmx:
        return render(request, "issues/_work.html", context)
    return render(request, "issues/work.html", context)


@page()
def files(request: PageRequest, identifier: str) -> HttpResponse:
    """A folder or a text file of the work tree, `?path=` below its top."""
    issue, tree = _find(request, identifier)
    if tree is None or tree.status != Worktree.Status.READY:
        raise NotFound()
    path = request.GET.get("path", "")
    names = folder.steps(path)
    context: dict[str, Any] = {
        "section": "issues",
        "issue": issue,
        "tree": tree,
        "crumbs": [(name, _query(names[: at + 1])) for at, name in enumerate(names)],
    }
    try:
        found = folder.look(tree.path, path)
    except NotFound:
        raise
    except Refusal as refusal:
        return render(request, "issues/files.html", {**context, "said": refusal.message})
    if isinstance(found, folder.File):
        return render(request, "issues/files.html", {**context, "file": found})
    rows = [
        (entry, _query([*names, entry.name]) if entry.can_open else "") for entry in found.entries
    ]
    return render(request, "issues/files.html", {**context, "rows": rows, "more": found.more})


@page(post="operate")
def remove(request: PageRequest, identifier: str) -> HttpResponse:
    """What would be lost with the work tree, and the question."""
    issue, tree = _find(request, identifier)
    if tree is None:
        raise NotFound()
    if request.method == "POST":
        worktrees.remove(
            worktree=tree,
            mark=request.POST.get("mark", ""),
            actor=request.principal.actor,
            now=request.now,
        )
        messages.success(request, f"The work tree of {issue.identifier} is removed.")
        return redirect(f"{request.base}/issues/{issue.identifier}")
    context = {"section": "issues", "issue": issue, "tree": tree, **_seen(tree, diff=False)}
    return render(request, "issues/remove_work.html", context)


def _find(request: PageRequest, identifier: str) -> tuple[Issue, Worktree | None]:
    issue = thread.find(company_id=request.company.id, identifier=identifier)
    tree = worktrees.find(issue)
    if tree is not None:
        tree.issue = issue
    return issue, tree


def _seen(tree: Worktree | None, *, diff: bool = True) -> dict[str, Any]:
    """What Git says of it now: `state` and `diff`, or `said`, why it says nothing."""
    if tree is None:
        return {}
    if tree.status != Worktree.Status.READY:
        return {"said": f"It is {tree.get_status_display().lower()}.", "mark": worktrees.GONE}
    try:
        state = worktrees.state(tree)
        seen: dict[str, Any] = {
            "state": state,
            "mark": state.mark,
            "summary": harvest.describe(state),
        }
        if diff:
            shown = repository.diff(
                tree=tree.path, git_dir=tree.git_dir, base_commit=tree.base_commit
            )
            lines = shown.text.split("\n")
            seen["diff"] = [(_kind(one), one[:LINE_CHARS]) for one in lines[:DIFF_LINES] if one]
            seen["cut"] = shown.cut or len(lines) > DIFF_LINES
    except GitError as error:
        return {"said": str(error), "mark": worktrees.GONE}
    return seen


def _kind(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ", "@@", "new ", "deleted ", "Binary ")):
        return "skip"
    return {"+": "add", "-": "remove"}.get(line[:1], "")


def _query(names: list[str]) -> str:
    return urlencode({"path": "/".join(names)})
