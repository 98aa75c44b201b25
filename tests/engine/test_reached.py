"""A limit that is reached starts nothing, whoever or whatever asks for it."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from agents import runs
from agents.models import Agent, HeartbeatRun, Hold
from billing import budgets
from companies import activity
from companies.models import Company
from paperclip.engine import tick
from tests import factories
from tests.billing.receipts import book
from tests.engine.conftest import until
from tests.engine.puppet import Puppet, finish

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = [
    ("issue_assigned", "assignment"),
    ("issue_comment_mentioned", "automation"),
    ("heartbeat_timer", "timer"),
    ("manual", "on_demand"),
    ("transient_failure_retry", "retry"),
]


@pytest.fixture
def reached(acme: Company, pia: Agent) -> Hold:
    """Pia has spent exactly her limit."""
    budgets.set_limit(
        company=acme, scope="agent", scope_id=pia.id, limit_micros=100, actor=activity.SYSTEM
    )
    book(pia, "k", 100)
    return Hold.objects.get(agent=pia)


def watch_another(during: Any, acme: Company) -> None:
    """Until an agent that is not held was served, and what was queued before it could have been."""
    bea = factories.agent(acme, "Bea", adapter_type="puppet", on_finish="done")
    last = runs.wake(
        agent=bea,
        issue=factories.issue(acme, "Last", assignee=bea),
        reason="issue_assigned",
        source="assignment",
        actor=activity.SYSTEM,
    )

    async def watch(shift: Any) -> None:
        ended = HeartbeatRun.objects.filter(pk=last.run_id, status="succeeded")
        await until(ended.exists)

    during(watch)


def test_no_wish_starts_an_agent_whose_limit_is_reached(
    during: Any, puppet: Puppet, acme: Company, pia: Agent, reached: Hold
) -> None:
    puppet.play = finish()
    for reason, source in ASKED:
        issue = factories.issue(acme, reason, assignee=pia)
        runs.wake(agent=pia, issue=issue, reason=reason, source=source, actor=activity.SYSTEM)
    watch_another(during, acme)
    assert {brief.agent_name for brief in puppet.briefs} == {"Bea"}
    mine = HeartbeatRun.objects.filter(agent=pia)
    assert set(mine.values_list("status", flat=True)) == {"queued"}
    assert mine.count() == len(ASKED)
    assert reached.reason == "agent_budget"


def test_neither_rounds_nor_new_starts_bring_it_back(
    during: Any, puppet: Puppet, acme: Company, pia: Agent, reached: Hold
) -> None:
    puppet.play = finish()
    runs.wake(
        agent=pia,
        issue=factories.issue(acme, assignee=pia),
        reason="issue_assigned",
        source="assignment",
        actor=activity.SYSTEM,
    )
    for _ in range(3):
        tick.minute(now=timezone.now())
    watch_another(during, acme)
    assert {brief.agent_name for brief in puppet.briefs} == {"Bea"}
    budgets.set_limit(
        company=acme, scope="agent", scope_id=pia.id, limit_micros=101, actor=activity.SYSTEM
    )

    async def watch(shift: Any) -> None:
        await until(lambda: not HeartbeatRun.objects.filter(agent=pia, status="queued").exists())

    during(watch)
    assert {brief.agent_name for brief in puppet.briefs} == {"Bea", "Pia"}
