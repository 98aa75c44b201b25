"""What one line of an issue list shows, read for a whole page in one statement. Reads only.

`listing.py` says which issues, in which order; this reads what a line needs of each and asks
`why.py` for the reason beside it. Written by hand for the same cause as `facts.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from companies.models import Company
from issues import why
from issues.why import Chip


@dataclass(frozen=True, slots=True)
class Row:
    """What one line of an issue list shows. `cost_micros` None: nothing has run so far;
    `unpriced` calls are not in it."""

    id: uuid.UUID
    identifier: str
    title: str
    status: str
    priority: int
    updated_at: datetime
    assignee: str = ""
    assignee_kind: str = "agent"
    running: bool = False
    cost_micros: int | None = None
    unpriced: int = 0
    chip: Chip | None = None  # why it is not running
    children: tuple[int, int] | None = None  # done, all


@dataclass(frozen=True, slots=True)
class Record:
    """An issue of a page as the database has it. `g` and `s` are what the page is ordered by:
    the group and the sort value."""

    g: Any
    s: Any
    id: uuid.UUID
    identifier: str
    title: str
    status: str
    priority: int
    updated_at: datetime
    blocked_reason: str
    assignee_agent_id: uuid.UUID | None
    assignee_user_id: uuid.UUID | None
    agent: str | None
    person: str | None
    cost_micros: int | None
    unpriced: int | None
    running: bool | None
    children_done: int
    children: int


# Of `keys` (g, s, id) the first issues, each once. The sums look into one index each.
_RECORDS = """
SELECT k.g, k.s, k.id, i.identifier, i.title, i.status, i.priority, i.updated_at, i.blocked_reason,
       i.assignee_agent_id, i.assignee_user_id, a.name, coalesce(nullif(u.name, ''), u.email),
       spent.micros, spent.unpriced, spent.running, below.closed, below.all
FROM (SELECT g, s, id FROM ({keys}) AS given ORDER BY {order} LIMIT {limit}) AS k
JOIN issues_issue i ON i.id = k.id
LEFT JOIN agents_agent a ON a.id = i.assignee_agent_id
LEFT JOIN companies_user u ON u.id = i.assignee_user_id
CROSS JOIN LATERAL (
    SELECT sum(cost_micros)::bigint AS micros, sum(unpriced_calls)::bigint AS unpriced,
           bool_or(status = 'running') AS running
    FROM agents_heartbeatrun WHERE issue_id = i.id) AS spent
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE status IN ('done', 'cancelled')) AS closed, count(*) AS all
    FROM issues_issue WHERE parent_id = i.id) AS below
ORDER BY {order}
"""


def records(keys: str, values: Sequence[Any], *, order: str, limit: int) -> list[Record]:
    """The first `limit` issues that the statement `keys` names, `values` being its parameters, in
    an order of g, s and id."""
    with connection.cursor() as cursor:
        cursor.execute(_RECORDS.format(keys=keys, order=order, limit=limit), values)
        return [Record(*row) for row in cursor.fetchall()]


def of(found: Sequence[Record], *, company: Company, now: datetime) -> list[Row]:
    """Lines of a company's issues, in the order given."""
    chips = why.reasons(found, company=company, now=now)
    return [_row(record, chips[record.id]) for record in found]


def by_id(ids: Sequence[uuid.UUID], *, company: Company, now: datetime) -> list[Row]:
    """Lines of these issues of a company, in the order of `ids`."""
    keys = (
        "SELECT 0 AS g, nth AS s, id FROM unnest(%s::uuid[]) WITH ORDINALITY AS given (id, nth)"
        " JOIN issues_issue USING (id) WHERE company_id = %s"
    )
    found = records(keys, [list(ids), company.id], order="s", limit=len(ids))
    return of(found, company=company, now=now)


def _row(record: Record, chips: list[Chip]) -> Row:
    reasons = [] if record.running else chips
    return Row(
        id=record.id,
        identifier=record.identifier,
        title=record.title,
        status=record.status,
        priority=record.priority,
        updated_at=record.updated_at,
        assignee=record.agent or record.person or "",
        assignee_kind="agent" if record.assignee_agent_id else "user",
        running=bool(record.running),
        cost_micros=record.cost_micros,
        unpriced=record.unpriced or 0,
        chip=reasons[0] if reasons else None,
        children=(record.children_done, record.children),
    )
