"""What came of a run in its work tree, as work products of the issue: the branch, its commits and
the changes as a whole. Written again after each run: the same branch is the same product.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from companies.activity import Actor
from companies.errors import Refusal
from issues import graph, marks, repository
from issues.models import WorkProduct, Worktree
from issues.repository import State

PROVIDER = "git"


@transaction.atomic
def note(
    *, worktree_id: uuid.UUID, run_id: uuid.UUID, state: State, actor: Actor,
    now: datetime | None = None,
) -> int:  # fmt: skip
    """Write down how the work tree stands after a run that still holds it; returns how many
    products are new or different. Nothing was done: nothing is written. Safe to repeat."""
    now = now or timezone.now()
    found = Worktree.objects.select_related("issue__company").filter(
        pk=worktree_id, holder_id=run_id
    )
    worktree = found.first()
    if worktree is None or not (state.commits or state.files or state.dirty_count):
        return 0
    graph.lock_row(worktree.issue_id)
    known = {
        (row.type, row.external_id): row
        for row in WorkProduct.objects.filter(issue=worktree.issue, provider=PROVIDER)
    }
    wanted = _wanted(worktree, state)
    changed = sum(_put(worktree, known.get(key), key, fields, actor, now) for key, fields in wanted)
    now_there = {key for key, _ in wanted}
    for key, row in known.items():  # rewritten history
        of_branch = key[0] == "commit" and (row.metadata or {}).get("branch") == worktree.branch
        if of_branch and key not in now_there and len(state.commits) < repository.MAX_COMMITS:
            changed += _put(worktree, row, key, {"status": "archived"}, actor, now)
    return changed


def _wanted(worktree: Worktree, state: State) -> list[tuple[tuple[str, str], dict[str, Any]]]:
    summary = describe(state)
    address = f"{settings.BASE_URL}/c/{worktree.issue.company.issue_prefix}/issues"
    common = {"url": f"{address}/{worktree.issue.identifier}/work", "status": "active"}
    facts = {
        "branch": worktree.branch,
        "baseBranch": worktree.base_branch or None,
        "baseCommit": worktree.base_commit,
        "headCommit": state.head,
        "files": state.files,
        "additions": state.added,
        "deletions": state.removed,
        "uncommitted": state.dirty_count,
    }
    since = f"Changes since {worktree.base_commit[:10]}"
    rows: list[tuple[tuple[str, str], dict[str, Any]]] = [
        (
            ("branch", worktree.branch),
            {**common, "title": worktree.branch, "summary": summary, "metadata": facts},
        ),
        (
            ("diff", str(worktree.id)),
            {**common, "title": since, "summary": summary, "metadata": facts},
        ),
    ]
    for commit in state.commits:
        told = {"branch": worktree.branch, "author": _shown(commit.author)}
        title = _shown(commit.title) or commit.sha[:10]
        rows.append((("commit", commit.sha), {**common, "title": title, "metadata": told}))
    return rows


def _put(
    worktree: Worktree,
    row: WorkProduct | None,
    key: tuple[str, str],
    fields: dict[str, Any],
    actor: Actor,
    now: datetime,
) -> bool:
    try:
        if row is None:
            marks.add_product(
                issue=worktree.issue, actor=actor, now=now, type=key[0], provider=PROVIDER,
                external_id=key[1], **fields,
            )  # fmt: skip
            return True
        changes = {name: value for name, value in fields.items() if getattr(row, name) != value}
        if changes:
            marks.change_product(product=row, changes=changes, actor=actor, now=now)
        return bool(changes)
    except Refusal:
        return False  # the issue has as many as it may have


def describe(state: State) -> str:
    """The work in one line."""
    parts = [
        _count(len(state.commits), "commit"),
        f"{_count(state.files, 'file')} changed",
        f"+{state.added} −{state.removed}",
    ]
    if state.dirty_count:
        parts.append(f"{state.dirty_count} not committed")
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shown(text: str) -> str:
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
