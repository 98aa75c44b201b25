"""Lists of issues as the API shows them: one statement for a page, which writes the JSON itself.

A list is the most read answer of all, so a row passes through Python as one piece of text. What
most issues lack (a checkout, labels, blockers, a live run) comes as rows of their own behind the
page, and is put to its issue here. The shape is that of `shapes.issue`, shorter where a list
repeats itself; a test holds the two together.
"""

from __future__ import annotations

import functools
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from django.http import HttpRequest, HttpResponse

from companies import json_sql as js
from companies import rows, wire
from issues import shapes
from issues.models import Issue

EXCERPT = 100

# A letter has one to four bytes, and counting bytes is cheaper than counting letters.
_IS_CUT = f"""octet_length(i.description) > {EXCERPT}
    AND (octet_length(i.description) > {4 * EXCERPT} OR length(i.description) > {EXCERPT})"""
# All that stands in the issue's own row; it ends where `_with` goes on.
_ISSUE = js.record(
    {"id": js.plain("i.id"), "companyId": js.plain("i.company_id")},
    js.Rare(
        {
            "projectId": js.plain_or_null("i.project_id"),
            "goalId": js.plain_or_null("i.goal_id"),
            "parentId": js.plain_or_null("i.parent_id"),
        }
    ),
    {
        "title": js.words("i.title"),
        # A cast cuts at letters, and looks no further than it must.
        "description": js.words_or_null(f"i.description::varchar({EXCERPT})"),
        "descriptionTruncated": js.boolean(_IS_CUT),
        "status": js.plain("i.status"),
        "version": js.number("i.version"),
        "statusVersion": js.number("i.version"),
        "workMode": js.constant("standard"),
        "priority": js.choice("i.priority", shapes.PRIORITIES),
        "assigneeAgentId": js.plain_or_null("i.assignee_agent_id"),
        "createdByUserId": js.plain_or_null("i.created_by_user_id"),
        "issueNumber": js.number("i.number"),
        "identifier": js.plain("i.identifier"),
        "originKind": js.constant("manual"),
        "requestDepth": js.number("i.request_depth"),
    },
    js.Rare(
        {
            "assigneeUserId": js.plain_or_null("i.assignee_user_id"),
            "createdByAgentId": js.plain_or_null("i.created_by_agent_id"),
        }
    ),
    js.Rare(
        {
            "billingCode": js.words_or_null("i.billing_code"),
            "blockedReason": js.words_or_null("i.blocked_reason"),
        }
    ),
    js.Rare(
        {
            "startedAt": js.moment_or_null("i.started_at"),
            "completedAt": js.moment_or_null("i.completed_at"),
            "cancelledAt": js.moment_or_null("i.cancelled_at"),
            "hiddenAt": js.moment_or_null("i.archived_at"),
        }
    ),
    {"createdAt": js.moment("i.created_at")},
    end=',"updatedAt":',
)
_LABEL = js.record(
    {
        "id": js.plain("b.id"),
        "companyId": js.plain("b.company_id"),
        "name": js.words("b.name"),
        "color": js.words("b.color"),
        "createdAt": js.moment("b.created_at"),
        "updatedAt": js.moment("b.updated_at"),
    }
)
_STATUS = """CASE WHEN r.status = 'queued' AND r.attempt > 1 AND r.not_before > now()
    THEN 'scheduled_retry' ELSE r.status END"""
_TRIGGER = "CASE r.source WHEN 'on_demand' THEN 'manual' ELSE 'system' END"
_RUN = f"""{
    js.record(
        {
            "id": js.plain("r.id"),
            "status": js.plain(f"({_STATUS})"),
            "agentId": js.plain("r.agent_id"),
            "agentName": js.words("a.name"),
            "invocationSource": js.plain("r.source"),
            "triggerDetail": js.plain(f"({_TRIGGER})"),
            "createdAt": js.moment("r.created_at"),
        },
        end="",
    )
} || coalesce(',"startedAt":' || {js.sql(js.moment("r.started_at"))}, '')
  || coalesce(',"lastOutputAt":' || {js.sql(js.moment("r.output_at"))}, '') || '}}'"""

_HELD, _LABELS, _WAITS, _LIVE = range(1, 5)

# What some issues of a page have, in rows of `_Row`.
_NEAR = f"""
UNION ALL
SELECT {_HELD}, 0, h.issue_id::text, coalesce('"' || h.run_id || '"', 'null'),
    {js.sql(js.moment("h.created_at"))}, NULL
FROM issues_checkout h
WHERE h.issue_id = ANY (ARRAY(SELECT id FROM page)) AND h.released_at IS NULL
UNION ALL
SELECT {_LABELS}, 0, l.issue_id::text, string_agg({_LABEL}, ',' ORDER BY b.name, l.id),
    string_agg({js.sql(js.plain("b.id"))}, ',' ORDER BY b.name, l.id), NULL
FROM issues_issuelabel l JOIN issues_label b ON b.id = l.label_id
WHERE l.issue_id = ANY (ARRAY(SELECT id FROM page)) GROUP BY l.issue_id
UNION ALL
SELECT {_WAITS}, 0, w.issue_id::text, count(*)::text,
    concat('"sampleBlockerIdentifier":"', (array_agg(o.identifier ORDER BY w.created_at, w.id))[1],
        '","directBlockerIssueId":"', (array_agg(o.id ORDER BY w.created_at, w.id))[1], '"'), NULL
FROM issues_blocker w JOIN issues_issue o ON o.id = w.blocking_id
WHERE w.issue_id = ANY (ARRAY(SELECT id FROM page)) AND o.status NOT IN ('done', 'cancelled')
GROUP BY w.issue_id
UNION ALL
(SELECT DISTINCT ON (r.issue_id) {_LIVE}, 0, r.issue_id::text, {_RUN}, NULL, NULL
FROM agents_heartbeatrun r JOIN agents_agent a ON a.id = r.agent_id
WHERE r.issue_id = ANY (ARRAY(SELECT id FROM page)) AND r.status IN ('queued', 'running')
ORDER BY r.issue_id, r.status DESC, r.created_at DESC)
ORDER BY kind, place
"""  # noqa: S608


