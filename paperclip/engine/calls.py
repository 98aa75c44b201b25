"""What a run may ask for while it runs: a tool, another model call, a cost to be booked. Blocking;
each is a transaction of its own. Read next: `heartbeat.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db import transaction

from agents import loops, runs
from agents.adapters.base import ToolResult, Usage
from billing import budgets, ledger
from companies import clock
from companies.access import Principal
from issues import tools
from issues.briefing import Briefing
from issues.models import Issue
from paperclip.engine.opening import Opening, held


def use_tool(
    claimed: runs.Claimed, opening: Opening, name: str, arguments: Mapping[str, Any]
) -> tuple[ToolResult, bool]:
    """Carry out a model's tool call and remember in the same transaction that the run has acted.

    Raises Stale, with nothing done, when the run has changed hands meanwhile.
    """
    assert opening.tool_issue is not None
    principal = Principal(
        kind="run",
        agent_id=claimed.agent_id,
        company_id=claimed.company_id,
        run_id=claimed.run_id,
        name=opening.briefing.agent_name,
    )
    with transaction.atomic():
        issue = Issue.objects.get(pk=opening.tool_issue.pk)
        result = tools.call(
            principal=principal, issue=issue, name=name, arguments=arguments, now=clock.now()
        )
        acts = not result.is_error and any(t.name == name and t.acts for t in tools.TOOLS)
        if acts:
            runs.mark_acted(run_id=claimed.run_id, epoch=claimed.epoch)
    return result, acts


def grant(
    claimed: runs.Claimed,
    *,
    provider: str,
    model: str,
    input_tokens: int,
    max_output_tokens: int,
) -> None:
    """May this run make another model call? Raises Refusal, AdapterError (it spends far more than
    its agent does), and Stale when it is not ours."""
    run = held(claimed)
    loops.check_spend(run=run)
    budgets.check_call(
        agent=run.agent,
        run_id=run.pk,
        provider=provider,
        model=model,
        input_tokens=input_tokens,
        max_output_tokens=max_output_tokens,
        now=clock.now(),
    )


def book(facts: Briefing, usage: Usage, dearest: int | None = None) -> ledger.Booked:
    """Book one model call of a run, once however often this is called.

    `dearest` is given for a run whose calls nobody sees: its dearest receipt so far, in
    micro-dollars. As much is kept aside for the next; where that does not fit it is `exhausted`.
    """
    booked = ledger.book(
        company_id=facts.company_id,
        agent_id=facts.agent_id,
        run_id=facts.run_id,
        issue_id=facts.issue_id,
        project_id=facts.project_id,
        goal_id=facts.goal_id,
        billing_code=facts.billing_code,
        usage=usage,
        key=ledger.run_key(facts.run_id, usage.call),
        # A chat model has one issue in hand, and its project's room.
        follows_work=dearest is not None,
        now=clock.now(),
    )
    if dearest is None or booked.exhausted or not booked.cost_micros:
        return booked
    next_one = max(dearest, booked.cost_micros)
    fits = budgets.top_up(run_id=facts.run_id, micros=next_one, now=clock.now())
    return booked if fits else replace(booked, exhausted=True)
