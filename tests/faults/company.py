"""A company with much to do, and what must be true of it in the end."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from django.db import connections

from agents import runs
from agents.models import Agent, HeartbeatRun
from companies.activity import SYSTEM
from companies.models import Company
from issues.models import Checkout, Comment, Issue
from tests import factories


def staff(company: Company, count: int, *, pace: float, **fields: Any) -> list[Agent]:
    """Simulated agents that ask nothing, never fail and finish what they get."""
    return [
        factories.agent(
            company,
            adapter_config={"pace": pace, "questions": False, "failRate": 0},
            on_finish="done",
            **fields,
        )
        for _ in range(count)
    ]


def give(agents: list[Agent], count: int) -> list[Issue]:
    """`count` issues, dealt out in turn, each with its wake."""
    made = []
    for number in range(count):
        agent = agents[number % len(agents)]
        issue = factories.issue(agent.company, f"Task {number}", assignee=agent)
        runs.wake(
            agent=agent,
            issue=issue,
            reason="issue_assigned",
            source="assignment",
            actor=SYSTEM,
        )
        made.append(issue)
    return made


def open_count() -> int:
    """Issues that are neither done nor visibly failed."""
    return Issue.objects.exclude(status__in=["done", "blocked"]).count()


def running() -> int:
    return HeartbeatRun.objects.filter(status="running").count()


def check_each_done_once_or_failed_visibly() -> Counter[str]:
    """The promise. Returns how many issues ended how."""
    ends: Counter[str] = Counter()
    for issue in Issue.objects.all():
        ends[issue.status] += 1
        done = HeartbeatRun.objects.filter(issue=issue, status="succeeded").count()
        words = Comment.objects.filter(issue=issue, author_agent__isnull=False).count()
        if issue.status == "done":
            assert (done, words) == (1, 1), (issue.identifier, done, words)
        else:
            assert issue.status == "blocked", (issue.identifier, issue.status)
            assert done == 0
            assert words <= 1
            assert issue.blocked_reason
            assert Comment.objects.filter(issue=issue, author_agent=None).exists()
    assert not HeartbeatRun.objects.filter(status__in=HeartbeatRun.LIVE).exists()
    assert not Checkout.objects.filter(released_at=None).exists()
    return ends


class Caps(threading.Thread):
    """Samples how much runs at once and keeps every excess."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.samples = 0
        self.peak = 0
        self.excesses: list[str] = []

    def run(self) -> None:
        of_agent = dict(Agent.objects.values_list("id", "max_concurrent_runs"))
        of_company = dict(Company.objects.values_list("id", "max_concurrent_agents"))
        while not self.over.wait(0.01):
            now = list(
                HeartbeatRun.objects.filter(status="running").values_list(
                    "company_id", "agent_id", "issue_id"
                )
            )
            agents = Counter(agent for _, agent, _ in now)
            companies = Counter(company for company, _ in {(c, a) for c, a, _ in now})
            issues = Counter(issue for *_, issue in now)
            for key, count in agents.items():
                if count > of_agent[key]:
                    self.excesses.append(f"agent {key}: {count}")
            for key, count in companies.items():
                if count > of_company[key]:
                    self.excesses.append(f"company {key}: {count}")
            self.excesses += [f"issue {key}" for key, count in issues.items() if count > 1]
            self.samples += 1
            self.peak = max(self.peak, len(now))
        connections.close_all()
