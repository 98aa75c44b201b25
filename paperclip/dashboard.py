"""The company's home and what the frame counts: the one place that looks at all floors.

Five panels, each loaded by itself, so that the slowest never holds the page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import TruncDate
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render

from agents import attempts, directory, savings
from agents.models import Agent, HeartbeatRun, Hold
from agents.views import rows as run_rows
from billing import replica, reports
from billing.views import costs
from companies import charts, format, history
from companies.models import Company, Membership, User
from companies.views import activity as activity_page
from companies.views.door import PageRequest, page
from issues import desk, inbox, lines, questions
from issues.models import Issue, IssueQuerySet
from issues.views import rows as issue_rows

Run = HeartbeatRun.Status
SHOWN = 8
DAYS = 14

# What a person put aside does not need them, until something newer happens to it.
_ASIDE = """
EXISTS (SELECT 1 FROM issues_inboxmark m
         WHERE m.company_id = %(company)s AND m.user_id = %(user)s AND m.ref = {ref}
           AND m.marked_at >= {at} AND (m.until IS NULL OR m.until > now()))
"""


def _aside(ref: str, at: str) -> str:
    return _ASIDE.format(ref=ref, at=at)


_BADGES = f"""
SELECT (SELECT count(*) FROM issues_interaction q
         WHERE company_id = %(company)s AND status = 'pending'
           AND NOT {_aside("q.id", "q.created_at")}),
       (SELECT count(*) FROM issues_approval a
         WHERE company_id = %(company)s AND status = 'pending'
           AND NOT {_aside("a.id", "a.updated_at")}),
       (SELECT count(*) FROM issues_issue
         WHERE company_id = %(company)s AND status = 'in_review' AND archived_at IS NULL)
       -- All from an index, less the few that do not count.
     - (SELECT count(*) FROM issues_issue i
         WHERE company_id = %(company)s AND status = 'in_review' AND archived_at IS NULL
           AND id IN (SELECT issue_id FROM issues_interaction
                       WHERE company_id = %(company)s AND status = 'pending'
                       UNION ALL SELECT ref FROM issues_inboxmark
                       WHERE company_id = %(company)s AND user_id = %(user)s)
           AND (EXISTS (SELECT 1 FROM issues_interaction
                         WHERE issue_id = i.id AND status = 'pending')
                OR {_aside("i.id", "i.updated_at")})),
       (SELECT count(*) FROM agents_agent a CROSS JOIN LATERAL
               (SELECT id, agent_id, issue_id, coalesce(finished_at, created_at) AS at
                  FROM agents_heartbeatrun r
                 WHERE r.agent_id = a.id AND r.status IN ('failed', 'timed_out', 'unknown')
                   AND r.created_at >= now() - interval '{inbox.FAILED_DAYS} days'
                 ORDER BY r.created_at DESC, r.id DESC LIMIT 1) f
         WHERE a.company_id = %(company)s AND a.status = 'active' AND a.error_code <> ''
           AND NOT {attempts.REPEATED.format(run="f")} AND NOT {_aside("f.id", "f.at")}),
       (SELECT count(*) FROM agents_hold h
         WHERE company_id = %(company)s AND reason <> 'operator'
           AND NOT {_aside("h.id", "h.created_at")}),
       (SELECT count(*) FROM agents_providerconnection c
         WHERE company_id = %(company)s AND breaker = 'open' AND open_until IS NULL
           AND disabled_at IS NULL
           AND NOT {_aside("c.id", "coalesce(c.opened_at, c.updated_at)")}),
       (SELECT count(*) FROM agents_heartbeatrun
         WHERE company_id = %(company)s AND status = 'running'),
       (SELECT count(*) FROM agents_heartbeatrun
         WHERE company_id = %(company)s AND status = 'queued')
