"""What a reached limit does to agents: it holds them, so that nothing is claimed for them.

Only the three budget reasons are placed and lifted here; a person's pause is never touched.
Whether a limit is reached is read from the totals, never remembered, so that a round that is
repeated or late changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db import connection, transaction
from django.db.models import QuerySet

from agents import roster
from agents.models import Agent, Hold
from billing import totals
from billing.models import Scope, Spend
from companies import activity
from companies.models import Project
from issues.models import Issue

REASONS = {
    Scope.AGENT: Hold.Reason.AGENT_BUDGET,
    Scope.PROJECT: Hold.Reason.PROJECT_BUDGET,
    Scope.COMPANY: Hold.Reason.COMPANY_BUDGET,
}
PERIODS = {"run": "run", "day": "daily", "month": "monthly", "lifetime": "total"}


def enforce(spends: Iterable[Spend], *, now: datetime) -> bool:
    """Hold whom a reached limit concerns; true when one is. `spends` are totals as a booking
    left them; what was spent in a period that is over stops nobody now."""
    reached = [
        spend
        for spend in spends
        if is_reached(spend) and spend.period_start == totals.period_start(spend.window, now)
    ]
    for spend in reached:
        place(spend.company_id, spend.scope, spend.scope_id, spend.window, now)
    return bool(reached)


def is_reached(spend: Spend) -> bool:
    """Nothing is left of a hard limit."""
    money = spend.limit_micros is not None and spend.spent_micros >= spend.limit_micros
    tokens = spend.limit_tokens is not None and spend.tokens >= spend.limit_tokens
    return money or tokens


def review(*, company_id: uuid.UUID, scope: str, scope_id: uuid.UUID, now: datetime) -> None:
    """Place or lift the holds of one scope, as its totals stand now."""
    reached = [each for each in totals.standing([(scope, scope_id)], now) if each.is_reached]
    if reached:
        place(company_id, scope, scope_id, reached[0].window, now)
        return
    held = Hold.objects.for_company(company_id).filter(reason=REASONS[Scope(scope)])
    if scope == Scope.AGENT:
        held = held.filter(agent_id=scope_id)
    for hold in held.select_related("agent").order_by("agent_id"):
        _lift_unless_due(hold, now)


def round_(*, now: datetime) -> int:
    """Lift what is no longer due, hold who should be and is not; return how many changed."""
    changed = 0
    for hold in _placed_here().select_related("agent").order_by("agent_id", "reason"):
        with transaction.atomic():
            changed += _lift_unless_due(hold, now)
    for company_id, scope, scope_id, window in _reached(now):
        with transaction.atomic():
            changed += place(company_id, scope, scope_id, window, now)
    return changed


def place(
    company_id: uuid.UUID, scope: str, scope_id: uuid.UUID, window: str, now: datetime
) -> int:
    """Hold whom a reached limit concerns and who is not held yet; return how many."""
    reason = REASONS[Scope(scope)]
    note = f"The {scope}'s {PERIODS[window]} budget is used up."
    placed = 0
    held = set(
        Hold.objects.for_company(company_id)
        .filter(reason=reason)
        .values_list("agent_id", flat=True)
    )
    for agent in _concerned(company_id, scope, scope_id, now):
        if agent.id not in held:
            roster.hold(agent=agent, reason=reason, note=note, actor=activity.SYSTEM, now=now)
            placed += 1
    return placed


def _placed_here() -> QuerySet[Hold]:
    return Hold.objects.filter(reason__in=REASONS.values())


def _lift_unless_due(hold: Hold, now: datetime) -> bool:
    if _is_due(hold, now):
        return False
    return roster.lift(agent=hold.agent, reason=hold.reason, actor=activity.SYSTEM, now=now)


def _is_due(hold: Hold, now: datetime) -> bool:
    if hold.reason == Hold.Reason.PROJECT_BUDGET:
        return _all_work_in(hold.agent_id, _exhausted_projects(hold.company_id, now))
    of_agent = hold.reason == Hold.Reason.AGENT_BUDGET
    scope = (Scope.AGENT, hold.agent_id) if of_agent else (Scope.COMPANY, hold.company_id)
    return any(each.is_reached for each in totals.standing([scope], now))


def _concerned(
    company_id: uuid.UUID, scope: str, scope_id: uuid.UUID, now: datetime
) -> Sequence[Agent]:
    """Whom a reached limit stops, in the order in which agents are locked.

    A project's limit stops the agents that have no open work outside used-up projects; the calls
    of the others are refused one by one, so that their other work goes on.
    """
    agents = Agent.objects.for_company(company_id).exclude(status=Agent.Status.TERMINATED)
    if scope == Scope.AGENT:
        return list(agents.filter(id=scope_id))
    if scope == Scope.COMPANY:
        return list(agents.order_by("id"))
    projects = _exhausted_projects(company_id, now) | {scope_id}
    mine = agents.filter(issues__in=Issue.objects.open().filter(project_id=scope_id))
    return [each for each in mine.distinct().order_by("id") if _all_work_in(each.id, projects)]


def _exhausted_projects(company_id: uuid.UUID, now: datetime) -> set[uuid.UUID]:
    projects = Project.objects.for_company(company_id).values_list("id", flat=True)
    standing = totals.standing([(Scope.PROJECT, each) for each in projects], now)
    return {each.scope_id for each in standing if each.is_reached}


def _all_work_in(agent_id: uuid.UUID, projects: set[uuid.UUID]) -> bool:
    work = Issue.objects.open().filter(assignee_agent_id=agent_id)
    places = set(work.values_list("project_id", flat=True).distinct())
    return bool(places) and places <= projects


# Two parts, each by its index: totals with a limit, and the days of agents with a cap of their own.
_REACHED = """
SELECT DISTINCT ON (scope, scope_id) company_id, scope, scope_id, "window" FROM (
    SELECT company_id, scope, scope_id, "window" FROM billing_spend
     WHERE (limit_micros IS NOT NULL OR limit_tokens IS NOT NULL)
       AND ("window", period_start) IN (('day', %(day)s), ('month', %(month)s),
                                        ('lifetime', %(lifetime)s))
       AND (spent_micros >= limit_micros OR tokens >= limit_tokens)
    UNION ALL
    SELECT total.company_id, total.scope, total.scope_id, total."window" FROM agents_agent agent
      JOIN billing_spend total ON total.scope = 'agent' AND total.scope_id = agent.id
       AND total."window" = 'day' AND total.period_start = %(day)s
     WHERE agent.max_daily_cost_micros IS NOT NULL
       AND total.spent_micros >= agent.max_daily_cost_micros) reached
 ORDER BY scope, scope_id, "window"
"""


def _reached(now: datetime) -> list[tuple[uuid.UUID, str, uuid.UUID, str]]:
    with connection.cursor() as cursor:
        periods = {str(window): totals.period_start(window, now) for window in totals.WINDOWS}
        cursor.execute(_REACHED, periods)
        return cursor.fetchall()
