"""What a page may cost: queries, bytes; and what the browser is sent."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agents.models import Agent
from companies.models import Company
from tests import factories
from tests.pages.conftest import Scene, event

QUERIES = 12


@pytest.fixture
def crowd(acme: Company, scene: Scene) -> Scene:
    """Enough rows that a query a row would be seen at once."""
    for n in range(30):
        agent = factories.agent(acme, f"Worker {n}")
        issue = factories.issue(acme, f"Task {n}", assignee=agent)
        factories.run(agent, issue)
        blocked = factories.issue(acme, f"Blocked {n}", assignee=agent, status="blocked")
        factories.blocker(blocked, issue)
        factories.comment(scene.running, f"Comment {n}", author=agent)
        factories.run(scene.ada, scene.running, status="succeeded")
        factories.interaction(factories.issue(acme, f"Ask {n}", assignee=agent), asked_by=agent)
        event(scene.live_run, n + 2, "stdout", f"line {n}\n")
    return scene


PAGES = (
    "",
    "panels/glance",
    "panels/running",
    "panels/needs",
    "panels/waiting",
    "panels/money",
    "panels/recent",
    "inbox/",
    "inbox/?show=aside",
    "inbox/?show=decided",
    "search?q=a",
    "issues/",
    "issues/?group=assignee&sort=updated",
    "issues/board",
    "issues/new",
    "issues/{issue}",
    "issues/{issue}/why",
    "issues/{issue}/handed-in",
    "agents/",
    "agents/?view=org",
    "agents/ada/",
    "agents/ada/runs",
    "agents/ada/configuration",
    "agents/ada/revisions",
    "runs/",
    "runs/{run}",
    "runs/{run}/transcript",
    "costs/",
    "costs/kept",
    "costs/prices",
    "costs/prices?q=gpt",
    "costs/bill",
    "costs/archive",
    "activity/",
    "goals/",
    "settings/",
    "settings/connections/",
)


def asked(browser: Client, path: str) -> int:
    """How many statements a page sends."""
    with CaptureQueriesContext(connection) as captured:
        assert browser.get(f"/c/ACM/{path}").status_code == 200, path
    return len(captured)


def test_every_page_asks_the_database_a_bounded_number_of_questions(
    olgas: Client, crowd: Scene
) -> None:
    names = {"issue": crowd.running.identifier, "run": crowd.live_run.id}
    counted = {path: asked(olgas, path.format(**names)) for path in PAGES}
    assert {path: n for path, n in counted.items() if n > QUERIES} == {}


def test_the_issues_of_an_agent_ask_one_more(olgas: Client, crowd: Scene) -> None:
    assert asked(olgas, "agents/ada/issues") <= QUERIES + 1


def test_a_list_of_fifty_issues_fits_its_bytes(olgas: Client, acme: Company, ada: Agent) -> None:
    factories.issues(acme, 60, assignee=ada)
    page = olgas.get("/c/ACM/issues/").content
    assert len(gzip.compress(page)) < 60_000


def _packed(paths: list[str]) -> int:
    total = 0
    for path in paths:
        found = finders.find(path)
        assert found, path
        total += len(gzip.compress(Path(found).read_bytes()))
    return total


def test_scripts_and_styles_fit_their_bytes(client: Client, db: None) -> None:
    page = client.get("/sign-in").content.decode()
    prefix = re.escape(settings.STATIC_URL)
    styles = re.findall(rf'href="{prefix}([^"]+\.css)"', page)
    scripts = re.findall(rf'src="{prefix}([^"]+\.js)"', page)
    folder = Path(str(finders.find("paperclip/js/app.js"))).parent
    modules = [f"paperclip/js/{path.name}" for path in folder.glob("*.js")]
    assert _packed(styles) < 25_000
    assert _packed(sorted({*scripts, *modules})) < 45_000


def test_no_page_needs_inline_script_or_style(olgas: Client, scene: Scene) -> None:
    paths = (
        "",
        "issues/",
        "issues/board",
        "agents/",
        "costs/",
        "settings/",
        "agents/ada/",
        "goals/",
    )
    own = (f"issues/{scene.running.identifier}", f"runs/{scene.failed_run.id}")
    for path in (*paths, *own, "agents/ada/", "agents/ada/configuration"):
        answer = olgas.get(f"/c/ACM/{path}")
        page = answer.content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)", page), path
        assert "<style" not in page, path
        assert not re.search(r"\sstyle=", page), path
        assert not re.search(r"\son[a-z]+=", page), path
        policy = answer["Content-Security-Policy"]
        assert "unsafe" not in policy


def test_every_icon_that_is_used_is_in_the_sprite() -> None:
    sprite = Path(str(finders.find("paperclip/icons.svg"))).read_text()
    have = set(re.findall(r'<symbol id="([^"]+)"', sprite))
    used: set[str] = set()
    for template in (settings.BASE_DIR / "templates").rglob("*.html"):
        source = template.read_text()
        used |= set(re.findall(r'{% icon "([^"]+)"', source))
        used |= set(re.findall(r'glyph_name="([^"]+)"', source))
    assert used
    assert used <= have, used - have


def test_the_style_guide_shows_itself(client: Client, db: None) -> None:
    page = client.get("/styleguide/").content.decode()
    assert "Style guide" in page
    assert "EventSource" not in page


def test_no_part_of_a_page_drops_what_it_hears() -> None:
    # A throttle lets the first event through and forgets the last, so a page would stay as it was
    # before; `live.js` paces the events of a topic and keeps the last.
    for template in (settings.BASE_DIR / "templates").rglob("*.html"):
        for trigger in re.findall(r'hx-trigger="([^"]*)"', template.read_text()):
            assert "live:" not in trigger or "throttle" not in trigger, template.name