@functools.lru_cache(maxsize=512)
def _statement(where: str, key: str, order: str, limit: int) -> str:
    """The rows of a page and, behind them, what they have; in the order of `_Row`."""
    return f"""
WITH page AS MATERIALIZED (
    SELECT row_number() OVER () AS place, p.* FROM (
        SELECT i.id, {key} AS key, {_ISSUE} AS text, {js.sql(js.moment("i.updated_at"))} AS more
        FROM issues_issue i WHERE {where} ORDER BY {order} LIMIT {limit + 1}) AS p
)
SELECT 0 AS kind, place, id::text AS issue, text, more,
    CASE WHEN place = {limit} THEN key END AS key FROM page
{_NEAR}"""  # noqa: S608


_Row = tuple[int, int, str, str, str, Any]


@dataclass(slots=True)
class Filter:
    """Which issues of a company a list is about. `equal`: columns of ours and their values."""

    company_id: uuid.UUID
    status: Sequence[str] = ()
    priority: Sequence[int] = ()
    text: str = ""
    archived: bool = False
    label_id: uuid.UUID | None = None
    equal: Mapping[str, Any] = field(default_factory=dict)

    def sql(self) -> tuple[str, list[Any]]:
        """The condition on `issues_issue i`, and its parameters."""
        parts: list[str] = ["i.company_id = %s"]
        values: list[Any] = [self.company_id]
        if not self.archived:
            parts.append("i.archived_at IS NULL")
        for column, chosen in (("i.status", self.status), ("i.priority", self.priority)):
            if chosen:
                parts.append(f"{column} IN ({', '.join(['%s'] * len(chosen))})")
                values += chosen
        for column, value in self.equal.items():
            parts.append(f"i.{column} = %s")
            values.append(value)
        if self.label_id is not None:
            parts.append("i.id IN (SELECT issue_id FROM issues_issuelabel WHERE label_id = %s)")
            values.append(self.label_id)
        if self.text:
            parts.append(
                "(strpos(upper(i.title), upper(%s::text)) > 0"
                " OR upper(i.identifier) = upper(%s::text))"
            )
            values += [self.text, self.text]
        return " AND ".join(parts), values


def respond(
    request: HttpRequest,
    wanted: Filter,
    *,
    keys: Sequence[str],
    limit: int,
    cursor: str | None,
) -> HttpResponse:
    """A page of the issues as a bare array, with the next page's address in its headers. `keys` are
    the columns to order by, as `wire.page` takes them; the second one is the id."""
    where, values = wanted.sql()
    columns = [f"i.{key.lstrip('-')}" for key in keys]
    down = keys[0].startswith("-")
    if cursor:
        # Compared as a row, so that the index begins where the last page ended.
        where += f" AND ({', '.join(columns)}) {'<' if down else '>'} (%s, %s)"
        values += wire.cursor_values(Issue, keys, cursor)
    order = ", ".join(f"{column} {'DESC' if down else 'ASC'}" for column in columns)
    statement = _statement(where, columns[0], order, limit)
    found = cast(list[_Row], rows.ask(statement, values))
    page, last = _page(found, limit)
    response = wire.written(page)
    if last is not None:
        named = {keys[0].lstrip("-"): last[5], "id": last[2]}
        wire.link_next(request, response, named, keys)
    return response


def count(wanted: Filter) -> Counter[str]:
    """How many of the issues there are in each status."""
    where, values = wanted.sql()
    statement = f"SELECT i.status, count(*) FROM issues_issue i WHERE {where} GROUP BY i.status"  # noqa: S608
    return Counter(dict(cast(list[tuple[str, int]], rows.ask(statement, values))))


def _page(found: Sequence[_Row], limit: int) -> tuple[bytes, _Row | None]:
    """The JSON of a page, and its last row when another page follows."""
    rows = [row for row in found if row[0] == 0]
    near: dict[str, dict[int, tuple[str, str]]] = {}
    for kind, _, issue, text, more, _ in found[len(rows) :]:
        near.setdefault(issue, {})[kind] = (text, more)
    shown = rows[:limit]
    ends = {issue: _with(having) for issue, having in near.items()}
    pieces = [
        f'{text}{changed},"lastActivityAt":{changed}{ends.get(issue, _BARE)}'
        for _, _, issue, text, changed, _ in shown
    ]
    return f"[{','.join(pieces)}]".encode(), shown[-1] if len(rows) > limit else None


def _with(near: Mapping[int, tuple[str, str]]) -> str:
    """The end of an issue's JSON: what some issues have, and most have not."""
    run_id, held_at = near.get(_HELD, ("null", "null"))
    labels, label_ids = near.get(_LABELS, ("", ""))
    live, _ = near.get(_LIVE, ("null", ""))
    waits = '{"state":"none","unresolvedBlockerCount":0}'
    if _WAITS in near:
        waiting, sample = near[_WAITS]
        waits = (
            '{"state":"needs_attention","reason":"attention_required",'
            f'"unresolvedBlockerCount":{waiting},{sample}}}'
        )
    return (
        f',"checkoutRunId":{run_id},"executionRunId":{run_id},"executionLockedAt":{held_at}'
        f',"labels":[{labels}],"labelIds":[{label_ids}],"activeRun":{live}'
        f',"blockerAttention":{waits}}}'
    )


_BARE = _with({})
