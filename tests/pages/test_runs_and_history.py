"""All runs, how agents were set up, the org chart, tables to take away, the palette."""

from __future__ import annotations

import csv
import io
import re
from datetime import datetime, timedelta

import pytest
from django.test import Client

from agents import roster
from agents.models import Agent, AgentRevision
from companies import diagrams
from companies.activity import Actor
from companies.models import Company
from issues.models import Issue
from tests import factories
from tests.pages.conftest import Scene
from tests.pages.test_bulk_and_board import text

OLGA = Actor("user", None, "Olga")


def table(browser: Client, path: str) -> list[dict[str, str]]:
    answer = browser.get(f"/c/ACM/{path}")
    assert answer.status_code == 200
    assert "attachment" in answer["Content-Disposition"]
    body = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    return list(csv.DictReader(io.StringIO(body)))


# --- runs ------------------------------------------------------------------------------------


def test_runs_are_filtered_by_what_became_of_them(olgas: Client, scene: Scene) -> None:
    everything = text(olgas.get("/c/ACM/runs/"))
    assert f"run-{scene.failed_run.id}" in everything
    assert f"run-{scene.live_run.id}" in everything
    failed = text(olgas.get("/c/ACM/runs/?status=failed"))
    assert f"run-{scene.failed_run.id}" in failed
    assert f'id="run-{scene.live_run.id}"' not in failed
    assert 'id="run-' not in text(olgas.get(f"/c/ACM/runs/?status=failed&agent={scene.ada.id}"))


@pytest.mark.parametrize("odd", ["status=nonsense", "agent=x", "before=x", "hours=-1", "hours=9e9"])
def test_odd_filters_are_no_filters(olgas: Client, scene: Scene, odd: str) -> None:
    assert f"run-{scene.live_run.id}" in text(olgas.get(f"/c/ACM/runs/?{odd}"))


def test_the_picture_shows_who_worked_when_and_has_a_table(
    olgas: Client, scene: Scene, now: datetime
) -> None:
    old = factories.run(
        scene.ada,
        status="succeeded",
        now=now - timedelta(hours=9),
        started_at=now - timedelta(hours=9),
        finished_at=now - timedelta(hours=8),
    )
    page = text(olgas.get("/c/ACM/runs/picture?hours=6"))
    assert 'aria-label="Runs of Ada"' in page
    assert 'data-s="failed"' in page
    assert str(old.id) not in page
    assert str(old.id) in text(olgas.get("/c/ACM/runs/picture?hours=24"))
    # The same numbers for those who do not see the picture.
    assert page.count(f"/runs/{scene.failed_run.id}") == 2


def test_a_bar_stays_in_its_window() -> None:
    svg = diagrams.lane([diagrams.Span(-3.0, 0.5, "running", "Long", "/x")], "Ada")
    assert 'x="0"' in svg or 'x="0.0"' in svg
    assert 'width="500.0"' in svg


def test_runs_are_taken_away_as_a_table(olgas: Client, scene: Scene) -> None:
    rows = table(olgas, "runs/table.csv?status=failed")
    assert [(row["agent"], row["status"], row["code"]) for row in rows] == [
        ("Bo", "failed", "rate_limited")
    ]


def test_issues_are_taken_away_as_the_list_is_filtered(olgas: Client, acme: Company) -> None:
    factories.issue(acme, "=HYPERLINK(evil)", priority=1)
    factories.issue(acme, "Plain", priority=3)
    rows = table(olgas, "issues/table.csv?priority=high")
    assert [row["title"] for row in rows] == ["'=HYPERLINK(evil)"]


def test_the_roster_is_taken_away(olgas: Client, ada: Agent, bo: Agent) -> None:
    Agent.objects.filter(id=bo.id).update(reports_to=ada)
    rows = table(olgas, "agents/table.csv")
    assert [(row["agent"], row["reports_to"]) for row in rows] == [("Ada", ""), ("Bo", "Ada")]


