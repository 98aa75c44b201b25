"""`{% load spending %}`: what agents spent this month, for pages of lower floors that show it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django import template
from django.utils import timezone

from billing import totals
from billing.models import Scope, Spend, Window
from companies.format import money
from companies.models import Company

register = template.Library()


@dataclass(frozen=True, slots=True)
class Month:
    """An agent's month beside its hard limit, in micro-dollars."""

    spent_micros: int
    limit_micros: int | None
    unpriced_events: int

    @property
    def fraction(self) -> float:
        return self.spent_micros / self.limit_micros if self.limit_micros else 0.0

    @property
    def title(self) -> str:
        return f"{money(self.spent_micros)} of {money(self.limit_micros)}"


@register.simple_tag
def agent_spend(company: Company) -> dict[uuid.UUID, Month]:
    """This month by agent, in one query over running totals. Use as `{% agent_spend c as x %}`."""
    now = timezone.now()
    rows = Spend.objects.for_company(company.id).filter(
        scope=Scope.AGENT,
        window=Window.MONTH,
        period_start=totals.period_start(Window.MONTH, now),
    )
    return {
        row.scope_id: Month(row.spent_micros, row.limit_micros, row.unpriced_events) for row in rows
    }


@register.filter
def of(months: dict[uuid.UUID, Month], agent_id: uuid.UUID) -> Month | None:
    """One agent's month, None when it spent nothing."""
    return months.get(agent_id)