"""  # noqa: S608 - constants of this module


def badges(company: Company, user: User) -> dict[str, int]:
    """What the frame counts for a person, in one statement over partial indexes.

    `needs_you` is how many items their inbox shows; a test holds the two together.
    """
    with connection.cursor() as cursor:
        cursor.execute(_BADGES, {"company": company.id, "user": user.pk})
        asked, approvals, reviews, failing, held, cut_off, running, queued = cursor.fetchone()
    faults = failing + held + cut_off
    return {
        "needs_you": asked + approvals + reviews + faults,
        "questions": asked,
        "approvals": approvals,
        "reviews": reviews,
        "faults": faults,
        "running": running,
        "queued": queued,
    }


def start(request: Any) -> HttpResponse:
    """`/`: to the first company in use, or to founding one."""
    if not request.user.is_authenticated:
        return redirect("/sign-in")
    first = (
        Membership.objects.filter(user_id=request.user.pk)
        .exclude(company__status=Company.Status.ARCHIVED)
        .order_by("company__name", "company_id")
        .values_list("company__issue_prefix", flat=True)
        .first()
    )
    return redirect(f"/c/{first}/" if first else "/companies/new")


@page()
def home(request: PageRequest) -> HttpResponse:
    """The frame of the home; its panels load side by side."""
    checklist = steps(request.company)
    context = {
        "section": "home",
        "checklist": checklist,
        "complete": all(step.done for step in checklist),
    }
    return render(request, "paperclip/home.html", context)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the first run."""

    done: bool
    title: str
    text: str
    href: str
    action: str


def steps(company: Company) -> list[Step]:
    """What a new company still lacks, in four steps; two queries."""
    agents = Agent.objects.for_company(company.id).exclude(status=Agent.Status.TERMINATED)
    real = agents.exclude(adapter_type="demo")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM issues_issue WHERE company_id = %(c)s),"
            " EXISTS (SELECT 1 FROM agents_heartbeatrun"
            "          WHERE company_id = %(c)s AND status = 'succeeded')",
            {"c": company.id},
        )
        issue, heartbeat = cursor.fetchone()
    hired = real.exists() if company.is_demo else agents.exists()
    base = f"/c/{company.issue_prefix}"
    return [
        Step(True, "Found a company", "It keeps agents, work and money together.", "", ""),
        Step(
            hired,
            "Hire an agent",
            "Connect a model, a program or a web service, and test it on the spot.",
            f"{base}/agents/new",
            "New agent",
        ),
        Step(
            issue,
            "Write an issue",
            "Say what should be done and assign it: the agent starts at once.",
            f"{base}/issues/new",
            "New issue",
        ),
        Step(
            heartbeat,
            "See the first heartbeat",
            "Each time an agent works is a run with a log and a price.",
            f"{base}/agents/",
            "Agents",
        ),
    ]


@page()
def panel(request: PageRequest, name: str) -> HttpResponse:
    """One panel of the home."""
    if name not in PANELS:
        raise Http404
    context = PANELS[name](request)
    return render(request, f"paperclip/_panel_{name}.html", context)


def _glance(request: PageRequest) -> dict[str, Any]:
    """The five answers in one line."""
    counts = badges(request.company, request.user)
    stuck = _stuck_count(request.company)
    upcoming = (
        Agent.objects.for_company(request.company.id)
        .filter(heartbeat_enabled=True, status=Agent.Status.ACTIVE, next_beat_at__isnull=False)
        .only("name", "slug", "next_beat_at")
        .order_by("next_beat_at", "id")
        .first()
    )
    summary = reports.month(company_id=request.company.id, now=request.now)
    limit = summary.limit_micros
    return {
        "counts": counts,
        "stuck": stuck,
        "upcoming": upcoming,
        "summary": summary,
        "percent": format.share(summary.spent_micros, limit) if limit else None,
    }


def _stuck_count(company: Company) -> int:
    """Open issues that a machine or a blocker holds, not counting what waits for people."""
    return _stuck(company).count()


