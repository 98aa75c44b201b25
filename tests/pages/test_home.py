"""The company's home: five answers, each panel by itself."""

from __future__ import annotations

from datetime import datetime

from django.test import Client

from agents import connections
from agents.models import Agent, ProviderConnection
from companies.activity import SYSTEM
from companies.models import Company
from paperclip import dashboard
from tests import factories
from tests.pages.conftest import Scene


def text(answer: object) -> str:
    return answer.content.decode()  # type: ignore[attr-defined, no-any-return]


def test_each_panel_loads_by_itself(olgas: Client, scene: Scene) -> None:
    page = text(olgas.get("/c/ACM/"))
    for name in ("glance", "running", "needs", "waiting", "money", "recent"):
        assert f'hx-get="/c/ACM/panels/{name}" hx-trigger="load' in page


def test_running_shows_who_is_at_what(olgas: Client, scene: Scene) -> None:
    page = text(olgas.get("/c/ACM/panels/running"))
    assert "Forge the first anvil" in page
    assert "search_ore(where=hill)" in page


def test_needs_you_asks_and_takes_the_answer(olgas: Client, scene: Scene) -> None:
    page = text(olgas.get("/c/ACM/panels/needs"))
    assert "Round or square?" in page
    assert f"/issues/{scene.asking.identifier}#question-{scene.question}" in page


def test_a_provider_that_is_cut_off_needs_a_person(
    olgas: Client, acme: Company, now: datetime
) -> None:
    connections.create(
        company=acme,
        kind="openai",
        name="Main account",
        actor=SYSTEM,
        now=now,
        base_url="https://api.example.com/v1",
    )
    ProviderConnection.objects.update(breaker="open", open_code="quota_exhausted", opened_at=now)
    assert "/c/ACM/settings/connections/" in text(olgas.get("/c/ACM/panels/needs"))
    assert ">1<" in text(olgas.get("/c/ACM/panels/badges"))


def test_stuck_names_the_reason(olgas: Client, acme: Company, ada: Agent) -> None:
    first = factories.issue(acme, "First", assignee=ada)
    second = factories.issue(acme, "Second", assignee=ada, status="blocked")
    factories.blocker(second, first)
    factories.run(ada, first)
    page = text(olgas.get("/c/ACM/panels/waiting"))
    assert "Blocked by ACM-1" in page
    assert 'id="issue-ACM-1"' not in page


def test_an_unknown_panel_is_not_found(olgas: Client) -> None:
    assert olgas.get("/c/ACM/panels/nonsense").status_code == 404


def test_first_steps_go_away_when_they_are_done(olgas: Client, acme: Company, ada: Agent) -> None:
    assert "First steps" in text(olgas.get("/c/ACM/"))
    issue = factories.issue(acme, assignee=ada)
    factories.run(ada, issue, status="succeeded")
    assert "First steps" not in text(olgas.get("/c/ACM/"))


def test_a_viewer_is_not_told_what_to_set_up(veras: Client) -> None:
    assert "First steps" not in text(veras.get("/c/ACM/"))


def test_another_companys_work_is_not_counted(
    olgas: Client, acme: Company, globex: Company, spy: Agent
) -> None:
    theirs = factories.issue(globex, "Theirs", assignee=spy, status="in_progress")
    factories.running(spy, theirs)
    for name in ("glance", "running", "needs", "waiting", "recent"):
        assert "Theirs" not in text(olgas.get(f"/c/ACM/panels/{name}"))
    assert "nothing queued" in text(olgas.get("/c/ACM/panels/glance"))


def test_a_run_that_was_begun_once_more_is_no_failure(
    acme: Company, ada: Agent, now: datetime
) -> None:
    """Its process was stopped or killed; how the next one ended is what counts."""
    for status in ("lost", "lost", "succeeded", "unknown"):
        factories.run(ada, status=status, finished_at=now)
    assert dashboard.throughput(acme, now)[-1][1:] == (1, 1)
