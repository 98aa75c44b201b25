"""What it will come to: the month's end with a band, the days a budget lasts, unusual days, and
what an issue may cost before it is assigned.

Plain statistics over daily sums: the mean of the same weekday over the last four weeks, a band of
four in five, nothing where the past is too short to speak. All amounts are micro-dollars.
"""

from __future__ import annotations

import calendar
import statistics
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db.models import Sum
from django.db.models.functions import Coalesce

from billing import reports
from billing.models import CostEvent, Scope, Window
from companies import format
from issues.models import Issue

LOOK_BACK_DAYS = 28
LEAST_DAYS = 3  # of history, below which any number would be noise
WEEKDAYS_AFTER_DAYS = 14  # of history, from which weekdays are told apart
FOUR_IN_FIVE = 1.2816  # standard deviations around the mean
UNUSUAL = 3.0  # standard deviations above the two weeks before
UNUSUAL_DAYS = 30  # that are looked at
LEAST_PAST_DAYS = 7  # before the first day that can be unusual
SIMILAR_ISSUES = 20
LEAST_ISSUES = 3


@dataclass(frozen=True, slots=True)
class Forecast:
    """Where the month ends, four times in five between `low_micros` and `high_micros`.

    `days_left` is how long the month's budget lasts at this pace, None without a hard limit or
    spend; `basis_days` how many days of the past it is drawn from.
    """

    expected_micros: int
    low_micros: int
    high_micros: int
    days_left: float | None
    basis_days: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an issue may cost: the middle of similar ones and the range of eight in ten.

    `hit_percent` is how often such a range was right for the issues before, None when too few.
    """

    expected_micros: int
    low_micros: int
    high_micros: int
    basis_issues: int
    hit_percent: int | None


Series = Sequence[tuple[date, int]]  # days in order, today last, with what each cost


def month_end(
    *,
    company_id: uuid.UUID,
    now: datetime,
    scope: str = Scope.COMPANY,
    scope_id: uuid.UUID | None = None,
) -> Forecast | None:
    """The forecast of a scope's current month (by default the company's); None while its past is
    too short."""
    scope_id = scope_id or company_id
    series = reports.days(
        company_id=company_id, scope=scope, scope_id=scope_id, now=now, days=LOOK_BACK_DAYS + 1
    )
    so_far = reports.window(
        company_id=company_id, scope=scope, scope_id=scope_id, window=Window.MONTH, now=now
    )
    return month_end_of(series, so_far)


def month_end_of(series: Series, so_far: reports.Summary) -> Forecast | None:
    """The same of what is known already: at least the last `LOOK_BACK_DAYS` and today, and the
    month so far."""
    series = series[-LOOK_BACK_DAYS - 1 :]
    past, (today, spent_today) = _since_first(series[:-1]), series[-1]
    if len(past) < LEAST_DAYS:
        return None
    rest = _days_after(today)
    typical = _typical(past)
    expected_rest = max(0, typical[today.weekday()] - spent_today)
    expected_rest += sum(typical[day.weekday()] for day in rest)
    deviation = statistics.stdev(spent - typical[day.weekday()] for day, spent in past)
    margin = FOUR_IN_FIVE * deviation * len([today, *rest]) ** 0.5
    left = None
    daily = statistics.fmean(typical.values())
    if so_far.limit_micros is not None and daily > 0:
        left = max(0.0, (so_far.limit_micros - so_far.spent_micros) / daily)
    return Forecast(
        expected_micros=so_far.spent_micros + round(expected_rest),
        low_micros=so_far.spent_micros + max(0, round(expected_rest - margin)),
        high_micros=so_far.spent_micros + round(expected_rest + margin),
        days_left=left,
        basis_days=len(past),
    )


def unusual_days(
    *,
    company_id: uuid.UUID,
    now: datetime,
    days: int = UNUSUAL_DAYS,
    scope: str = Scope.COMPANY,
    scope_id: uuid.UUID | None = None,
) -> list[date]:
    """Days that cost far more than the two weeks before them."""
    series = reports.days(
        company_id=company_id,
        scope=scope,
        scope_id=scope_id or company_id,
        now=now,
        days=days + WEEKDAYS_AFTER_DAYS,
    )
    return unusual_days_of(series)


def unusual_days_of(series: Series) -> list[date]:
    """The same of a series whose first `WEEKDAYS_AFTER_DAYS` are only looked back at."""
    found = []
    # Where the past is short, everything is more than before.
    first = len(series) - len(_since_first(series))
    for position in range(max(WEEKDAYS_AFTER_DAYS, first + LEAST_PAST_DAYS), len(series)):
        before = [spent for _, spent in series[position - WEEKDAYS_AFTER_DAYS : position]]
        day, spent = series[position]
        mean, deviation = statistics.fmean(before), statistics.pstdev(before)
        # A quiet past has no deviation; then twice the mean is unusual enough.
        if mean > 0 and spent > mean + max(UNUSUAL * deviation, mean):
            found.append(day)
    return found


def issue_cost(*, issue: Issue, agent_id: uuid.UUID) -> Estimate | None:
    """What an issue may cost with this agent, from its last finished issues, those of the same
    project if there are enough; None when it has finished too few."""
    costs = _costs(issue, agent_id, same_project=True)
    if len(costs) < LEAST_ISSUES:
        costs = _costs(issue, agent_id, same_project=False)
    if len(costs) < LEAST_ISSUES:
        return None
    low, middle, high = _range(costs)
    return Estimate(middle, low, high, len(costs), _hit_percent(costs))


# --- inside ------------------------------------------------------------------------------------


def _since_first(series: Sequence[tuple[date, int]]) -> list[tuple[date, int]]:
    """From the first day that cost something: a company that starts has no idle past."""
    first = next((position for position, (_, spent) in enumerate(series) if spent), len(series))
    return list(series[first:])


def _days_after(today: date) -> list[date]:
    """The days of the month that are still to come."""
    last = calendar.monthrange(today.year, today.month)[1]
    return [today + timedelta(days=number) for number in range(1, last - today.day + 1)]


def _typical(past: Sequence[tuple[date, int]]) -> dict[int, float]:
    """What each weekday usually costs; all the same while the past is short."""
    overall = statistics.fmean(spent for _, spent in past)
    if len(past) < WEEKDAYS_AFTER_DAYS:
        return dict.fromkeys(range(7), overall)
    return {
        weekday: statistics.fmean(
            [spent for day, spent in past if day.weekday() == weekday] or [overall]
        )
        for weekday in range(7)
    }


def _costs(issue: Issue, agent_id: uuid.UUID, *, same_project: bool) -> list[int]:
    """What the agent's last finished issues cost, oldest first."""
    finished = (
        Issue.objects.for_company(issue.company_id)
        .filter(assignee_agent_id=agent_id, status=Issue.Status.DONE)
        .exclude(id=issue.id)
        .order_by("-completed_at", "-id")
    )
    if same_project and issue.project_id is not None:
        finished = finished.filter(project_id=issue.project_id)
    elif same_project:
        finished = finished.filter(project_id__isnull=True)
    ids = list(finished.values_list("id", flat=True)[: 2 * SIMILAR_ISSUES])
    booked = dict(
        CostEvent.objects.for_company(issue.company_id)
        .filter(issue_id__in=ids)
        .order_by()
        .values_list("issue_id")
        .annotate(spent=Coalesce(Sum("cost_micros"), 0))
    )
    return [int(booked[each]) for each in reversed(ids) if each in booked]


def _range(costs: Sequence[int]) -> tuple[int, int, int]:
    """Low, middle and high of the last issues: the tenths at both ends are left out."""
    recent = sorted(costs[-SIMILAR_ISSUES:])
    last = len(recent) - 1
    return recent[last // 10], round(statistics.median(recent)), recent[last - last // 10]


def _hit_percent(costs: Sequence[int]) -> int | None:
    """For each issue: was it inside the range that the ones before it would have given?"""
    hits = []
    for position in range(LEAST_ISSUES, len(costs)):
        low, _, high = _range(costs[:position])
        hits.append(low <= costs[position] <= high)
    return format.share(sum(hits), len(hits)) if len(hits) >= LEAST_ISSUES else None
