"""What a company looks like from above: dashboard, counts, search. Sees all floors."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from django.db import connection
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents.models import Agent, HeartbeatRun
from billing import reports
from companies import format, wire
from companies.models import Company, Project
from issues.approval_models import Approval
from issues.models import Comment, Interaction, Issue
from paperclip import answers

router = Router(by_alias=True)
DAYS = 14
RECENT = timedelta(days=7)


@router.get(
    "/companies/{company}/dashboard", response=answers.Dashboard, summary="The company in figures"
)
def dashboard(request: HttpRequest, company: str) -> HttpResponse:
    company_id, now = wire.company_id(request, company), timezone.now()
    count = _count(company_id, now)
    issues = count["issues"] or {}
    month = reports.month(company_id=company_id, now=now)
    limit = month.limit_micros
    return wire.answer(
        {
            "companyId": company_id,
            "agents": {name: count[name] for name in ("active", "running", "paused", "error")},
            "tasks": {
                "open": sum(n for status, n in issues.items() if status not in Issue.CLOSED),
                "inProgress": issues.get(Issue.Status.IN_PROGRESS, 0),
                "inReview": issues.get(Issue.Status.IN_REVIEW, 0),
                "blocked": issues.get(Issue.Status.BLOCKED, 0),
                "done": issues.get(Issue.Status.DONE, 0),
            },
            "costs": {
                "monthSpendCents": wire.cents(month.known_micros),
                "monthSpendMicros": month.known_micros,
                "monthBudgetCents": wire.cents(limit) or 0,
                "monthUtilizationPercent": format.share(month.spent_micros, limit) if limit else 0,
                "unpricedEvents": month.unpriced_events,
            },
            "pendingInteractions": count["interactions"],
            "pendingApprovals": count["approvals"],
            "budgets": {"pausedAgents": count["paused_by_budget"]},
            "runActivity": _run_activity(count["runs"] or [], now),
        }
    )


_COUNTS = """
WITH staff AS (
    SELECT a.error_code,
        EXISTS (SELECT 1 FROM agents_hold h WHERE h.agent_id = a.id) AS held,
        EXISTS (SELECT 1 FROM agents_hold h
                WHERE h.agent_id = a.id AND h.reason LIKE '%%_budget') AS spent
    FROM agents_agent a WHERE a.company_id = %(company)s AND a.status = 'active'
)
SELECT
    (SELECT json_object_agg(status, n) FROM (
        SELECT status, count(*) AS n FROM issues_issue
        WHERE company_id = %(company)s AND archived_at IS NULL GROUP BY status) AS s) AS issues,
    count(*) FILTER (WHERE NOT held) AS active,
    count(*) FILTER (WHERE held) AS paused,
    count(*) FILTER (WHERE spent) AS paused_by_budget,
    count(*) FILTER (WHERE NOT held AND error_code <> '') AS error,
    (SELECT count(DISTINCT agent_id) FROM agents_heartbeatrun
     WHERE company_id = %(company)s AND status = 'running') AS running,
    (SELECT count(*) FROM issues_interaction
     WHERE company_id = %(company)s AND status = 'pending') AS interactions,
    (SELECT count(*) FROM issues_approval
     WHERE company_id = %(company)s
       AND status IN ('pending', 'revision_requested')) AS approvals,
    (SELECT json_agg(json_build_array(day, status, n)) FROM (
        SELECT (created_at AT TIME ZONE 'UTC')::date AS day, status, count(*) AS n
        FROM agents_heartbeatrun
        WHERE company_id = %(company)s AND created_at >= %(since)s AND finished_at IS NOT NULL
        GROUP BY 1, 2) AS d) AS runs
FROM staff
"""


def _count(company_id: uuid.UUID, now: datetime) -> dict[str, Any]:
    """All the dashboard's counts in one statement."""
    since = datetime.combine(_first_day(now), time.min, UTC)
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS, {"company": company_id, "since": since})
        names = [column.name for column in cursor.description]
        return dict(zip(names, cursor.fetchone(), strict=True))


def _first_day(now: datetime) -> date:
    return now.astimezone(UTC).date() - timedelta(days=DAYS - 1)


@router.get(
    "/companies/{company}/sidebar-badges", response=answers.Badges, summary="What waits for people"
)
def sidebar_badges(request: HttpRequest, company: str) -> HttpResponse:
    found, now = wire.company(request, company), timezone.now()
    failed = HeartbeatRun.objects.for_company(found.id).filter(
        status__in=["failed", "timed_out", "unknown"], created_at__gte=now - RECENT
    )
    pending = _pending(found)
    return wire.answer(
        {
            "inbox": pending,
            "approvals": _open_approvals(found),
            "failedRuns": failed.count(),
            "joinRequests": 0,
        }
    )


