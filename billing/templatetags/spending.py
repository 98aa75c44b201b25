"""`{% load spending %}`: what agents spent this month, for pages of lower floors that show it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from django import template
from django.db.models import Sum
from django.template import Context
from django.utils import timezone
from django.utils.safestring import SafeString

from agents.directory import RunRow
from agents.models import Agent, HeartbeatRun
from agents.views import rows
from billing import totals
from billing.models import Budget, Reservation, Scope, Spend, Window
from companies.format import money
from companies.models import Company

register = template.Library()

T = TypeVar("T")
# Nothing waits for a receipt of these: they go on, or every call of theirs has one.
CLEAR = (*HeartbeatRun.LIVE, HeartbeatRun.Status.SUCCEEDED)


@dataclass(frozen=True, slots=True)
class Month:
    """An agent's month beside its hard limit, in micro-dollars."""

    spent_micros: int
    limit_micros: int | None
    unpriced_events: int

    @property
    def fraction(self) -> float:
        if self.limit_micros == 0:  # always used up
            return 1.0
        return self.spent_micros / self.limit_micros if self.limit_micros else 0.0

    @property
    def title(self) -> str:
        return f"{money(self.spent_micros)} of {money(self.limit_micros)}"


@register.simple_tag
def agent_spend(company: Company) -> dict[uuid.UUID, Month]:
    """This month by agent, in one query over running totals. Use as `{% agent_spend c as x %}`."""
    now = timezone.now()
    found = Spend.objects.for_company(company.id).filter(
        scope=Scope.AGENT,
        window=Window.MONTH,
        period_start=totals.period_start(Window.MONTH, now),
    )
    return {
        row.scope_id: Month(row.spent_micros, row.limit_micros, row.unpriced_events)
        for row in found
    }


@dataclass(frozen=True, slots=True)
class Own:
    """The month of an agent, and its other limits as pairs of a period's name and the period."""

    month: Month
    others: list[tuple[str, Month]]
    run_limit_micros: int | None

    @property
    def is_limited(self) -> bool:
        """Any limit of its own stands, whatever its period."""
        any_period = self.month.limit_micros is not None or bool(self.others)
        return any_period or self.run_limit_micros is not None


PERIODS = {Window.DAY: "today", Window.LIFETIME: "in all"}


@register.simple_tag
def agent_limits(agent: Agent) -> Own:
    """An agent's month and every limit of its own, those that only warn and its daily cap with
    them; two queries. Use as `{% agent_limits agent as x %}`."""
    mine = Budget.objects.for_company(agent.company_id).filter(scope=Scope.AGENT, scope_id=agent.id)
    budgets = dict(mine.values_list("window", "limit_micros"))
    periods = {}
    for each in totals.standing([(Scope.AGENT, agent.id)], timezone.now()):
        limit = budgets.get(each.window) if each.limit_micros is None else each.limit_micros
        periods[each.window] = Month(each.spent_micros, limit, each.unpriced_events)
    others = [
        (words, periods[window])
        for window, words in PERIODS.items()
        if periods[window].limit_micros is not None
    ]
    return Own(periods[Window.MONTH], others, budgets.get(Window.RUN))


@register.simple_tag
def kept_of(
    company: Company, runs: HeartbeatRun | Sequence[HeartbeatRun | RunRow]
) -> dict[uuid.UUID, int]:
    """What still waits for a receipt of these runs, in micro-dollars by run: one query, none when
    no run ended in the dark. Use as `{% kept_of company runs as x %}`."""
    shown = [runs] if isinstance(runs, HeartbeatRun) else runs
    ended = [run.id for run in shown if run.status not in CLEAR]
    if not ended:
        return {}
    waiting = Reservation.objects.for_company(company.id).filter(
        run_id__in=ended, state=Reservation.State.UNKNOWN
    )
    sums = waiting.order_by().values("run_id").annotate(kept=Sum("open_micros"))
    return dict(sums.values_list("run_id", "kept"))


@register.simple_tag(takes_context=True)
def run_line(context: Context, row: RunRow, kept: Mapping[uuid.UUID, int]) -> SafeString:
    """A run's line with what `kept_of` says about it."""
    return rows.line(row, base=context["base"], now=timezone.now(), kept=kept.get(row.id, 0))


@register.filter
def of(known: Mapping[uuid.UUID, T] | None, key: uuid.UUID) -> T | int:
    """What is known of an agent or run; 0 when nothing is."""
    return (known or {}).get(key, 0)