def _stuck(company: Company) -> IssueQuerySet:
    here = company.id
    of_this = HeartbeatRun.objects.for_company(here).filter(issue_id=OuterRef("id"))
    # Two small sets instead of joins over all issues: who is held or failing, what is queued.
    held = Hold.objects.for_company(here).values("agent_id")
    failing = Agent.objects.for_company(here).exclude(error_code="").values("id")
    stands = (
        Q(assignee_agent__in=held)
        | Q(assignee_agent__in=failing)
        | ~Exists(of_this.filter(status=Run.QUEUED))
    )
    waiting = Q(status__in=[Issue.Status.TODO, Issue.Status.IN_PROGRESS])
    return (
        Issue.objects.for_company(here)
        .listed()
        .filter(
            Q(status=Issue.Status.BLOCKED) | (waiting & Q(assignee_agent__isnull=False) & stands)
        )
        .exclude(Exists(of_this.filter(status=Run.RUNNING)))
    )


def _running(request: PageRequest) -> dict[str, Any]:
    found = directory.run_rows(company_id=request.company.id, live=True, limit=SHOWN + 1)
    lines = [run_rows.line(row, base=request.base, now=request.now) for row in found[:SHOWN]]
    counts = badges(request.company, request.user)
    return {"lines": lines, "more": len(found) > SHOWN, "counts": counts}


def _needs(request: PageRequest) -> dict[str, Any]:
    items = desk.of(company_id=request.company.id, user=request.user, now=request.now).waiting
    shown = [
        (item, questions.options(item.interaction) if item.interaction else [])
        for item in items[:SHOWN]
    ]
    return {"items": shown, "total": len(items)}


def _waiting(request: PageRequest) -> dict[str, Any]:
    found = _stuck(request.company).order_by("priority", "-id")
    ids = list(found.values_list("id", flat=True)[: SHOWN + 1])
    rows = lines.by_id(ids[:SHOWN], company=request.company, now=request.now)
    return {
        "lines": issue_rows.lines(rows, base=request.base, now=request.now),
        "any": bool(rows),
        "more": len(ids) > SHOWN,
    }


def _money(request: PageRequest) -> dict[str, Any]:
    """A report, which a replica may answer; the other panels show what is so now."""
    company, now = request.company, request.now

    def read() -> dict[str, Any]:
        return {
            **costs.month(company, now),
            "lines": reports.by_agent(company_id=company.id, now=now)[:4],
            "savings": savings.of_company(company_id=company.id, now=now),
        }

    return replica.reading(request, read)[0]


def _recent(request: PageRequest) -> dict[str, Any]:
    found = history.page(company_id=request.company.id, now=request.now)
    days = throughput(request.company, request.now)
    succeeded, failed = sum(d[1] for d in days), sum(d[2] for d in days)
    return {
        "lines": [activity_page.line(row, base=request.base) for row in found.rows[:SHOWN]],
        "chart": charts.throughput(days),
        "days": days,
        "succeeded": succeeded,
        "failed": failed,
        "rate": format.share(succeeded, succeeded + failed) if succeeded + failed else None,
    }


def throughput(company: Company, now: datetime) -> list[tuple[str, int, int]]:
    """Runs that ended in the last 14 days (UTC), as (day, succeeded, failed), today last."""
    today = now.astimezone(UTC).date()
    first = today - timedelta(days=DAYS - 1)
    since = datetime.combine(first, datetime.min.time(), UTC)
    counted = {
        day: (ok, bad)
        for day, ok, bad in HeartbeatRun.objects.for_company(company.id)
        .filter(created_at__gte=since, status__in=directory.ENDED)
        .annotate(day=TruncDate("created_at", tzinfo=UTC))
        .order_by()
        .values_list("day")
        .annotate(**directory.RECORD)
    }
    days = (first + timedelta(days=n) for n in range(DAYS))
    return [(f"{day:%-d %b}", *counted.get(day, (0, 0))) for day in days]


PANELS: dict[str, Callable[[PageRequest], dict[str, Any]]] = {
    "badges": lambda request: {},  # the frame counts them
    "glance": _glance,
    "running": _running,
    "needs": _needs,
    "waiting": _waiting,
    "money": _money,
    "recent": _recent,
}
