"""What the issue list and the board show: filters, order, pages by key. Reads only.

Every state of a list is in its address. A page costs the same few queries however many issues
there are, and never one a row.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import orjson
from django.core.exceptions import EmptyResultSet
from django.db.models import Case, CharField, Count, F, IntegerField, Q, Value, When
from django.db.models.functions import Coalesce

from companies import moments
from companies.models import Company
from issues import lines
from issues.lines import Record, Row
from issues.models import Issue, IssueQuerySet, Priority

PAGE = 50
COLUMN = 10  # cards of a board column before "show more"
ORDER = ("in_progress", "in_review", "blocked", "todo", "backlog", "done", "cancelled")
OPEN = ORDER[:5]
COLUMNS = ("backlog", "todo", "in_progress", "in_review", "blocked", "done")
SORTS = {
    "priority": ("priority", True),
    "updated": ("updated_at", False),
    "created": ("created_at", False),
}
GROUPS = ("status", "assignee", "priority", "none")
TEXT_LIMIT = 100
_STATUS = "\x00"  # stands for one in a statement that is written once for several

KEY = ("g", "s", "id")
Keys = tuple[str, list[Any]]  # a statement that gives g, s and id, and its parameters


@dataclass(frozen=True, slots=True)
class Query:
    """A list's state, as its address says it. Unknown values fall back to the default."""

    status: str = "open"
    assignee: str = ""
    priority: str = ""
    project: str = ""
    q: str = ""
    sort: str = "priority"
    group: str = "status"
    after: str = ""

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Query:
        def pick(name: str, allowed: Iterable[str], default: str) -> str:
            value = str(given.get(name, default))
            return value if value in allowed else default

        return cls(
            status=pick("status", (*ORDER, "open", "all"), "open"),
            assignee=str(given.get("assignee", ""))[:80],
            priority=pick("priority", Priority.labels, ""),
            project=str(given.get("project", ""))[:36],
            q=str(given.get("q", "")).replace("\x00", "").strip()[:TEXT_LIMIT],
            sort=pick("sort", SORTS, "priority"),
            group=pick("group", GROUPS, "status"),
            after=str(given.get("after", ""))[:400],
        )

    def address(self, **changes: str) -> str:
        """The query string of this state with `changes`; defaults are left out."""
        wanted = (
            replace(self, after="", **changes)
            if "after" not in changes
            else replace(self, **changes)
        )
        plain = Query()
        pairs = [
            (name, getattr(wanted, name))
            for name in Query.__slots__
            if getattr(wanted, name) != getattr(plain, name)
        ]
        return "?" + urlencode(pairs) if pairs else "?"

    @property
    def here(self) -> str:
        """The query string of this very page."""
        return self.address(after=self.after)

    @property
    def filtered(self) -> bool:
        return (
            bool(self.q or self.assignee or self.priority or self.project) or self.status != "open"
        )


@dataclass(slots=True)
class Group:
    """Rows under one heading."""

    key: str
    title: str
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Page:
    groups: list[Group]
    rows: list[Row]
    next: str  # the address of the next page, empty at the end


def matching(*, company_id: uuid.UUID, user_id: uuid.UUID, query: Query) -> IssueQuerySet:
    """The company's issues that `query` asks for, in no order."""
    found = Issue.objects.for_company(company_id).listed()
    if query.status == "open":
        found = found.filter(status__in=OPEN)
    elif query.status != "all":
        found = found.filter(status=query.status)
    if query.assignee == "me":
        found = found.filter(assignee_user_id=user_id)
    elif query.assignee == "nobody":
        found = found.filter(assignee_agent=None, assignee_user=None)
    elif query.assignee:
        agent = _uuid(query.assignee)
        found = found.filter(assignee_agent_id=agent) if agent else found.none()
    if query.priority:
        found = found.filter(priority=Priority.labels.index(query.priority))
    if query.project:
        project = _uuid(query.project)
        found = found.filter(project_id=project) if project else found.none()
    if query.q:
        found = found.filter(Q(title__icontains=query.q) | Q(identifier__iexact=query.q))
    return found


def page(*, company: Company, user_id: uuid.UUID, query: Query, now: datetime) -> Page:
    """One page of the list, grouped and ordered as asked."""
    found = matching(company_id=company.id, user_id=user_id, query=query)
    by_status = query.group == "status" and query.sort == "priority"
    keys, values = _keys_by_status(found, query) if by_status else _keys(found, query)
    way = "ASC" if SORTS[query.sort][1] else "DESC"
    order = f"g, s {way}, id DESC"
    records = lines.records(keys, values, order=order, limit=PAGE + 1) if keys else []
    more = len(records) > PAGE
    rows = lines.of(records[:PAGE], company=company, now=now)
    groups: list[Group] = []
    for row in rows:
        key, title = _heading(query.group, row)
        if not groups or groups[-1].key != key:
            groups.append(Group(key, title))
        groups[-1].rows.append(row)
    last = _cursor(records[PAGE - 1]) if more else ""
    return Page(groups, rows, query.address(after=last) if more else "")


def _keys(found: IssueQuerySet, query: Query) -> Keys:
    """The issues of a page, in any group and order."""
    column, ascending = SORTS[query.sort]
    found = _after(found.annotate(g=_group_key(query.group), s=F(column)), query)
    order = ("g", "s" if ascending else "-s", "-id")
    return _sql(found.order_by(*order).values(*KEY)[: PAGE + 1])


