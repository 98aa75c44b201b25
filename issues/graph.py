"""What hangs on what: blockers and parents. Both are trees or nets without circles.

Edges are read by closing an issue (whom does it free?) and written by setting blockers or a
parent. A reader takes the company's graph lock shared, a writer takes it alone, always before any
row is locked: so two writers cannot close a circle between them, and no issue can be blocked by
one that is closing at the same moment.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from typing import Any, Literal

from django.db import connection

from companies import rows
from companies.errors import Conflict, Invalid, NotFound
from issues.models import Blocker, Issue

MAX_DEPTH = 100  # steps a walk takes at most; longer chains are refused

_SEEN_BLOCKERS = """
WITH RECURSIVE walk (id, depth) AS (
    SELECT id, 1 FROM unnest(%(starts)s::uuid[]) AS id
    UNION
    SELECT b.blocking_id, walk.depth + 1
    FROM walk JOIN issues_blocker b ON b.issue_id = walk.id
    WHERE walk.depth <= %(depth)s
)
SELECT bool_or(id = %(target)s), max(depth) FROM walk
"""

_PARENTS = """
WITH RECURSIVE walk (id, parent_id, depth) AS (
    SELECT id, parent_id, 1 FROM issues_issue WHERE id = %(start)s
    UNION ALL
    SELECT i.id, i.parent_id, walk.depth + 1
    FROM walk JOIN issues_issue i ON i.id = walk.parent_id
    WHERE walk.depth <= %(depth)s
)
SELECT id FROM walk ORDER BY depth
"""


def lock(company_id: uuid.UUID, mode: Literal["read", "write"]) -> None:
    """Take the company's graph lock until the transaction ends; before any row is locked."""
    function = "pg_advisory_xact_lock" if mode == "write" else "pg_advisory_xact_lock_shared"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {function}(hashtext('issues.graph'), hashtext(%s))", [str(company_id)]
        )


def lock_rows(ids: Collection[uuid.UUID]) -> dict[uuid.UUID, Issue]:
    """The issues with these ids, locked in the order of their ids, so that no two callers can wait
    for each other. Foreign keys to them can still be written."""
    # No joins here: after waiting for a lock, PostgreSQL joins the new row with the old partners.
    statement = (
        f"SELECT {rows.columns(Issue, 'i')} FROM issues_issue i WHERE i.id = ANY (%(ids)s)"  # noqa: S608
        " ORDER BY i.id FOR NO KEY UPDATE OF i"
    )
    return {issue.id: issue for issue in rows.fetch_one(statement, {"ids": list(ids)}, Issue)}


def lock_row(issue_id: uuid.UUID) -> Issue:
    """One issue, locked and fresh. Raises NotFound when it is gone."""
    # A statement of its own: with a list of ids, PostgreSQL would plan it anew each time.
    statement = (
        f"SELECT {rows.columns(Issue, 'i')} FROM issues_issue i WHERE i.id = %(id)s"  # noqa: S608
        " FOR NO KEY UPDATE OF i"
    )
    for issue in rows.fetch_one(statement, {"id": issue_id}, Issue):
        return issue
    raise NotFound("There is no such issue.")


def refuse_gone(named: Collection[Issue], field: str) -> None:
    """Raise NotFound when one of these was deleted since it was read. Under the graph's lock of
    their company, which also who deletes takes: what is there stays there."""
    ids = {issue.id for issue in named}
    if ids and Issue.objects.filter(id__in=ids).count() < len(ids):
        raise NotFound(f"{field}: there is no such issue any more.", code="unknown_reference")


def open_blockers(issue_id: uuid.UUID) -> list[Issue]:
    """What still blocks this issue, oldest first."""
    statement = (
        f"SELECT {rows.columns(Issue, 'i')} FROM issues_blocker b"  # noqa: S608
        " JOIN issues_issue i ON i.id = b.blocking_id"
        " WHERE b.issue_id = %(id)s AND i.status <> ALL (%(closed)s) ORDER BY i.number, i.id"
    )
    return rows.fetch_one(
        statement, {"id": issue_id, "closed": list(map(str, Issue.CLOSED))}, Issue
    )


