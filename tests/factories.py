"""Rows for tests, one plain function a noun. The names are the cast that everyone knows:
company acme and its rival globex; olga owns acme, vera may look at it, oscar owns globex; the
agents ada and bo work at acme.

The functions write rows and nothing else: no activity, no wake. A test that is about a verb calls
the verb.
"""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import F
from django.utils import timezone

from agents.connection_models import ProviderBucket, ProviderConnection
from agents.models import Agent, HeartbeatRun, Hold, Worker
from companies import keys
from companies.models import Company, Goal, Membership, Project, User
from issues.models import (
    Blocker,
    Checkout,
    Comment,
    Interaction,
    Issue,
    IssueCounter,
)

_serial = itertools.count(1)

PASSWORD = "correct horse battery"  # of every person made here


def user(name: str = "Olga", email: str = "", **fields: Any) -> User:
    """A person who can sign in with `PASSWORD`; the e-mail follows from the name."""
    return User.objects.create_user(
        email or f"{name.lower()}@example.com", PASSWORD, name=name, **fields
    )


def superuser(name: str = "Root", **fields: Any) -> User:
    return User.objects.create_superuser(f"{name.lower()}@example.com", PASSWORD, name=name)


def member(company: Company, user: User, role: str = Membership.Role.OPERATOR) -> Membership:
    return Membership.objects.create(company=company, user=user, role=role)


def company(
    name: str = "Acme", prefix: str = "", *, owner: User | None = None, **fields: Any
) -> Company:
    """A company with its issue counter; the prefix is the start of the name by default."""
    made = Company.objects.create(
        name=name, issue_prefix=prefix or name.upper().replace(" ", "")[:3], **fields
    )
    IssueCounter.objects.create(company=made)
    if owner is not None:
        member(made, owner, Membership.Role.OWNER)
    return made


def agent(company: Company, name: str = "", **fields: Any) -> Agent:
    """An active `demo` agent that is woken on demand and has no timer."""
    name = name or f"Agent {next(_serial)}"
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('agents_agent_number')")
        (number,) = cursor.fetchone()
    return Agent.objects.create(
        **{
            "company": company,
            "number": number,
            "name": name,
            "slug": name.lower().replace(" ", "-"),
            "adapter_type": "demo",
            **fields,
        }
    )


def provider(company: Company, name: str = "Main", **fields: Any) -> ProviderConnection:
    """A connection to an address where nobody answers, with its bucket."""
    made = ProviderConnection.objects.create(
        **{
            "company": company,
            "name": name,
            "kind": "openai",
            "base_url": "http://127.0.0.1:9/v1",
            **fields,
        }
    )
    ProviderBucket.objects.create(
        connection=made,
        requests_left=made.requests_per_minute or 0,
        tokens_left=made.tokens_per_minute or 0,
        refilled_at=timezone.now(),
    )
    return made


def goal(company: Company, title: str = "Sell more anvils", **fields: Any) -> Goal:
    return Goal.objects.create(company=company, title=title, **fields)


def project(company: Company, name: str = "Anvils", **fields: Any) -> Project:
    return Project.objects.create(company=company, name=name, **fields)


def issue(
    company: Company,
    title: str = "Forge an anvil",
    *,
    status: str = Issue.Status.TODO,
    assignee: Agent | User | None = None,
    now: datetime | None = None,
    **fields: Any,
) -> Issue:
    """An issue with the company's next number; `assignee` is an agent or a person."""
    now = now or timezone.now()
    IssueCounter.objects.filter(company=company).update(last_number=F("last_number") + 1)
    number = IssueCounter.objects.get(company=company).last_number
    if isinstance(assignee, Agent):
        fields["assignee_agent"] = assignee
    elif assignee is not None:
        fields["assignee_user"] = assignee
    if status == Issue.Status.DONE:
        fields.setdefault("completed_at", now)
    if status == Issue.Status.CANCELLED:
        fields.setdefault("cancelled_at", now)
    return Issue.objects.create(
        company=company,
        number=number,
        identifier=f"{company.issue_prefix}-{number}",
        title=title,
        status=status,
        created_at=now,
        updated_at=now,
        **fields,
    )