def _keys_by_status(found: IssueQuerySet, query: Query) -> Keys:
    """The issues of a page by status and priority, the usual order: of each status the first ones.

    Each part is the beginning of an index (`issue_on_board`); to sort by the rank of a status
    would read everything that is open.
    """
    wanted = {"open": OPEN, "all": ORDER}.get(query.status, (query.status,))
    cursor = _decode(query)
    ranks = [rank for rank, status in enumerate(ORDER) if status in wanted]
    first = cursor[0] if cursor else -1
    whole = _first(found)
    parts = [_ranked(whole, ORDER[rank], rank) for rank in ranks if rank > first]
    if cursor and first in ranks:
        _, s, last = cursor
        rest = found.filter(priority__gte=s).exclude(priority=s, id__gte=last)
        parts.append(_ranked(_first(rest), ORDER[first], first))
    return _union(parts)


def _first(found: IssueQuerySet, limit: int = PAGE + 1, *order: str) -> Keys:
    """The first issues of one status, which `_ranked` fills in: six parts that are alike are
    written once."""
    part = found.filter(status=_STATUS).order_by(*(order or ("priority", "-id")))
    return _sql(part.values("priority", "id")[:limit])


def _ranked(part: Keys, status: str, rank: int) -> Keys:
    statement, values = part
    if not statement:
        return part
    values = [status if value == _STATUS else value for value in values]
    # A number of ours and a statement that Django wrote: what a caller said is in the values.
    return f"SELECT {rank} AS g, p.priority AS s, p.id FROM ({statement}) AS p", values  # noqa: S608


def _union(parts: list[Keys]) -> Keys:
    parts = [part for part in parts if part[0]]
    return " UNION ALL ".join(part for part, _ in parts), [v for _, values in parts for v in values]


def _sql(found: Any) -> Keys:
    """The statement of a queryset, empty when it is known to find nothing."""
    try:
        statement, values = found.query.sql_with_params()
    except EmptyResultSet:
        return "", []
    return statement, list(values)


def board(
    *, company: Company, user_id: uuid.UUID, query: Query, now: datetime
) -> list[tuple[Group, int]]:
    """Columns of at most ten cards, each with how many there are. Two queries for all columns.

    The weightiest come first and of those the newest; what is done has no priority any more: the
    latest first.
    """
    found = matching(company_id=company.id, user_id=user_id, query=replace(query, status="all"))
    totals = dict(
        found.filter(status__in=COLUMNS).order_by().values_list("status").annotate(n=Count("*"))
    )
    first, latest = _first(found, COLUMN), _first(found, COLUMN, "-updated_at", "-id")
    keys, values = _union(
        [
            _ranked(latest if status == Issue.Status.DONE else first, status, rank)
            for rank, status in enumerate(COLUMNS)
        ]
    )
    limit = COLUMN * len(COLUMNS)
    records = lines.records(keys, values, order="s, id DESC", limit=limit) if keys else []
    groups = {status: Group(status, status) for status in COLUMNS}
    for row in lines.of(records, company=company, now=now):
        groups[row.status].rows.append(row)
    groups[Issue.Status.DONE].rows.sort(key=lambda row: (row.updated_at, row.id), reverse=True)
    return [(groups[status], totals.get(status, 0)) for status in COLUMNS]


def _group_key(group: str) -> Any:
    if group == "status":
        whens = [When(status=status, then=Value(rank)) for rank, status in enumerate(ORDER)]
        return Case(*whens, default=Value(99), output_field=IntegerField())
    if group == "priority":
        return F("priority")
    if group == "assignee":
        return Coalesce(
            "assignee_agent__name", "assignee_user__email", Value("~"), output_field=CharField()
        )
    return Value(0)


def _heading(group: str, row: Row) -> tuple[str, str]:
    if group == "status":
        return row.status, row.status
    if group == "priority":
        name = str(Priority(row.priority).label)
        return name, name
    if group == "assignee":
        return row.assignee, row.assignee or "Nobody"
    return "", ""


def _cursor(record: Record) -> str:
    packed = orjson.dumps([record.g, record.s, str(record.id)])
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def _after(found: IssueQuerySet, query: Query) -> IssueQuerySet:
    """What comes after the row the cursor names."""
    cursor = _decode(query)
    if cursor is None:
        return found
    g, s, last = cursor
    beyond = Q(g=g, s__gt=s) if SORTS[query.sort][1] else Q(g=g, s__lt=s)
    return found.filter(Q(g__gt=g) | beyond | Q(g=g, s=s, id__lt=last))


def _decode(query: Query) -> tuple[Any, Any, uuid.UUID] | None:
    """Group, sort value and id of the last row seen; None for a broken cursor: the first page."""
    if not query.after:
        return None
    try:
        padded = query.after + "=" * (-len(query.after) % 4)
        g, s, key = orjson.loads(base64.urlsafe_b64decode(padded))
        last = uuid.UUID(key)
        if query.sort != "priority":
            s = moments.in_utc(datetime.fromisoformat(s))
    except (ValueError, TypeError, AttributeError):
        return None
    group_type = str if query.group == "assignee" else int
    if type(g) is not group_type or type(s) not in (int, datetime):
        return None
    return g, s, last


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