# --- configuration ---------------------------------------------------------------------------


def test_a_change_shows_what_differs_and_is_undone(olgas: Client, ada: Agent) -> None:
    was = ada.title
    roster.update(agent=ada, changes={"title": "Head smith"}, actor=OLGA)
    page = text(olgas.get("/c/ACM/agents/ada/revisions"))
    assert "+ Head smith" in page
    assert f"- {was}" in page
    row = AgentRevision.objects.get()
    olgas.post(f"/c/ACM/agents/ada/revisions/{row.id}/restore", {"to": "before"})
    ada.refresh_from_db()
    assert ada.title == was
    assert AgentRevision.objects.filter(rolled_back_from=row).exists()


def test_an_older_state_is_gone_back_to(olgas: Client, ada: Agent) -> None:
    for title in ("One", "Two", "Three"):
        roster.update(agent=ada, changes={"title": title}, actor=OLGA)
        ada.refresh_from_db()
    first = AgentRevision.objects.order_by("id")[0]
    olgas.post(f"/c/ACM/agents/ada/revisions/{first.id}/restore", {"to": "after"})
    ada.refresh_from_db()
    assert ada.title == "One"


def test_differences_hide_what_may_be_a_secret(olgas: Client, ada: Agent) -> None:
    config = {**ada.adapter_config, "env": {"TOKEN": "hunter2"}}
    AgentRevision.objects.create(
        company_id=ada.company_id,
        agent=ada,
        before={"adapter_config": {}},
        after={"adapter_config": config},
        changed=["adapter_config"],
        created_at=ada.created_at,
    )
    page = text(olgas.get("/c/ACM/agents/ada/revisions"))
    assert "TOKEN" in page
    assert "hunter2" not in page


def test_a_viewer_sees_history_and_does_not_turn_it_back(veras: Client, ada: Agent) -> None:
    roster.update(agent=ada, changes={"title": "Head smith"}, actor=OLGA)
    row = AgentRevision.objects.get()
    assert "/restore" not in text(veras.get("/c/ACM/agents/ada/revisions"))
    answer = veras.post(f"/c/ACM/agents/ada/revisions/{row.id}/restore", {"to": "before"})
    assert answer.status_code == 403


# --- org chart -------------------------------------------------------------------------------


def test_the_org_chart_draws_everybody_below_their_manager(
    olgas: Client, ada: Agent, bo: Agent
) -> None:
    Agent.objects.filter(id=bo.id).update(reports_to=ada)
    page = text(olgas.get("/c/ACM/agents/?view=org"))
    assert page.count('class="box"') == 2
    assert page.count('class="edge"') == 1


def test_boxes_of_a_wide_tree_do_not_overlap() -> None:
    def node(name: str, *below: diagrams.Node) -> diagrams.Node:
        return diagrams.Node(name, "", "idle", "/", list(below))

    tops = [node("a", node("b"), node("c", *(node(f"d{n}") for n in range(5)))), node("e")]
    placed: list[diagrams._Placed] = []
    diagrams._place(tops, 0.0, 0, placed)
    assert len(placed) == 9
    rows: dict[float, list[float]] = {}
    for one in placed:
        rows.setdefault(one.y, []).append(one.x)
    for xs in rows.values():
        steps = [b - a for a, b in zip(sorted(xs), sorted(xs)[1:], strict=False)]
        assert all(step >= diagrams.BOX_W + diagrams.GAP_X for step in steps)


# --- the palette -----------------------------------------------------------------------------