def issues(company: Company, count: int, **fields: Any) -> list[Issue]:
    return [issue(company, f"Issue {n}", **fields) for n in range(1, count + 1)]


def blocker(issue: Issue, by: Issue) -> Blocker:
    """`issue` waits for `by`."""
    return Blocker.objects.create(company_id=issue.company_id, issue=issue, blocking=by)


def comment(
    issue: Issue,
    body: str = "How is it going?",
    *,
    author: Agent | User | None = None,
    now: datetime | None = None,
    run: HeartbeatRun | None = None,
) -> Comment:
    """A comment by a person, an agent or (no author) the system."""
    return Comment.objects.create(
        company_id=issue.company_id,
        issue=issue,
        author_user=author if isinstance(author, User) else None,
        author_agent=author if isinstance(author, Agent) else None,
        run=run,
        body=body,
        created_at=now or timezone.now(),
    )


def run(
    agent: Agent,
    issue: Issue | None = None,
    *,
    status: str = HeartbeatRun.Status.QUEUED,
    now: datetime | None = None,
    **fields: Any,
) -> HeartbeatRun:
    """A run in any state, with the moments that its state asks for."""
    now = now or timezone.now()
    if status != HeartbeatRun.Status.QUEUED:
        fields.setdefault("started_at", now)
        fields.setdefault("epoch", 1)
    if status not in HeartbeatRun.LIVE:
        fields.setdefault("finished_at", now)
    return HeartbeatRun.objects.create(
        **{
            "company_id": agent.company_id,
            "agent": agent,
            "issue": issue,
            "status": status,
            "source": HeartbeatRun.Source.ASSIGNMENT if issue else HeartbeatRun.Source.TIMER,
            "reason": "issue_assigned" if issue else "heartbeat_timer",
            "priority": issue.priority if issue else 2,
            "not_before": now,
            "created_at": now,
            "adapter_type": agent.adapter_type,
            **fields,
        }
    )


def running(agent: Agent, issue: Issue | None = None, **fields: Any) -> HeartbeatRun:
    return run(agent, issue, status=HeartbeatRun.Status.RUNNING, **fields)


def run_token(run: HeartbeatRun) -> str:
    """A token of a running run, as its claim would have given it."""
    minted = keys.mint(keys.RUN)
    HeartbeatRun.objects.filter(pk=run.pk).update(token_digest=minted.digest)
    return minted.token


def checkout(
    issue: Issue,
    agent: Agent,
    run: HeartbeatRun | None = None,
    *,
    now: datetime | None = None,
) -> Checkout:
    return Checkout.objects.create(
        company_id=issue.company_id,
        issue=issue,
        agent=agent,
        run=run,
        created_at=now or timezone.now(),
    )


def interaction(
    issue: Issue,
    question: str = "Round or square?",
    *,
    asked_by: Agent | None = None,
    now: datetime | None = None,
    **fields: Any,
) -> Interaction:
    """A pending question to people."""
    return Interaction.objects.create(
        company_id=issue.company_id,
        issue=issue,
        payload={"question": question, "options": []},
        asked_by_agent=asked_by,
        created_at=now or timezone.now(),
        **fields,
    )


def hold(agent: Agent, reason: str = Hold.Reason.OPERATOR, note: str = "") -> Hold:
    return Hold.objects.create(company_id=agent.company_id, agent=agent, reason=reason, note=note)


def worker(*, now: datetime | None = None, lease_expires_at: datetime | None = None) -> Worker:
    now = now or timezone.now()
    return Worker.objects.create(
        instance=f"here-{next(_serial)}",
        pid=1,
        started_at=now,
        beat_at=now,
        lease_expires_at=lease_expires_at or now.replace(year=now.year + 1),
    )
