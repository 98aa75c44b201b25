#!/usr/bin/env python3
"""What changed in a repository in the last week, as a comment on the issue.

A process agent: set its command to this file (or to `python3` with this file as the argument)
and its workspace to a Git repository. It reads the history, writes a summary and reports it by
the result protocol: the last line of its output is one JSON object.

Needs nothing but Python and Git. Try it by hand: `python3 examples/weekly_changes.py --days 30`.
"""

# ruff: noqa: T201 (printing is how a program reports)

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass

FIELD = "\x1f"
RECORD = "\x1e"
SHOWN = 15


@dataclass
class Commit:
    id: str
    author: str
    subject: str
    added: int = 0
    removed: int = 0
    files: tuple[str, ...] = ()


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def history(days: int) -> list[Commit]:
    raw = git(
        "log",
        f"--since={days} days ago",
        "--no-merges",
        "--numstat",
        f"--format={RECORD}%h{FIELD}%an{FIELD}%s",
    )
    return [read(record) for record in raw.split(RECORD)[1:]]


def read(record: str) -> Commit:
    first, *rest = record.strip().split("\n")
    commit = Commit(*first.split(FIELD))
    files = []
    for line in filter(None, rest):
        added, removed, path = line.split("\t", 2)
        commit.added += int(added) if added.isdigit() else 0  # "-" for binary files
        commit.removed += int(removed) if removed.isdigit() else 0
        files.append(path)
    commit.files = tuple(files)
    return commit


def summarise(commits: list[Commit], days: int) -> str:
    if not commits:
        return f"Nothing was committed in the last {days} days."
    authors = Counter(commit.author for commit in commits)
    places = Counter(path.split("/")[0] for commit in commits for path in set(commit.files))
    added = sum(commit.added for commit in commits)
    removed = sum(commit.removed for commit in commits)
    lines = [
        f"**{len(commits)} {'commit' if len(commits) == 1 else 'commits'} "
        f"in the last {days} days**, "
        f"{added} lines added and {removed} removed.",
        "",
        "By: " + ", ".join(f"{name} ({count})" for name, count in authors.most_common(5)),
        "",
        "Most changed: " + ", ".join(f"`{place}` ({n})" for place, n in places.most_common(5)),
        "",
        *(f"- `{commit.id}` {commit.subject}" for commit in commits[:SHOWN]),
    ]
    if len(commits) > SHOWN:
        lines.append(f"- … and {len(commits) - SHOWN} more")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=7)
    days = parser.parse_args().days
    print(f"Reading the history of the last {days} days …", flush=True)
    commits = history(days)
    print(f"{len(commits)} commits found.", flush=True)
    print(json.dumps({"summary": summarise(commits, days), "status": "done"}))


if __name__ == "__main__":
    main()
