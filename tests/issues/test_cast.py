"""The cast stands on real tables."""

from __future__ import annotations

from agents.models import Agent
from companies.models import Company, User
from issues.models import Issue
from tests import factories


def test_acme_has_an_owner_agents_and_numbered_issues(
    acme: Company, olga: User, ada: Agent, bo: Agent
) -> None:
    first = factories.issue(acme, assignee=ada)
    second = factories.issue(acme, assignee=olga)
    assert [first.identifier, second.identifier] == ["ACM-1", "ACM-2"]
    assert list(acme.members.all()) == [olga]
    assert ada.number < bo.number


def test_every_kind_of_row_can_be_made(issue: Issue, ada: Agent, bo: Agent) -> None:
    run = factories.running(ada, issue)
    factories.checkout(issue, ada, run)
    factories.comment(issue, author=bo, run=run)
    factories.interaction(issue, asked_by=ada)
    factories.hold(bo)
    factories.worker()
    factories.blocker(issue, by=factories.issue(issue.company))
    assert issue.runs.get().status == "running"
