"""A company with much to do, and what must be true of it in the end."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Any

from django.db import connection, connections
from django.utils import timezone

from agents import runs
from agents.models import Agent, HeartbeatRun
from billing import audit
from companies import live
from companies.activity import SYSTEM
from companies.models import Company
from issues.models import Checkout, Comment, Issue, IssueCounter
from tests import factories

# The plan's sizes; a machine that is busy with other things may be asked for a part of them, which
# the figures then say.
SCALE = float(os.environ.get("PAPERCLIP_FAULTS_SCALE", "1"))


def scaled(count: int) -> int:
    return max(20, round(count * SCALE))


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


def quick_staff(company: Company, count: int, *, runs_each: int = 10, **config: Any) -> list[Agent]:
    """Agents of the quick adapter (`tests/faults/quick.py`), all of whom may work at once."""
    Company.objects.filter(pk=company.pk).update(max_concurrent_agents=10_000)
    return [
        factories.agent(
            company,
            adapter_type="quick",
            adapter_config=config,
            max_concurrent_runs=runs_each,
            on_finish="done",
        )
        for _ in range(count)
    ]


def give_many(agents: list[Agent], count: int, *, titled: str = "Task") -> list[Issue]:
    """`count` issues and their queued runs, dealt out in turn, as rows."""
    company, now = agents[0].company, timezone.now()
    counter = IssueCounter.objects.get(company=company)
    first = counter.last_number + 1
    counter.last_number += count
    counter.save()
    issues = Issue.objects.bulk_create(
        [
            Issue(
                company=company,
                number=first + n,
                identifier=f"{company.issue_prefix}-{first + n}",
                title=f"{titled} {n}",
                status="todo",
                assignee_agent=agents[n % len(agents)],
                created_at=now,
                updated_at=now,
            )
            for n in range(count)
        ],
        batch_size=1_000,
    )
    HeartbeatRun.objects.bulk_create(
        [
            HeartbeatRun(
                company=company,
                agent_id=issue.assignee_agent_id,
                issue=issue,
                status="queued",
                source="assignment",
                reason="issue_assigned",
                not_before=now,
                created_at=now,
                adapter_type="quick",
            )
            for issue in issues
        ],
        batch_size=1_000,
    )
    live.wake()
    return issues


# What must be empty in the end: (what is wrong, the statement that finds it).
_WRONG = {
    "lost": "SELECT id FROM issues_issue WHERE status <> 'done'",
    "double": """
        SELECT issue_id FROM agents_heartbeatrun WHERE status = 'succeeded'
        GROUP BY issue_id HAVING count(*) > 1""",
    "said twice": """
        SELECT issue_id FROM issues_comment WHERE author_agent_id IS NOT NULL
        GROUP BY issue_id HAVING count(*) > 1""",
    "still live": "SELECT id FROM agents_heartbeatrun WHERE status IN ('queued', 'running')",
    "still held": "SELECT id FROM issues_checkout WHERE released_at IS NULL",
    "wrong epoch": """
        SELECT id FROM agents_heartbeatrun WHERE started_at IS NOT NULL AND epoch <> 2
        UNION ALL
        SELECT e.run_id FROM agents_runevent e JOIN agents_heartbeatrun r
            ON r.id = e.run_id AND r.created_at = e.run_created_at
        WHERE e.epoch > 2 OR (e.epoch = 2) <> (e.kind = 'status' AND e.seq > 1)
           OR (e.epoch = 2 AND e.seq < (
                SELECT max(seq) FROM agents_runevent x
                WHERE x.run_id = e.run_id AND x.run_created_at = e.run_created_at))""",
}


def wrongs() -> dict[str, int]:
    """How often each promise is broken in the whole database; all zero when all is well, and the
    books with it."""
    found = {}
    with connection.cursor() as cursor:
        for name, statement in _WRONG.items():
            cursor.execute(f"SELECT count(*) FROM ({statement}) AS wrong")
            found[name] = cursor.fetchone()[0]
    return {**found, "drift of the books": len(audit.drifts())}


def check_all_done_once() -> dict[str, int]:
    """Every issue done, by one accepted run, under the right epochs; the books agree."""
    found = wrongs()
    assert not any(found.values()), (found, _undone())
    return found


def _undone() -> list[tuple[str, str, list[tuple[str, str, int]]]]:
    """Some issues that are not done, and what became of their runs."""
    return [
        (
            issue.identifier,
            issue.blocked_reason,
            list(issue.runs.order_by("created_at").values_list("status", "message", "attempt")),
        )
        for issue in Issue.objects.exclude(status="done")[:5]
    ]


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