@router.get(
    "/companies/{company}/search",
    response=answers.SearchAnswer,
    summary="Find issues, comments, agents and projects",
)
def search(
    request: HttpRequest,
    company: str,
    q: Annotated[wire.Text, Field(max_length=200)] = "",
    limit: Annotated[int, Field(ge=1, le=50)] = 20,
) -> HttpResponse:
    """Matches words anywhere in titles, names and comments; the best kind of match first."""
    found = wire.company(request, company)
    words = " ".join(q.split())
    results = _search(found, words, limit) if words else []
    counts: dict[str, int] = {"issue": 0, "comment": 0, "agent": 0, "project": 0}
    for result in results:
        counts[result["type"]] += 1
    return wire.answer(
        {
            "query": q,
            "normalizedQuery": words.lower(),
            "scope": "all",
            "sort": "relevance",
            "limit": limit,
            "offset": 0,
            "results": results,
            "countsByType": counts,
            "hasMore": len(results) == limit,
        }
    )


def _pending(company: Company) -> int:
    rows = Interaction.objects.for_company(company.id)
    return rows.filter(status=Interaction.Status.PENDING).count()


def _open_approvals(company: Company) -> int:
    return Approval.objects.for_company(company.id).filter(status__in=Approval.OPEN).count()


_ENDINGS = {"succeeded": "succeeded", "failed": "failed", "timed_out": "failed"}


def _run_activity(counted: list[tuple[str, str, int]], now: datetime) -> list[dict[str, Any]]:
    """Runs that ended, by day, today last, of their numbers by day and status."""
    first = _first_day(now)
    days = {
        (first + timedelta(days=n)).isoformat(): {
            "succeeded": 0, "failed": 0, "other": 0, "total": 0
        }
        for n in range(DAYS)
    }  # fmt: skip
    for day, status, count in counted:
        if day in days:
            days[day][_ENDINGS.get(status, "other")] += count
            days[day]["total"] += count
    return [{"date": day, **counts} for day, counts in days.items()]


def _search(company: Company, words: str, limit: int) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    prefix = company.issue_prefix
    issues = Issue.objects.for_company(company.id).filter(
        Q(title__icontains=words) | Q(identifier__iexact=words) | Q(description__icontains=words)
    )
    for row in issues.order_by("-updated_at", "-id")[:limit]:
        in_title = words.lower() in row.title.lower()
        results.append(
            {
                "id": row.id,
                "type": "issue",
                "score": 100 if in_title else 50,
                "title": f"{row.identifier} {row.title}",
                "href": f"/{prefix}/issues/{row.identifier}",
                "matchedFields": ["title" if in_title else "description"],
                "snippet": row.title if in_title else row.description[:200],
                "issue": {
                    "id": row.id,
                    "identifier": row.identifier,
                    "title": row.title,
                    "status": row.status,
                    "priority": row.get_priority_display(),
                    "assigneeAgentId": row.assignee_agent_id,
                    "assigneeUserId": row.assignee_user_id,
                    "projectId": row.project_id,
                    "updatedAt": row.updated_at,
                },
                "updatedAt": row.updated_at,
            }
        )
    comments = (
        Comment.objects.for_company(company.id)
        .filter(body__icontains=words, deleted_at=None)
        .select_related("issue")
    )
    for comment in comments.order_by("-created_at", "-id")[:limit]:
        identifier = comment.issue.identifier
        results.append(
            {
                "id": comment.id,
                "type": "comment",
                "score": 30,
                "title": f"{identifier} {comment.issue.title}",
                "href": f"/{prefix}/issues/{identifier}",
                "matchedFields": ["comment"],
                "snippet": comment.body[:200],
                "updatedAt": comment.created_at,
            }
        )
    for agent in Agent.objects.for_company(company.id).filter(name__icontains=words)[:limit]:
        results.append(_named(agent.id, "agent", agent.name, f"/{prefix}/agents/{agent.slug}"))
    for project in Project.objects.for_company(company.id).filter(name__icontains=words)[:limit]:
        href = f"/{prefix}/projects/{project.id}"
        results.append(_named(project.id, "project", project.name, href))
    results.sort(key=lambda result: -result["score"])
    return results[:limit]


def _named(one: Any, kind: str, name: str, href: str) -> dict[str, Any]:
    return {
        "id": one,
        "type": kind,
        "score": 80,
        "title": name,
        "href": href,
        "matchedFields": ["name"],
        "snippet": name,
    }
