"""What people are told to do about a failed run is true: it depends on what really follows."""

from __future__ import annotations

from datetime import datetime, timedelta
from html import unescape

import pytest
from django.test import Client

from agents import outcomes, runs
from agents.adapters.base import Code
from agents.models import Agent, HeartbeatRun
from companies.models import Company, User
from issues import desk, why
from issues.models import Issue
from paperclip import dashboard
from paperclip.engine.closing import Ending, close_run
from tests import factories
from tests.pages.test_bulk_and_board import text

PROMISES = ("by itself", "repeated later", "is queued")


@pytest.fixture
def work(acme: Company, ada: Agent) -> Issue:
    return factories.issue(acme, "Pour the steel", status="in_progress", assignee=ada)


def fail(agent: Agent, issue: Issue, code: str, **said: object) -> HeartbeatRun:
    """One run of the issue, ended by the engine with this failure."""
    run = factories.running(agent, issue, reason="issue_assigned")
    factories.checkout(issue, agent, run)
    claimed = runs.Claimed(
        run.id, 1, agent.company_id, agent.id, issue.id, run.created_at, agent.adapter_type, 1
    )
    close_run(claimed, Ending("failed", str(code), "It was told so.", **said))  # type: ignore[arg-type]
    run.refresh_from_db()
    return run


def told(browser: Client, run: HeartbeatRun, agent: Agent, issue: Issue) -> dict[str, str]:
    """All places that say what to do."""
    places = {
        "box": f"issues/{issue.identifier}",
        "inbox": f"inbox/?item={run.id}",
        "banner": f"agents/{agent.slug}/",
        "run": f"runs/{run.id}",
    }
    return {key: unescape(text(browser.get(f"/c/ACM/{path}"))) for key, path in places.items()}


@pytest.mark.parametrize("code", list(Code))
def test_a_failure_that_nothing_follows_says_what_a_person_can_do(
    olgas: Client, ada: Agent, work: Issue, code: Code
) -> None:
    run = fail(ada, work, code, acted=True)

    assert not HeartbeatRun.objects.filter(status="queued").exists()
    for place, page in told(olgas, run, ada, work).items():
        for promise in PROMISES:
            assert promise not in page, (place, promise)
        assert outcomes.of(code).remedy in page, place
    work.refresh_from_db()
    assert work.status == "blocked"
    assert outcomes.of(code).remedy in work.blocked_reason
    assert outcomes.of(code).remedy in work.comments.get().body


@pytest.mark.parametrize("code", [code for code in Code if outcomes.of(code).transient])
def test_a_failure_that_is_tried_again_by_itself_needs_nobody(
    olgas: Client, olga: User, acme: Company, ada: Agent, work: Issue, code: Code, now: datetime
) -> None:
    """It is in nobody's inbox, and each place says when it starts."""
    run = fail(ada, work, code)

    queued = HeartbeatRun.objects.get(status="queued")
    assert desk.of(company_id=acme.id, user=olga, now=now).waiting == []
    assert dashboard.badges(acme, olga)["needs_you"] == 0
    assert not work.comments.exists()
    pages = told(olgas, run, ada, work)
    assert "Nothing needs you" in pages.pop("inbox")
    for place, page in pages.items():
        assert "tried again by itself" in page, place
        assert "then run the agent again" not in page, place
    assert "Next attempt" in pages["box"]
    assert f"/c/ACM/runs/{queued.id}" in pages["run"]
    first = why.not_running(Issue.objects.get(id=work.id))[0]
    assert (first.code, first.at) == ("retry_at", queued.not_before)


def test_a_lost_run_that_goes_on_elsewhere_asks_nobody(
    olgas: Client, ada: Agent, work: Issue, now: datetime
) -> None:
    lost = factories.run(ada, work, status="lost", code=Code.LOST)
    Agent.objects.filter(id=ada.id).update(error_code=Code.LOST)
    factories.run(ada, work, retry_of=lost, attempt=2)

    pages = told(olgas, lost, ada, work)
    assert "Nothing needs you" in pages.pop("inbox")
    for place, page in pages.items():
        assert "tried again by itself" in page, place


def test_another_agents_queued_run_is_no_attempt_of_this_one(
    olgas: Client, acme: Company, ada: Agent, bo: Agent, work: Issue
) -> None:
    run = fail(ada, work, Code.PROVIDER_OVERLOADED, acted=True)
    factories.run(bo, work, retry_of=run, attempt=2)
    factories.run(ada, work, reason="issue_commented")

    for place, page in told(olgas, run, ada, work).items():
        assert "by itself" not in page, place


def test_what_was_tried_again_since_asks_nobody_to_do_it(
    olgas: Client, ada: Agent, work: Issue
) -> None:
    run = fail(ada, work, Code.PROVIDER_OVERLOADED)
    HeartbeatRun.objects.filter(status="queued").update(
        status="succeeded", started_at=run.created_at, finished_at=run.created_at
    )

    page = text(olgas.get(f"/c/ACM/runs/{run.id}"))
    assert "It was tried again" in page
    assert "run the agent again" not in page


def test_a_beat_without_an_issue_is_known_by_its_own_attempt(
    olga: User, acme: Company, ada: Agent, work: Issue, now: datetime
) -> None:
    Agent.objects.filter(id=ada.id).update(error_code=Code.CONNECT_FAILED)
    run = factories.run(ada, status="failed", code=Code.CONNECT_FAILED)
    later = factories.run(ada, work, retry_of=run, attempt=2)
    assert len(desk.of(company_id=acme.id, user=olga, now=now).waiting) == 1
    assert dashboard.badges(acme, olga)["needs_you"] == 1

    HeartbeatRun.objects.filter(id=later.id).update(issue=None)
    assert desk.of(company_id=acme.id, user=olga, now=now).waiting == []
    assert dashboard.badges(acme, olga)["needs_you"] == 0


def test_a_failure_keeps_no_other_run_from_starting(
    olgas: Client, acme: Company, ada: Agent, work: Issue, now: datetime
) -> None:
    run = fail(ada, work, Code.AUTH_FAILED)
    factories.run(ada, factories.issue(acme, assignee=ada), not_before=now + timedelta(minutes=5))

    page = text(olgas.get(f"/c/ACM/inbox/?item={run.id}"))
    assert "Key not accepted" in page
    assert "cannot start" not in page


@pytest.mark.parametrize("connected", [True, False])
def test_only_who_reaches_a_provider_by_a_connection_is_sent_to_the_providers(
    olgas: Client, acme: Company, ada: Agent, work: Issue, connected: bool
) -> None:
    if connected:
        ada.connection = factories.provider(acme)
        ada.save()
    fail(ada, work, Code.PROVIDER_OVERLOADED, acted=True)

    page = text(olgas.get(f"/c/ACM/issues/{work.identifier}"))
    box = page[page.index('aria-label="Why it failed"') :].partition("</section>")[0]
    assert ("/settings/connections/" in box) is connected
    assert "Open the log" in box


@pytest.mark.parametrize("code", list(Code))
def test_a_failure_has_one_name_everywhere(
    olgas: Client, ada: Agent, work: Issue, code: Code
) -> None:
    run = fail(ada, work, code, acted=True)

    title = outcomes.of(code).title
    pages = told(olgas, run, ada, work)
    pages["runs"] = unescape(text(olgas.get("/c/ACM/runs/")))
    pages["runs of the agent"] = unescape(text(olgas.get("/c/ACM/agents/ada/runs")))
    for place, page in pages.items():
        assert title in page, place
        other = str(code).replace("_", " ").capitalize()
        assert other == title or f">{other}<" not in page, place
