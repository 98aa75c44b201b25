"""What was spent, for pages and the API. Reads running totals and the roll-up, and the ledger where
those do not tell (issues, goals, codes, runs), always within one company. All amounts are
micro-dollars; months and days are UTC.

Unpriced calls are counted apart everywhere: an unknown cost is never shown as 0.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db import connections
from django.db.models import Count, Max, Q, Sum
from django.db.models.functions import Coalesce

from agents.models import Agent, HeartbeatRun
from billing import replica, totals
from billing.models import Budget, CostEvent, DayCost, Reservation, Scope, Spend, Window
from companies import format, partitions, wire
from companies.models import Company, Goal, Project


@dataclass(frozen=True, slots=True)
class Summary:
    """A company's period in one line."""

    spent_micros: int
    reserved_micros: int
    events: int
    unpriced_events: int
    tokens: int
    limit_micros: int | None

    @property
    def known_micros(self) -> int | None:
        """None while no call of it has a known price."""
        return wire.known(self.spent_micros, self.unpriced_events)


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a breakdown. `id` is None for what belongs to nobody."""

    id: uuid.UUID | None
    name: str
    spent_micros: int
    events: int
    unpriced_events: int
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    provider: str = ""
    last_at: datetime | None = None

    @property
    def known_micros(self) -> int | None:
        """None while no call of it has a known price."""
        return wire.known(self.spent_micros, self.unpriced_events)


@dataclass(frozen=True, slots=True)
class Limit:
    """A budget beside what was spent of it in its current period."""

    budget: Budget
    name: str
    spent_micros: int
    reserved_micros: int
    tokens: int
    resets_at: datetime | None
    unpriced_events: int = 0

    @property
    def percent(self) -> int:
        """Of the limit, as shown; a limit of 0 is always used up."""
        return format.share(self.spent_micros, self.budget.limit_micros)

    @property
    def state(self) -> str:
        if self.percent >= 100:
            return "reached" if self.budget.is_hard else "over"
        # By the amounts: what is shown may be rounded up to a mark that is not passed.
        mark = self.budget.limit_micros * self.budget.warn_percent
        return "warning" if self.spent_micros * 100 >= mark else "ok"


def month(*, company_id: uuid.UUID, now: datetime) -> Summary:
    """The company's current month."""
    return window(company_id=company_id, scope=Scope.COMPANY, scope_id=company_id, now=now)


def window(
    *,
    company_id: uuid.UUID,
    scope: str,
    scope_id: uuid.UUID,
    now: datetime,
    window: str = Window.MONTH,
) -> Summary:
    """The current period of one scope; zeros when nothing was spent."""
    total = Spend.objects.for_company(company_id).filter(
        scope=scope,
        scope_id=scope_id,
        window=window,
        period_start=totals.period_start(window, now),
    )
    row = next(iter(total.order_by()), None)  # by the router, unlike `rows`
    return _summary(row)


def _summary(row: Spend | None) -> Summary:
    if row is None:
        return Summary(0, 0, 0, 0, 0, None)
    return Summary(
        row.spent_micros,
        row.reserved_micros,
        row.events,
        row.unpriced_events,
        row.tokens,
        row.limit_micros,
    )


def month_by_day(
    *, company_id: uuid.UUID, now: datetime, days: int
) -> tuple[Summary, list[tuple[date, int]]]:
    """The company's current month and the spend of its last `days` days, today last, at once."""
    today = now.astimezone(UTC).date()
    wanted = Q(window=Window.MONTH, period_start=totals.period_start(Window.MONTH, now))
    first = today - timedelta(days=days - 1)
    wanted |= Q(window=Window.DAY, period_start__range=(first, today))
    rows = list(
        Spend.objects.for_company(company_id)
        .filter(wanted, scope=Scope.COMPANY, scope_id=company_id)
        .order_by()
    )
    spent = {row.period_start: row.spent_micros for row in rows if row.window == Window.DAY}
    series = (first + timedelta(days=number) for number in range(days))
    month = next((row for row in rows if row.window == Window.MONTH), None)
    return _summary(month), [(day, spent.get(day, 0)) for day in series]


def by_agent(*, company_id: uuid.UUID, now: datetime) -> list[Line]:
    """The current month by agent, dearest first."""
    names = dict(Agent.objects.for_company(company_id).values_list("id", "name"))
    return _by(company_id, now, "agent_id", names, "")


def by_project(*, company_id: uuid.UUID, now: datetime) -> list[Line]:
    """The current month by project, dearest first; what had none in a row of its own."""
    names = dict(Project.objects.for_company(company_id).values_list("id", "name"))
    return _by(company_id, now, "project_id", names, "No project")


def by_model(*, company_id: uuid.UUID, now: datetime) -> list[Line]:
    """The current month by provider and model, dearest first."""
    rows = _grouped(company_id, now, "provider", "model")
    return [_line(row, None, row["model"], provider=row["provider"]) for row in rows]