def test_the_palette_finds_issues_agents_pages_and_actions(
    olgas: Client, acme: Company, ada: Agent, issue: Issue
) -> None:
    factories.issues(acme, 12)
    assert issue.title in text(olgas.get("/c/ACM/search?q=1"))
    assert issue.title in text(olgas.get("/c/ACM/search?q=anvil"))
    found = text(olgas.get("/c/ACM/search?q=pause+ada"))
    assert 'action="/c/ACM/agents/ada/pause"' in found
    assert 'href="/c/ACM/costs/"' in text(olgas.get("/c/ACM/search?q=money"))
    assert "Nothing is called" in text(olgas.get("/c/ACM/search?q=zzzz"))


def test_what_is_said_to_be_done_comes_before_who_it_is_done_to(
    olgas: Client, veras: Client, acme: Company
) -> None:
    """Enter takes the first entry."""
    ellis = factories.agent(acme, "Ellis")
    factories.issue(acme, "Pause Ellis for the holidays")

    def first(browser: Client, q: str) -> str:
        found = text(browser.get("/c/ACM/search", {"q": q}, headers=PALETTE))
        return re.findall(r'(?:href|action)="(/c/ACM/[^"]+)"', found)[0]

    for verb in ("pause", "wake", "resume"):
        assert first(olgas, f"{verb} ellis") == f"/c/ACM/agents/{ellis.slug}/{verb}"
        assert first(olgas, f"{verb.upper()} el") == f"/c/ACM/agents/{ellis.slug}/{verb}"
    assert first(olgas, "ellis").startswith("/c/ACM/issues/")
    assert first(olgas, "pause") != "/c/ACM/settings/state", "that would stop everybody"
    assert first(veras, "pause ellis") == "/c/ACM/issues/ACM-1"
    found = text(olgas.get("/c/ACM/search?q=pause+ellis"))
    assert found.count(f"/agents/{ellis.slug}/pause") == 1


PALETTE = {"HX-Request": "true", "HX-Target": "palette-found"}


def test_the_palette_finds_nothing_of_the_neighbours(
    olgas: Client, globex: Company, spy: Agent
) -> None:
    foreign = factories.issue(globex, "Hidden anvil")
    run = factories.run(spy, foreign)
    for text_of in ("Hidden", foreign.identifier, "Spy", str(run.id)):
        assert "Nothing is called" in text(olgas.get("/c/ACM/search", {"q": text_of}))


def test_viewers_are_offered_nothing_they_may_not(veras: Client, ada: Agent) -> None:
    page = text(veras.get("/c/ACM/search?q=ada"))
    assert "/agents/ada/" in page
    assert "/agents/ada/pause" not in page
    assert "/issues/new" not in text(veras.get("/c/ACM/search?q=new"))


@pytest.mark.parametrize("odd", ["\x00", "%", "_" * 500, "'; --", "𝕏", "9" * 200])
def test_odd_searches_are_answered(olgas: Client, issue: Issue, odd: str) -> None:
    assert olgas.get("/c/ACM/search", {"q": odd}).status_code == 200


# --- activity --------------------------------------------------------------------------------


def test_activity_is_found_by_name_and_day_and_taken_away(
    olgas: Client, acme: Company, issue: Issue, now: datetime
) -> None:
    olgas.post(f"/c/ACM/issues/{issue.identifier}/edit", {"priority": "high"})
    today = now.date().isoformat()
    for wish, found in (
        (f"who={issue.identifier}", True),
        ("who=nobody-of-that-name", False),
        (f"day={today}", True),
        ("day=2020-01-01", False),
        ("day=not-a-day", True),
    ):
        page = text(olgas.get(f"/c/ACM/activity/?{wish}"))
        assert (f"/issues/{issue.identifier}" in page) is found, wish
    rows = table(olgas, f"activity/table.csv?day={today}")
    assert rows[0]["action"] == "issue.updated"
    assert rows[0]["actor"] == "Olga"


def test_a_viewer_is_told_why_buttons_are_missing(veras: Client, olgas: Client) -> None:
    assert "You are a viewer here" in text(veras.get("/c/ACM/issues/"))
    assert "You are a viewer here" not in text(olgas.get("/c/ACM/issues/"))