def neighbours(issue: Issue) -> set[uuid.UUID]:
    """Whom closing this issue may free: the parent and what it blocks."""
    ids = set(Blocker.objects.filter(blocking=issue).values_list("issue_id", flat=True))
    if issue.parent_id:
        ids.add(issue.parent_id)
    return ids


def freed(issue: Issue) -> set[uuid.UUID]:
    """Those it blocks that no other open issue blocks."""
    waiting = set(Blocker.objects.filter(blocking=issue).values_list("issue_id", flat=True))
    if not waiting:
        return waiting
    held = Blocker.objects.filter(issue_id__in=waiting).exclude(blocking__status__in=Issue.CLOSED)
    return waiting - set(held.values_list("issue_id", flat=True))


def refuse_blocker_circle(issue: Issue, blocking: Iterable[Issue]) -> None:
    """Raise Invalid, naming the way round, when one of `blocking` waits for `issue` itself."""
    starts = [one.id for one in blocking]
    if not starts:
        return
    arguments: dict[str, Any] = {"starts": starts, "target": issue.id, "depth": MAX_DEPTH}
    with connection.cursor() as cursor:
        cursor.execute(_SEEN_BLOCKERS, arguments)
        found, depth = cursor.fetchone()
        if depth > MAX_DEPTH:
            raise Invalid(
                "chain_too_long",
                f"A chain of blockers has at most {MAX_DEPTH} issues.",
                field="blocked_by",
                status=422,
            )
    if not found:
        return
    way = [issue.identifier, *_way(starts, issue.id)]
    raise Invalid(
        "blocker_cycle",
        "These issues would wait for each other: " + " ← ".join(way) + ".",
        field="blocked_by",
        details={"path": way},
        status=422,
    )


def _way(starts: list[uuid.UUID], target: uuid.UUID) -> list[str]:
    """Identifiers from one of `starts` along its blockers to `target`; only told in a refusal."""
    came_from: dict[uuid.UUID, uuid.UUID | None] = dict.fromkeys(starts)
    edge = list(starts)
    while edge and target not in came_from:
        pairs = Blocker.objects.filter(issue_id__in=edge).values_list("issue_id", "blocking_id")
        edge = []
        for issue_id, blocking_id in pairs:
            if blocking_id not in came_from:
                came_from[blocking_id] = issue_id
                edge.append(blocking_id)
    way: list[uuid.UUID] = []
    step: uuid.UUID | None = target
    while step is not None:
        way.append(step)
        step = came_from.get(step)
    names = dict(Issue.objects.filter(id__in=way).values_list("id", "identifier"))
    return [names[one] for one in reversed(way)]


def refuse_version(row: Issue, expected: int | None) -> None:
    """Raise Conflict when the locked row is another version than the caller has seen."""
    if expected is not None and row.version != expected:
        raise Conflict(
            "version_conflict",
            "Somebody else has changed this issue in the meantime.",
            details={"expected": expected, "version": row.version, "status": row.status},
        )


def ancestor_ids(issue_id: uuid.UUID) -> list[uuid.UUID]:
    """Ids of the issue's parents, nearest first."""
    with connection.cursor() as cursor:
        cursor.execute(_PARENTS, {"start": issue_id, "depth": MAX_DEPTH})
        return [row[0] for row in cursor.fetchall()][1:]


def refuse_parent_circle(issue: Issue, parent: Issue) -> None:
    """Raise Invalid when `parent` lies below `issue`, or the tree would become too deep."""
    above = [parent.id, *ancestor_ids(parent.id)]
    if issue.id in above:
        raise Invalid(
            "parent_cycle",
            f"{parent.identifier} is below {issue.identifier} and cannot be its parent.",
            field="parent",
            status=422,
        )
    if len(above) > MAX_DEPTH:
        raise Invalid(
            "tree_too_deep",
            f"Issues nest at most {MAX_DEPTH} deep.",
            field="parent",
            status=422,
        )