def by_provider(*, company_id: uuid.UUID, now: datetime) -> list[Line]:
    """The current month by provider, dearest first."""
    rows = _grouped(company_id, now, "provider")
    return [_line(row, None, row["provider"], provider=row["provider"]) for row in rows]


def by_biller(*, company_id: uuid.UUID, now: datetime) -> list[Line]:
    """The current month by who sends the bill, dearest first; read from the ledger."""
    rows = _booked(company_id, now, "biller")
    return [_line(row, None, row["biller"]) for row in rows]


def by_issue(*, company_id: uuid.UUID, issue_id: uuid.UUID) -> Line:
    """All that one issue ever cost."""
    row = (
        CostEvent.objects.for_company(company_id)
        .filter(issue_id=issue_id)
        .order_by()
        .aggregate(**_EVENT_SUMS)
    )
    return _line(row, issue_id, "")


def by_goal(*, company_id: uuid.UUID, now: datetime) -> list[Line]:
    """The current month by goal, dearest first; read from the ledger."""
    names = dict(Goal.objects.for_company(company_id).values_list("id", "title"))
    return _from_ledger(company_id, now, "goal_id", names, "No goal")


def by_billing_code(*, company_id: uuid.UUID, now: datetime) -> list[Line]:
    """The current month by billing code, dearest first; read from the ledger."""
    rows = _booked(company_id, now, "billing_code")
    return [_line(row, None, row["billing_code"] or "No code") for row in rows]


def by_run(*, company_id: uuid.UUID, agent_id: uuid.UUID, now: datetime) -> list[Line]:
    """One agent's runs of the current month, dearest first; `name` is the run's reason."""
    rows = _booked(company_id, now, "run_id", agent_id=agent_id)
    ids = [row["run_id"] for row in rows]
    names = dict(HeartbeatRun.objects.filter(id__in=ids).values_list("id", "reason"))
    return [_line(row, row["run_id"], names.get(row["run_id"], "No run")) for row in rows]


_TREE = """
WITH RECURSIVE tree AS (
    SELECT id FROM issues_issue WHERE id = %s AND company_id = %s
    UNION SELECT child.id FROM issues_issue child JOIN tree ON child.parent_id = tree.id)
SELECT id FROM tree
"""


def by_issue_tree(*, company_id: uuid.UUID, issue_id: uuid.UUID) -> Line:
    """All that an issue and everything below it ever cost."""
    with connections[replica.alias()].cursor() as cursor:
        cursor.execute(_TREE, [issue_id, company_id])
        ids = [row[0] for row in cursor.fetchall()]
    row = (
        CostEvent.objects.for_company(company_id)
        .filter(issue_id__in=ids)
        .order_by()
        .aggregate(**_EVENT_SUMS)
    )
    return _line(row, issue_id, "")


def daily(*, company_id: uuid.UUID, now: datetime, days: int = 30) -> list[tuple[date, int]]:
    """Spend of the last `days` days, today last, days without spend as 0."""
    return _series(company_id, Scope.COMPANY, company_id, now, days)


def agent_daily(
    *, company_id: uuid.UUID, agent_id: uuid.UUID, now: datetime, days: int = 30
) -> list[tuple[date, int]]:
    """The same for one agent."""
    return _series(company_id, Scope.AGENT, agent_id, now, days)


def days(
    *, company_id: uuid.UUID, scope: str, scope_id: uuid.UUID, now: datetime, days: int
) -> list[tuple[date, int]]:
    """The same for any scope."""
    return _series(company_id, scope, scope_id, now, days)


def _series(
    company_id: uuid.UUID, scope: str, scope_id: uuid.UUID, now: datetime, days: int
) -> list[tuple[date, int]]:
    today = now.astimezone(UTC).date()
    first = today - timedelta(days=days - 1)
    spent = dict(
        Spend.objects.for_company(company_id)
        .filter(
            scope=scope,
            scope_id=scope_id,
            window=Window.DAY,
            period_start__range=(first, today),
        )
        .values_list("period_start", "spent_micros")
    )
    series = (first + timedelta(days=number) for number in range(days))
    return [(day, spent.get(day, 0)) for day in series]


def limits(*, company: Company, now: datetime) -> list[Limit]:
    """Every budget of a company with what was spent of it, company first."""
    budgets = list(Budget.objects.for_company(company.id))
    periods = Q()
    for each in totals.WINDOWS:
        periods |= Q(window=each, period_start=totals.period_start(each, now))
    mine = Spend.objects.for_company(company.id).filter(
        periods, scope_id__in=[budget.scope_id for budget in budgets]
    )
    spends = {(row.scope, row.scope_id, row.window): row for row in mine} if budgets else {}
    names = _names(company, [budget.scope_id for budget in budgets]) if budgets else {}
    found = []
    for budget in budgets:
        spend = spends.get((budget.scope, budget.scope_id, budget.window))
        found.append(
            Limit(
                budget=budget,
                name=names.get(budget.scope_id, ""),
                spent_micros=spend.spent_micros if spend else 0,
                reserved_micros=spend.reserved_micros if spend else 0,
                tokens=spend.tokens if spend else 0,
                resets_at=_resets_at(budget.window, now),
                unpriced_events=spend.unpriced_events if spend else 0,
            )
        )
    wide_first = {Scope.COMPANY: 0, Scope.PROJECT: 1, Scope.AGENT: 2}
    return sorted(found, key=lambda limit: (wide_first[Scope(limit.budget.scope)], limit.name))


