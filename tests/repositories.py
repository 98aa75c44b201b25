"""Real Git repositories for tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_WHO = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "Gil"), ("EMAIL", "gil@example.com"))
}
_ALONE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


def git(folder: Path | str, *arguments: str) -> str:
    """What Git answers in this folder."""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env={**os.environ, **_WHO, **_ALONE},
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.stdout.strip()


def repository(folder: Path) -> Path:
    """A repository with one commit on `main`: a file README."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "README").write_text("A barn.\n")
    commit(folder, "Begin")
    return folder


def commit(folder: Path | str, message: str) -> str:
    """Commit all that is there; the commit's id."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)
    return git(folder, "rev-parse", "HEAD")
