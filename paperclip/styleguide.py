"""`/styleguide/`: every component in every state, from the partials that the product uses."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agents.directory import RunRow
from agents.views import rows as run_rows
from companies import charts, diagrams
from issues.listing import Row
from issues.views import rows as issue_rows
from issues.why import Chip
from paperclip import palette

STATUSES = ("backlog", "todo", "in_progress", "in_review", "blocked", "done", "cancelled")
RUNS = ("queued", "running", "succeeded", "failed", "timed_out", "cancelled", "lost", "unknown")
AGENTS = ("idle", "running", "paused", "error", "pending_approval", "terminated")
LONG = (
    "Reconcile the quarterly ledger exports of all eleven subsidiaries with what the bank says, "
    "and explain_every_difference_that_is_larger_than_a_rounding_error"
)


class SampleForm(forms.Form):
    name = forms.CharField(help_text="People and mentions use this name.")
    model = forms.ChoiceField(choices=[("small", "small"), ("large", "large")], required=False)
    instructions = forms.CharField(widget=forms.Textarea, required=False)
    wake = forms.BooleanField(label="Wake the assignee", required=False)


def _issue(now: datetime, number: int, title: str, **more: Any) -> Row:
    fields: dict[str, Any] = {
        "id": uuid.UUID(int=number),
        "identifier": f"ACM-{number}",
        "title": title,
        "status": "todo",
        "priority": 2,
        "updated_at": now - timedelta(minutes=7 * number),
        "assignee": "Ada",
    }
    return Row(**(fields | more))


def samples(now: datetime) -> dict[str, Any]:
    issues = [
        _issue(
            now, 41, LONG, status="in_progress", priority=0, running=True, cost_micros=1_284_200
        ),
        _issue(
            now,
            39,
            "Draft the launch announcement",
            status="in_review",
            assignee="Bo",
            cost_micros=42_100,
            chip=Chip("waiting_for_you", "Waiting for you"),
        ),
        _issue(
            now,
            36,
            "Translate the manual into Finnish",
            status="blocked",
            priority=1,
            chip=Chip("blocked_by", "Blocked by ACM-12"),
            children=(2, 5),
        ),
        _issue(
            now,
            33,
            "Weekly digest of competitors",
            chip=Chip("budget_hold", "Budget reached"),
            priority=3,
        ),
        _issue(
            now,
            31,
            "Collect customer interviews",
            assignee="",
            chip=Chip("no_assignee", "Nobody is assigned"),
        ),
        _issue(now, 28, "Price the base model", status="done", cost_micros=8_400),
        _issue(now, 22, "Old idea", status="cancelled", priority=3),
    ]
    run: dict[str, Any] = {
        "id": uuid.UUID(int=1),
        "agent": "Ada",
        "reason": "issue_assigned",
        "created_at": now - timedelta(minutes=3),
        "started_at": now - timedelta(minutes=2, seconds=14),
        "identifier": "ACM-41",
        "title": LONG,
    }
    done: dict[str, Any] = {"finished_at": now}
    runs = [
        RunRow(
            **run,
            status="running",
            step="search_ledger(period=Q1)",
            tokens=48_211,
            cost_micros=1_284_200,
        ),
        RunRow(**run, status="running", step="Writing the answer", simulated=True),
        RunRow(**run, **done, status="succeeded", tokens=812, unpriced=1),
        RunRow(**run, **done, status="failed", code="rate_limited", attempt=3),
    ]
    failure = SimpleNamespace(
        code="rate_limited",
        title="The provider asks to slow down",
        meaning="Too many requests in a short time. Nothing was charged for this attempt.",
        action="Nothing now: it is tried again by itself. Often? Lower the agent's concurrency.",
        message="HTTP 429: Rate limit reached for requests. Please try again in 20s.",
        next_at=None,
        run_id=uuid.UUID(int=1),
    )
    form = SampleForm({"name": "", "instructions": "Be brief.\nCite sources."})
    form.is_valid()
    days = [(f"{d} Mar", (d * 7) % 11 + 2, 1 if d % 5 == 0 else 0) for d in range(1, 15)]
    return {
        "statuses": STATUSES,
        "run_statuses": RUNS,
        "agent_statuses": AGENTS,
        "priorities": ("critical", "high", "medium", "low"),
        "issue_lines": issue_rows.lines(issues, base="/c/ACM", now=now),
        "cards": [issue_rows.card(row, base="/c/ACM", now=now) for row in issues[:3]],
        "run_lines": [run_rows.line(row, base="/c/ACM", now=now) for row in runs],
        "failure": failure,
        "form": form,
        "throughput": charts.throughput(days),
        "burn_up": charts.burn_up(
            [3_100_000 * d for d in range(1, 13)], days=31, limit=80_000_000, forecast=96_000_000
        ),
        "bars": [(0.06, "6 %"), (0.84, "84 %"), (1.0, "100 %")],
        "prose": "Two things were **off**:\n\n1. rounding in `ledger.sum()`\n2. a missing day\n\n"
        "```\nSELECT sum(amount) FROM entries;\n```\n\n> It matches now.\n\n"
        "| bank | ours |\n|---|---|\n| 1,204 | 1,204 |\n",
        "lanes": [
            (
                "Ada",
                diagrams.lane(
                    [
                        diagrams.Span(0.1, 0.3, "succeeded", "ACM-1, succeeded, 1h 12m", "#"),
                        diagrams.Span(0.4, 0.45, "failed", "ACM-2, failed, 18m", "#"),
                        diagrams.Span(0.8, 1.0, "running", "ACM-3, running, 1h 12m", "#"),
                    ],
                    "Ada",
                ),
            ),
            ("Bo", diagrams.lane([diagrams.Span(0.55, 0.7, "cancelled", "ACM-4", "#")], "Bo")),
        ],
        "org": diagrams.tree(
            [
                diagrams.Node(
                    "Ada",
                    "Chief executive",
                    "running",
                    "#",
                    [
                        diagrams.Node("Bo Lindqvist", "Engineer", "idle", "#"),
                        diagrams.Node("Grace", "Somebody with a very long title", "error", "#"),
                    ],
                )
            ],
            "Sample of an org chart",
        ),
        "diff": [
            ("same", "instructions:"),
            ("remove", "Answer briefly."),
            ("add", "Answer in full."),
            ("skip", "12 unchanged"),
        ],
        "groups": [
            palette.Group(
                "Issues", [palette.Entry("Forge an anvil", "#", "circle-dot", "to do", "ACM-1")]
            ),
            palette.Group("Do", [palette.Entry("Pause Ada", "#", "pause")]),
        ],
        "icons": ("house", "circle-dot", "bot", "wallet", "history", "target", "settings", "zap"),
        "names": ("Ada", "Bo Lindqvist", "Grace", "Margaret Hamilton", "Linus", "Katherine"),
    }


def styleguide(request: HttpRequest) -> HttpResponse:
    company = SimpleNamespace(id=uuid.UUID(int=1), name="Acme Robotics", issue_prefix="ACM")
    frame = {
        "company": company,
        "companies": [company],
        "badges": {"needs_you": 2, "running": 3},
        "section": "issues",
        "may_act": True,
        "base": "/c/ACM",
        "still": True,
    }
    return render(request, "paperclip/styleguide.html", samples(datetime.now(UTC)) | frame)
