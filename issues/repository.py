"""What Paperclip asks of a Git repository and of the work trees it makes there. Blocking; knows no
models and no rights. Read next: `worktrees.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from dataclasses import dataclass

from issues import git
from issues.git import GitError, Output

MAX_FILES = 200  # changed files that are named
MAX_COMMITS = 50
DIFF_BYTES = 512 * 1024
BRANCH_CHARS = 120

_NEVER = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")


def is_branch_name(name: str) -> bool:
    """Would `git check-ref-format --branch` take it, and is it harmless as an argument?"""
    if not name or len(name) > BRANCH_CHARS or name in ("@", "HEAD") or name.startswith("refs/"):
        return False
    if _NEVER.search(name) or name[0] in "-/" or name[-1] in "/.":
        return False
    return all(
        part and not part.startswith(".") and not part.endswith(".lock") for part in name.split("/")
    )


def problem(path: str) -> str:
    """Why the folder cannot be worked in by work trees, in words; "" when it can."""
    if not os.path.isdir(path):
        return f"{path} is not a folder on this machine."
    try:
        top = git.ask(path, "rev-parse", "--git-dir").line
        inside = git.ask(path, "rev-parse", "--show-prefix").line if top != "." else ""
    except GitError as error:
        return f"{path} is not a Git repository: {error}"
    return f"{path} lies inside a repository; give its top folder." if inside else ""


def commit_of(path: str, name: str) -> str:
    """The commit that a branch stands at; "" for the default branch. Raises GitError."""
    full = f"refs/heads/{name}" if name else "HEAD"
    try:
        return git.ask(path, "rev-parse", "--verify", "--quiet", f"{full}^{{commit}}").line
    except GitError:
        what = f"no branch {name}" if name else "no commit yet"
        raise GitError(f"The repository has {what}.") from None


def has_branch(path: str, name: str) -> bool:
    try:
        git.ask(path, "show-ref", "--verify", "--quiet", f"refs/heads/{name}")
    except GitError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Laid:
    """A work tree that was made: its own Git folder, and the commit its work starts from."""

    git_dir: str
    base_commit: str


def lay(*, path: str, tree: str, branch: str, base: str) -> Laid:
    """Make the work tree `tree` of the repository `path` on `branch`, new from the branch `base`
    or as it stands. Whatever is left of an earlier attempt goes first. Raises GitError."""
    clear(path=path, tree=tree)
    start = commit_of(path, base)
    if has_branch(path, branch):
        git.change(path, "worktree", "add", "--quiet", tree, branch)
        start = git.ask(path, "merge-base", start, f"refs/heads/{branch}").line
    else:
        git.change(path, "worktree", "add", "--quiet", "--no-track", "-b", branch, tree, start)
    return Laid(git.ask(tree, "rev-parse", "--absolute-git-dir").line, start)


def clear(*, path: str, tree: str) -> None:
    """Remove a work tree, or what is left of one. It is out of the way in one step, so that
    nobody ever works in half of one; the rest may be done again."""
    aside = f"{tree}.removed"
    shutil.rmtree(aside, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.rename(tree, aside)
    with contextlib.suppress(GitError):  # it knows of none
        git.change(path, "worktree", "remove", "--force", "--force", tree)
    shutil.rmtree(aside, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Commit:
    sha: str
    author: str
    title: str


@dataclass(frozen=True, slots=True)
class State:
    """How a work tree stands: what is not committed, what its branch has that the base branch has
    not, and what both come to since the work began."""

    head: str
    dirty: tuple[str, ...]  # "changed path", "new path"; the first MAX_FILES
    dirty_count: int
    unmerged: tuple[Commit, ...]  # the newest MAX_COMMITS
    unmerged_count: int
    commits: tuple[Commit, ...]  # since the work began
    files: int
    added: int
    removed: int

    @property
    def is_safe(self) -> bool:
        """Nothing would be lost with it."""
        return not self.dirty_count and not self.unmerged_count

    @property
    def mark(self) -> str:
        """Another one when anything in it has changed."""
        told = repr((self.head, self.dirty, self.dirty_count, self.unmerged_count))
        return hashlib.sha256(told.encode()).hexdigest()[:16]


def state(*, path: str, tree: str, git_dir: str, base: str, base_commit: str) -> State:
    """How the work tree stands now. Raises GitError."""
    if not os.path.isdir(tree):
        raise GitError("The folder of the work tree is gone.")
    head = git.ask(tree, "rev-parse", "--verify", "HEAD", git_dir=git_dir).line
    dirty = _dirty(tree, git_dir)
    merged = commit_of(path, base)
    count = git.ask(path, "rev-list", "--count", head, f"^{merged}").line
    stat = git.ask(tree, *_DIFF, "--numstat", "-z", base_commit, "--", git_dir=git_dir)
    files, added, removed = _sum(stat)
    return State(
        head=head,
        dirty=tuple(dirty[:MAX_FILES]),
        dirty_count=len(dirty),
        unmerged=_commits(path, head, merged),
        unmerged_count=int(count),
        commits=_commits(path, head, base_commit),
        files=files,
        added=added,
        removed=removed,
    )


# No program of the repository's choice, no colours of its own.
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty")


def diff(*, tree: str, git_dir: str, base_commit: str) -> Output:
    """All changes of tracked files since the work began, committed or not, up to DIFF_BYTES."""
    return git.ask(tree, *_DIFF, "-p", base_commit, "--", git_dir=git_dir, cap=DIFF_BYTES)


def _dirty(tree: str, git_dir: str) -> list[str]:
    told = git.ask(
        tree, "status", "--porcelain=v1", "-z", "--untracked-files=normal", "--no-renames",
        "--ignore-submodules=none", git_dir=git_dir,
    )  # fmt: skip
    entries = [entry for entry in told.text.split("\0") if entry]
    return [
        f"{_CHANGES.get(entry[1:2].strip() or entry[:1], '?')} {entry[3:]}" for entry in entries
    ]


_CHANGES = {
    "?": "new",
    "A": "new",
    "M": "changed",
    "D": "deleted",
    "T": "changed",
    "U": "in conflict",
}


def _commits(path: str, head: str, without: str) -> tuple[Commit, ...]:
    told = git.ask(
        path, "log", f"--max-count={MAX_COMMITS}", "--no-color", "--no-mailmap", "-z",
        "--format=%H%x1f%an%x1f%s", head, f"^{without}", "--",
    )  # fmt: skip
    rows = (entry.split("\x1f") for entry in told.text.split("\0") if entry)
    return tuple(Commit(row[0], row[1][:100], row[2][:300]) for row in rows if len(row) == 3)


def _sum(stat: Output) -> tuple[int, int, int]:
    """Files, lines added, lines removed; a binary file counts no lines."""
    files = added = removed = 0
    for entry in stat.text.split("\0"):
        parts = entry.split("\t")
        if len(parts) != 3:
            continue
        files += 1
        added += int(parts[0]) if parts[0].isdigit() else 0
        removed += int(parts[1]) if parts[1].isdigit() else 0
    return files, added, removed