def _names(company: Company, ids: list[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Of these agents and projects, and of the company."""
    agents = Agent.objects.for_company(company.id).filter(id__in=ids).order_by()
    projects = Project.objects.for_company(company.id).filter(id__in=ids).order_by()
    found = agents.values_list("id", "name").union(projects.values_list("id", "name"))
    return {company.id: company.name} | dict(found)


def _resets_at(window: str, now: datetime) -> datetime | None:
    if window in (Window.LIFETIME, Window.RUN):
        return None
    if window == Window.MONTH:
        return partitions.next_month(partitions.month_start(now))
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today + timedelta(days=1)


def kept_aside(*, company_id: uuid.UUID, limit: int = 100) -> list[Reservation]:
    """What is kept aside now, oldest first; `unknown` ones wait for a receipt or a decision."""
    held = Reservation.objects.for_company(company_id).filter(state__in=Reservation.OPEN)
    return list(held.select_related("agent").order_by("granted_at", "id")[:limit])


def unknown(*, company_id: uuid.UUID) -> tuple[int, int]:
    """How many reservations of lost runs wait for a decision, and what they keep."""
    waiting = Reservation.objects.for_company(company_id).filter(state=Reservation.State.UNKNOWN)
    found = waiting.order_by().aggregate(count=Count("id"), kept=Coalesce(Sum("open_micros"), 0))
    return found["count"], int(found["kept"])


_SUMS: dict[str, Any] = {
    "spent": Coalesce(Sum("spent_micros"), 0),
    "calls": Coalesce(Sum("events"), 0),
    "unpriced": Coalesce(Sum("unpriced_events"), 0),
    "input_sum": Coalesce(Sum("input_tokens"), 0),
    "cached_sum": Coalesce(Sum("cached_tokens"), 0),
    "output_sum": Coalesce(Sum("output_tokens"), 0),
    "latest": Max("last_at"),
}
_EVENT_SUMS: dict[str, Any] = {
    "spent": Coalesce(Sum("cost_micros"), 0),
    "calls": Count("id"),
    "unpriced": Count("id", filter=Q(cost_status=CostEvent.CostStatus.UNPRICED)),
    "input_sum": Coalesce(Sum("input_tokens"), 0),
    "cached_sum": Coalesce(Sum("cache_read_tokens"), 0),
    "output_sum": Coalesce(Sum("output_tokens"), 0),
    "latest": Max("occurred_at"),
}


def _grouped(company_id: uuid.UUID, now: datetime, *columns: str) -> list[dict[str, Any]]:
    """The month's roll-up added up by these columns, dearest first."""
    start = partitions.month_start(now)
    rows = (
        DayCost.objects.for_company(company_id)
        .filter(day__gte=start.date(), day__lt=partitions.next_month(start).date())
        .order_by()
        .values(*columns)
        .annotate(**_SUMS)
    )
    return sorted(rows, key=lambda row: (-row["spent"], *(str(row[each]) for each in columns)))


def _booked(
    company_id: uuid.UUID, now: datetime, column: str, **only: uuid.UUID
) -> list[dict[str, Any]]:
    """The month's events added up by one column, dearest first."""
    start = partitions.month_start(now)
    rows = (
        CostEvent.objects.for_company(company_id)
        .filter(occurred_at__gte=start, occurred_at__lt=partitions.next_month(start), **only)
        .order_by()
        .values(column)
        .annotate(**_EVENT_SUMS)
    )
    return sorted(rows, key=lambda row: (-row["spent"], str(row[column])))


def _from_ledger(
    company_id: uuid.UUID, now: datetime, column: str, names: dict[uuid.UUID, str], nobody: str
) -> list[Line]:
    rows = _booked(company_id, now, column)
    return [_line(row, row[column], names.get(row[column], nobody)) for row in rows]


def _by(
    company_id: uuid.UUID, now: datetime, column: str, names: dict[uuid.UUID, str], nobody: str
) -> list[Line]:
    rows = _grouped(company_id, now, column)
    return [_line(row, row[column], names.get(row[column], nobody)) for row in rows]


def _line(row: dict[str, Any], key: uuid.UUID | None, name: str, provider: str = "") -> Line:
    return Line(
        id=key,
        name=name,
        spent_micros=int(row["spent"]),
        events=row["calls"],
        unpriced_events=row["unpriced"],
        input_tokens=int(row["input_sum"]),
        cached_tokens=int(row["cached_sum"]),
        output_tokens=int(row["output_sum"]),
        provider=provider,
        last_at=row["latest"],
    )
