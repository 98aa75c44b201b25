"""Pages over the hours: without scripts, over a restart of the server, with two hands on one
button, at the width of a small phone, and when nothing happens at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, Page, Request, expect

from tests import mock_llm
from tests.browser.conftest import PREFIXES
from tests.browser.windows import settle, window
from tests.flows.office import Office
from tests.house.instance import Instance

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(180)]

BASE = f"/c/{PREFIXES['desk-light']}"
WORDS = [f"word{number}" for number in range(60)]


@pytest.fixture
def plain(browser: Browser, works: Instance, signed_in: Any) -> Iterator[Page]:
    """A browser without scripts."""
    with window(browser, works.port, "desk-light", state=signed_in, scripts=False) as opened:
        yield opened


@pytest.fixture
def desk(browser: Browser, works: Instance, signed_in: Any) -> Iterator[Page]:
    with window(browser, works.port, "desk-light", state=signed_in) as opened:
        yield opened


@pytest.fixture(scope="module")
def model() -> Iterator[mock_llm.Served]:
    with mock_llm.serve_in_thread() as served:
        yield served


# --- without scripts -------------------------------------------------------------------------


def test_every_page_serves_its_purpose_without_scripts(plain: Page) -> None:
    plain.goto(f"{BASE}/")
    plain.locator("#needs").get_by_role("link", name="Show").click()
    expect(plain.get_by_role("link", name="Move the launch")).to_be_visible()

    plain.goto(f"{BASE}/issues/new")
    plain.get_by_label("Title").fill("Written without scripts")
    plain.get_by_label("Status").select_option("backlog")
    plain.get_by_role("button", name="Create issue").click()
    expect(plain.get_by_role("heading", name="Written without scripts")).to_be_visible()
    issue = plain.url
    plain.get_by_label("Priority").select_option("high")
    plain.get_by_role("button", name="Save properties").click()
    expect(plain.get_by_label("Priority")).to_have_value("high")
    plain.get_by_label("Comment", exact=True).fill("A plain word.")
    plain.get_by_role("button", name="Comment", exact=True).click()
    expect(plain.get_by_text("A plain word.")).to_be_visible()

    plain.goto(f"{BASE}/issues/")
    plain.get_by_label("Priority", exact=True).select_option("high")
    plain.get_by_role("button", name="Apply").first.click()
    box = plain.get_by_role("checkbox", name=re.compile("Select"))
    expect(box).to_have_count(1)
    box.check()
    plain.get_by_label("Set status").select_option("cancelled")
    plain.locator("#bulk").get_by_role("button", name="Apply").click()
    expect(plain.get_by_text("Changed 1 issue.")).to_be_visible()
    plain.get_by_role("button", name="Undo").click()
    plain.goto(issue)
    expect(plain.get_by_label("Status")).to_have_value("backlog")

    plain.goto(f"{BASE}/search?q=shelf")
    expect(plain.get_by_role("link", name=re.compile("Sort shelf 1"))).to_be_visible()
    plain.goto(f"{BASE}/inbox/")
    plain.get_by_role("link", name="Move the launch").click()
    plain.get_by_role("button", name="Approve").click()
    expect(plain.get_by_text("Approved.")).to_be_visible()
    for path in ("agents/", "agents/?view=org", "runs/", "costs/", "activity/", "settings/"):
        plain.goto(f"{BASE}/{path}")
        expect(plain.get_by_role("heading", level=1)).to_be_visible()


# --- the stream ------------------------------------------------------------------------------


@pytest.fixture
def patient(browser: Browser, works: Instance, signed_in: Any) -> Iterator[Page]:
    """A browser whose server goes away for a while."""
    gone = ("net::ERR_", "502", "503")
    with window(browser, works.port, "desk-light", state=signed_in, expected=gone) as opened:
        yield opened


def test_a_restart_of_the_server_costs_no_line_and_doubles_none(
    patient: Page, works: Instance, model: mock_llm.Served
) -> None:
    with Office(works, "Steady", "STD") as office:
        office.set_prices()
        config = {"baseUrl": model.url, "model": "gpt-4o-mini", "tools": False}
        agent = office.hire("Ada", "openai", config, onFinish="done")
        text = " ".join(WORDS)
        issue = office.give(agent, "Count", f"Slowly. [[mock:text={text};chunks=60;delay=0.2]]")
        run = office.run_of(issue)
        patient.goto(f"/c/STD/runs/{run}")
        lines = patient.locator("[data-lines]")
        expect(lines).to_contain_text(WORDS[5], timeout=60_000)
        web = [
            child
            for child in psutil.Process(works.process.pid).children()  # type: ignore[union-attr]
            if "granian" in " ".join(child.cmdline())
        ]
        for child in web:
            child.terminate()
        expect(lines).to_contain_text(WORDS[-1], timeout=90_000)
        expect(patient.locator("[data-log-conn]")).to_contain_text("line", timeout=30_000)
        told = re.findall(r"word\d+", lines.inner_text())
        assert told == WORDS
        patient.goto(f"/c/STD/runs/{run}")
        assert re.findall(r"word\d+", lines.inner_text()) == WORDS


def test_a_page_holds_one_stream_however_often_its_parts_are_swapped(desk: Page) -> None:
    streams: list[str] = []
    desk.on("request", lambda asked: "/events" in asked.url and streams.append(asked.url))
    desk.goto(f"{BASE}/")
    settle(desk)
    for _ in range(50):
        desk.evaluate("document.body.dispatchEvent(new CustomEvent('live:all'))")
    settle(desk)
    assert len(streams) == 1


def test_a_part_that_was_swapped_hears_the_next_event(desk: Page) -> None:
    """The listener is on the body; what comes in takes its place."""
    desk.goto(f"{BASE}/issues/")
    settle(desk)
    for n in (1, 2):
        other = desk.context.new_page()
        other.goto(f"{BASE}/issues/new")
        other.get_by_label("Title").fill(f"Late guest {n}")
        other.get_by_role("button", name="Create issue").click()
        other.wait_for_url(re.compile(r"/issues/\w+-\d+$"))
        other.close()
        expect(desk.get_by_role("link", name=f"Late guest {n}")).to_be_visible()


def at_rest(page: Page, asked: list[Request]) -> None:
    """Until the page has asked for nothing in two seconds; it must come to that within thirty."""
    expect(page.locator("[data-conn]").first).to_have_attribute("data-state", "live")
    for _ in range(15):
        before = len(asked)
        page.wait_for_timeout(2_000)
        if len(asked) == before:
            return
    raise AssertionError([one.url for one in asked])


def test_a_tab_where_nothing_happens_asks_nothing(desk: Page, works: Instance) -> None:
    with Office(works, "Still", "STL"):
        desk.goto("/c/STL/")
        settle(desk)
        asked: list[Request] = []
        desk.on("request", lambda one: asked.append(one))
        # What the office's making said is told a page that came right after it.
        at_rest(desk, asked)
        asked.clear()
        desk.wait_for_timeout(5_000)
        assert [one.url for one in asked] == []


# --- hands and widths ------------------------------------------------------------------------


def test_a_double_click_makes_one_issue(desk: Page) -> None:
    desk.goto(f"{BASE}/issues/new")
    desk.get_by_label("Title").fill("Twice as eager")
    desk.get_by_role("button", name="Create issue").dblclick()
    desk.wait_for_url(re.compile(r"/issues/\w+-\d+$"))
    desk.goto(f"{BASE}/issues/?q=Twice")
    expect(desk.get_by_role("link", name="Twice as eager")).to_have_count(1)


def test_what_was_typed_outlives_an_error(
    browser: Browser, works: Instance, signed_in: Any
) -> None:
    with window(browser, works.port, "desk-light", state=signed_in, expected=("422",)) as desk:
        _overfill(desk)


def _overfill(desk: Page) -> None:
    desk.goto(f"{BASE}/issues/new")
    desk.get_by_label("Description").fill("A long story.")
    desk.get_by_label("Title").fill("x" * 299)
    desk.locator("#id_title").evaluate("(field) => field.removeAttribute('maxlength')")
    desk.get_by_label("Title").fill("x" * 400)
    desk.get_by_role("button", name="Create issue").click()
    expect(desk.locator("#id_title_error")).to_be_visible()
    expect(desk.get_by_label("Description")).to_have_value("A long story.")


def test_long_words_tables_and_code_fit_a_small_phone(
    browser: Browser, works: Instance, signed_in: Any
) -> None:
    with window(browser, works.port, "phone-light", state=signed_in) as page:
        page.set_viewport_size({"width": 375, "height": 700})
        page.goto(f"{BASE}/issues/new")
        page.get_by_label("Title").fill("T" * 200)
        wide = "| " + " | ".join(f"column{n}" for n in range(20)) + " |\n" + "|---" * 20 + "|\n"
        page.get_by_label("Description").fill(f"{'a' * 500}\n\n{wide}\n```\n{'code ' * 100}\n```\n")
        page.get_by_role("button", name="Create issue").click()
        page.wait_for_url(re.compile(r"/issues/\w+-\d+$"))
        seen = [page.url]
        seen += [
            f"{BASE}/{path}" for path in ("", "issues/", "issues/board", "inbox/", "activity/")
        ]
        for address in seen:
            page.goto(address)
            settle(page)
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= 375, address


def test_a_full_column_keeps_its_head_and_lets_the_last_one_be_reached(
    desk: Page, works: Instance
) -> None:
    desk.set_viewport_size({"width": 1280, "height": 800})
    desk.goto(f"{BASE}/issues/board")
    settle(desk)
    column = desk.locator("[data-column=backlog]")
    column.locator(".board-cards").evaluate("(box) => box.scrollTo(0, box.scrollHeight)")
    expect(column.locator("header")).to_be_in_viewport()
    desk.locator("[data-column=done]").scroll_into_view_if_needed()
    expect(desk.locator("[data-column=done] header")).to_be_in_viewport()
