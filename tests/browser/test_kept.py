"""What somebody is busy with stays as it is when its part of the page is fetched anew: what is
unfolded, where the focus is, how far a box is scrolled, what was typed and not sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests import mock_llm
from tests.browser.conftest import PREFIXES
from tests.browser.windows import drag, settle, window
from tests.flows.office import Office
from tests.house.instance import Instance

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(180)]

BASE = f"/c/{PREFIXES['desk-light']}"
PATIENCE_MS = 60_000
LINES = [f"line {number} of what it says" for number in range(80)]


@pytest.fixture
def desk(browser: Browser, works: Instance, signed_in: Any) -> Iterator[Page]:
    with window(browser, works.port, "desk-light", state=signed_in) as opened:
        yield opened


@pytest.fixture(scope="module")
def model() -> Iterator[mock_llm.Served]:
    with mock_llm.serve_in_thread() as served:
        yield served


@pytest.fixture(scope="module")
def office(works: Instance, model: mock_llm.Served) -> Iterator[Office]:
    """A company whose agent writes eighty lines in half a minute."""
    with Office(works, "Readers", "RDR") as made:
        made.set_prices()
        yield made


def _at_work(office: Office, model: mock_llm.Served, name: str) -> dict[str, Any]:
    config = {"baseUrl": model.url, "model": "gpt-4o-mini", "tools": False}
    agent = office.hire(name, "openai", config, onFinish="done")
    text = "\n".join(LINES)
    said = f"Write. [[mock:text={text};chunks=80;delay=0.15]]"
    return office.give(agent, f"Write for {name}", said)


def anew(page: Page) -> None:
    """Every part of the page looks again at what it shows."""
    with page.expect_response(lambda answer: "hx-request" in answer.request.headers):
        page.evaluate("document.body.dispatchEvent(new CustomEvent('live:all'))")
    settle(page)


def scrolled(box: Locator) -> int:
    return int(box.evaluate("(box) => box.scrollTop"))


def test_a_run_that_is_read_stays_open_when_it_ends(
    desk: Page, office: Office, model: mock_llm.Served
) -> None:
    issue = _at_work(office, model, "Ada")
    desk.goto(f"/c/RDR/issues/{issue['identifier']}")
    fold = desk.locator("details.run-fold")
    expect(fold).to_have_attribute("data-s", "running", timeout=PATIENCE_MS)
    head = fold.locator("summary").first
    head.focus()
    desk.keyboard.press("Enter")
    log = fold.locator(".log")
    expect(log).to_contain_text(LINES[30], timeout=PATIENCE_MS)
    log.evaluate("(box) => box.scrollTo(0, 120)")

    expect(fold).to_have_attribute("data-s", "succeeded", timeout=PATIENCE_MS)
    expect(fold).to_have_attribute("open", "")
    expect(log).to_contain_text(LINES[-1])
    assert scrolled(log) == 120
    expect(head).to_be_focused()


def test_the_page_of_a_run_stays_where_it_is_read(
    desk: Page, office: Office, model: mock_llm.Served
) -> None:
    issue = _at_work(office, model, "Bea")
    desk.goto(f"/c/RDR/runs/{office.run_of(issue)}")
    log = desk.locator(".log")
    expect(log).to_contain_text(LINES[60], timeout=PATIENCE_MS)
    search = desk.get_by_label("Search the log")
    search.fill("line 7")
    log.evaluate("(box) => box.scrollTo(0, 96)")
    expect(desk.get_by_role("button", name="Run again")).to_be_visible(timeout=PATIENCE_MS)
    expect(desk.locator("[data-found]")).to_have_text("11 found")
    assert scrolled(log) == 96
    expect(search).to_have_value("line 7")
    expect(search).to_be_focused()


def test_the_end_of_a_run_that_is_followed_stays_in_sight(
    desk: Page, office: Office, model: mock_llm.Served
) -> None:
    issue = _at_work(office, model, "Cleo")
    desk.goto(f"/c/RDR/runs/{office.run_of(issue)}")
    expect(desk.get_by_role("button", name="Run again")).to_be_visible(timeout=PATIENCE_MS)
    expect(desk.get_by_text(LINES[-1])).to_be_in_viewport()


def test_a_stop_button_that_goes_never_becomes_another_one(
    desk: Page, office: Office, model: mock_llm.Served
) -> None:
    issue = _at_work(office, model, "Dora")
    desk.goto(f"/c/RDR/runs/{office.run_of(issue)}")
    desk.get_by_role("button", name="Stop").focus()
    expect(desk.get_by_role("button", name="Run again")).to_be_visible(timeout=PATIENCE_MS)
    expect(desk.locator("#run-actions")).to_be_focused()


def test_what_was_unfolded_stays_unfolded_and_focused(desk: Page) -> None:
    for path in ("", "costs/", "agents/?view=org"):
        desk.goto(f"{BASE}/{path}")
        settle(desk)
        fold = desk.locator("details", has_text="As a").last
        opened = fold.get_attribute("open") is not None
        head = fold.locator("summary")
        head.focus()
        desk.keyboard.press("Enter")
        anew(desk)
        assert (fold.get_attribute("open") is not None) is not opened, path
        expect(head).to_be_focused()


def test_a_note_that_is_half_written_outlives_a_refresh(desk: Page) -> None:
    desk.goto(f"{BASE}/inbox/")
    desk.get_by_role("link", name="Move the launch").click()
    desk.get_by_label("Note").fill("Not before we have")
    approve = desk.get_by_role("button", name="Approve")
    approve.focus()
    anew(desk)
    expect(desk.get_by_label("Note")).to_have_value("Not before we have")
    expect(approve).to_be_focused()


def test_a_link_of_a_list_keeps_the_focus(desk: Page) -> None:
    for path, name in (("issues/", "Sort shelf 3"), ("agents/", "Bo")):
        desk.goto(f"{BASE}/{path}")
        settle(desk)
        link = desk.locator("#content").get_by_role("link", name=name, exact=True).first
        link.focus()
        anew(desk)
        expect(link).to_be_focused()


def test_what_somebody_sends_goes_before_what_is_live(desk: Page) -> None:
    """A board that is fetched anew would take away the element that their answer is meant for."""
    desk.goto(f"{BASE}/issues/board")
    settle(desk)
    sent: list[Route] = []
    fetched: list[str] = []
    desk.route("**/issues/move*", lambda route: sent.append(route))
    desk.on("request", lambda one: fetched.append(one.url) if "/board" in one.url else None)
    card = desk.locator("[data-column=backlog] [data-card]", has_text="Sort shelf 3")
    drag(card, desk.locator("[data-column=todo]"), "**/issues/move*")
    desk.evaluate("document.body.dispatchEvent(new CustomEvent('live:all'))")
    desk.wait_for_timeout(300)
    assert fetched == []
    with desk.expect_response("**/issues/board*"):  # told again when they were answered
        sent[0].continue_()
    moved = desk.locator("[data-column=todo] [data-card]", has_text="Sort shelf 3")
    expect(moved).to_be_visible()
    desk.unroute("**/issues/move*")


def test_what_is_live_and_on_its_way_is_fetched_again_after_what_somebody_sent(desk: Page) -> None:
    desk.goto(f"{BASE}/issues/board")
    settle(desk)
    on_its_way: list[Route] = []
    desk.route("**/issues/board*", lambda route: on_its_way.append(route), times=1)
    with desk.expect_request("**/issues/board*"):
        desk.evaluate("document.body.dispatchEvent(new CustomEvent('live:all'))")
    while not on_its_way:  # the driver tells the route a little later than the request
        desk.wait_for_timeout(20)
    old = on_its_way[0].fetch()
    card = desk.locator("[data-column=backlog] [data-card]", has_text="Sort shelf 2")
    drag(card, desk.locator("[data-column=todo]"), "**/issues/move*")
    moved = desk.locator("[data-column=todo] [data-card]", has_text="Sort shelf 2")
    expect(moved).to_be_visible()
    on_its_way[0].fulfill(response=old)
    desk.wait_for_timeout(300)
    expect(moved).to_be_visible()
