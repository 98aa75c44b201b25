"""The limit of what an agent creates, with several of its runs at once."""

from __future__ import annotations

from typing import Any

import pytest

from agents.models import Agent
from companies.activity import Actor
from companies.errors import RateLimited
from companies.models import Company
from issues import board, ownership
from issues.models import Issue
from tests import factories
from tests.races.threads import many

pytestmark = pytest.mark.django_db(transaction=True)


def test_runs_of_one_agent_do_not_count_past_each_other(
    monkeypatch: pytest.MonkeyPatch, acme: Company, ada: Agent
) -> None:
    monkeypatch.setattr(ownership, "MAX_CHILDREN_A_RUN", 10)
    runs = [factories.running(ada, factories.issue(acme, assignee=ada)) for _ in range(4)]

    def create(number: int) -> int:
        by, made = Actor("agent", ada.pk, "Ada", runs[number].pk), 0
        for n in range(8):
            try:
                board.create(company=acme, actor=by, title=f"Part {number}.{n}")
            except RateLimited:
                return made
            made += 1
        return made

    made: Any = many(4, create)

    assert sum(made) == 10
    assert Issue.objects.filter(created_by_agent_id=ada.pk).count() == 10
