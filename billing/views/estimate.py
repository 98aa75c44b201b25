"""What an issue may cost, by agent, before it is given to one."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from agents.models import Agent
from billing import forecast
from companies.views.door import PageRequest, page
from issues.models import Issue

SHOWN = 30


@page()
def estimate(request: PageRequest) -> HttpResponse:
    """For `?issue=ACM-7`; without one, or with one that is not there, only the question."""
    wanted = request.GET.get("issue", "").strip()
    issue = _find(request, wanted)
    agents = Agent.objects.for_company(request.company.id).exclude(status=Agent.Status.TERMINATED)
    rows = []
    if issue is not None:
        for agent in agents.order_by("name", "id")[:SHOWN]:
            rows.append((agent, forecast.issue_cost(issue=issue, agent_id=agent.id)))
        rows.sort(key=lambda row: (row[1] is None, row[1].expected_micros if row[1] else 0))
    context = {
        "section": "costs",
        "wanted": wanted,
        "issue": issue,
        "rows": rows,
        "missing": bool(wanted) and issue is None,
    }
    return render(request, "billing/estimate.html", context)


def _find(request: PageRequest, wanted: str) -> Issue | None:
    prefix, _, number = wanted.rpartition("-")
    own = prefix.upper() in ("", request.company.issue_prefix)
    if not own or not number.isascii() or not number.isdigit() or len(number) > 9:
        return None
    mine = Issue.objects.for_company(request.company.id)
    return mine.filter(number=int(number)).select_related("assignee_agent").first()
