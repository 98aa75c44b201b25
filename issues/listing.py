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
from django.db.models import (
    Case,
    CharField,
    Count,
    F,
    Func,
    IntegerField,
    OuterRef,
    Q,
    Subquery,
    Sum,
    Value,
    When,
    Window,
)
from django.db.models.functions import Coalesce, RowNumber

from agents.models import HeartbeatRun
from companies.models import Company
from issues import why
from issues.models import Issue, IssueQuerySet, Priority
from issues.why import Chip

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


@dataclass(frozen=True, slots=True)
class Row:
    """What one line of an issue list shows. `cost_micros` None: nothing spent so far."""

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
    chip: Chip | None = None  # why it is not running
    children: tuple[int, int] | None = None  # done, all


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


FIELDS = (
    "company_id",
    "identifier",
    "number",
    "title",
    "status",
    "priority",
    "updated_at",
    "created_at",
    "blocked_reason",
    "assignee_agent__name",
    "assignee_user__name",
    "assignee_user__email",
)
# What says no more than the status beside it.
PLAIN = frozenset({"backlog"})


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
    column, ascending = SORTS[query.sort]
    found = matching(company_id=company.id, user_id=user_id, query=query).annotate(
        g=_group_key(query.group), s=F(column)
    )
    found = _after(found, query)
    order = ("g", "s" if ascending else "-s", "-id")
    records = list(slim(found).order_by(*order)[: PAGE + 1])
    more = len(records) > PAGE
    records = records[:PAGE]
    rows = rows_of(company=company, issues=records, now=now)
    groups: list[Group] = []
    for row in rows:
        key, title = _heading(query.group, row)
        if not groups or groups[-1].key != key:
            groups.append(Group(key, title))
        groups[-1].rows.append(row)
    last = _cursor(records[-1]) if more else ""
    return Page(groups, rows, query.address(after=last) if more else "")


def board(
    *, company: Company, user_id: uuid.UUID, query: Query, now: datetime
) -> list[tuple[Group, int]]:
    """Columns of at most ten cards, each with how many there are. One query for all columns."""
    found = matching(company_id=company.id, user_id=user_id, query=replace(query, status="all"))
    # What is done has no priority any more: the latest first.
    weight = Case(
        When(status=Issue.Status.DONE, then=Value(0)),
        default=F("priority"),
        output_field=IntegerField(),
    )
    ordered = [weight.asc(), F("updated_at").desc(), F("id").desc()]
    cards = (
        slim(found.filter(status__in=COLUMNS))
        .annotate(
            place=Window(RowNumber(), partition_by="status", order_by=ordered),
            column_total=Window(Count("id"), partition_by="status"),
        )
        .filter(place__lte=COLUMN)
        .order_by("place", "id")
    )
    records: list[Any] = list(cards)
    totals = {record.status: record.column_total for record in records}
    groups = {status: Group(status, status) for status in COLUMNS}
    for row in rows_of(company=company, issues=records, now=now):
        groups[row.status].rows.append(row)
    return [(groups[status], totals.get(status, 0)) for status in COLUMNS]


def slim(found: IssueQuerySet) -> IssueQuerySet:
    """Only what a row shows: a description may be long. Sub-issues are counted on the way."""
    children = Issue.objects.filter(parent_id=OuterRef("id")).order_by()
    return (
        found.select_related("assignee_agent", "assignee_user")
        .only(*FIELDS)
        .annotate(
            children_all=_count(children),
            children_done=_count(children.filter(status__in=Issue.CLOSED)),
        )
    )


def _count(found: IssueQuerySet) -> Subquery:
    counted = found.annotate(n=Func(Value(1), function="count")).values("n")
    return Subquery(counted, output_field=IntegerField())


def rows_of(*, company: Company, issues: list[Any], now: datetime) -> list[Row]:
    """Rows with what lies outside the issue itself: cost, a live run, why it waits."""
    for issue in issues:
        issue.company = company
    runs = {
        issue: (cost, live)
        for issue, cost, live in HeartbeatRun.objects.for_company(company.id)
        .filter(issue_id__in=[issue.id for issue in issues])
        .order_by()
        .values_list("issue_id")
        .annotate(
            cost=Sum("cost_micros"),
            live=Count("id", filter=Q(status=HeartbeatRun.Status.RUNNING)),
        )
    }
    chips = why.reasons(issues, now=now)
    rows = []
    for issue in issues:
        cost, live = runs.get(issue.id, (None, 0))
        agent, person = issue.assignee_agent, issue.assignee_user
        reasons = [] if live else [c for c in chips[issue.id] if c.code not in PLAIN]
        rows.append(
            Row(
                id=issue.id,
                identifier=issue.identifier,
                title=issue.title,
                status=issue.status,
                priority=issue.priority,
                updated_at=issue.updated_at,
                assignee=str(agent or person or ""),
                assignee_kind="agent" if agent else "user",
                running=bool(live),
                cost_micros=cost,
                chip=reasons[0] if reasons else None,
                children=(issue.children_done, issue.children_all),
            )
        )
    return rows


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


def _cursor(record: Any) -> str:
    packed = orjson.dumps([record.g, record.s, str(record.id)])
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def _after(found: IssueQuerySet, query: Query) -> IssueQuerySet:
    """What comes after the row the cursor names; a broken cursor is the first page."""
    if not query.after:
        return found
    ascending = SORTS[query.sort][1]
    try:
        padded = query.after + "=" * (-len(query.after) % 4)
        g, s, key = orjson.loads(base64.urlsafe_b64decode(padded))
        last = uuid.UUID(key)
        if query.sort != "priority":
            s = datetime.fromisoformat(s)
    except (ValueError, TypeError, AttributeError):
        return found
    group_type = str if query.group == "assignee" else int
    if type(g) is not group_type or type(s) not in (int, datetime):
        return found
    if isinstance(s, datetime) and s.tzinfo is None:
        return found
    beyond = Q(g=g, s__gt=s) if ascending else Q(g=g, s__lt=s)
    return found.filter(Q(g__gt=g) | beyond | Q(g=g, s=s, id__lt=last))


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
