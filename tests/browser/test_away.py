"""A tab that is cut off, that nobody looks at for long, or whose stream is not there at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import PREFIXES
from tests.browser.windows import settle, window
from tests.house.instance import Instance

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(180)]

BASE = f"/c/{PREFIXES['desk-light']}"
MOST_TRIES, MINUTES = 10, 5
LOOK_AWAY = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
# What the browser itself says about a request that could not be made.
CUT_OFF = ("ERR_INTERNET_DISCONNECTED", "ERR_NETWORK", "404")


@pytest.fixture
def desk(browser: Browser, works: Instance, signed_in: Any) -> Iterator[Page]:
    with window(browser, works.port, "desk-light", state=signed_in, expected=CUT_OFF) as opened:
        yield opened


@pytest.fixture
def hands(browser: Browser, works: Instance, signed_in: Any) -> Iterator[Page]:
    """A second browser, which goes on working."""
    with window(browser, works.port, "desk-light", state=signed_in) as opened:
        yield opened


def write(page: Page, title: str) -> None:
    page.goto(f"{BASE}/issues/new")
    page.get_by_label("Title").fill(title)
    page.get_by_role("button", name="Create issue").click()
    page.wait_for_url(re.compile(r"/issues/\w+-\d+$"))


def live(page: Page) -> None:
    expect(page.locator("[data-conn]").first).to_have_attribute("data-state", "live")


def test_what_changed_while_the_network_was_away_is_shown_when_it_is_back(
    desk: Page, hands: Page
) -> None:
    desk.goto(f"{BASE}/issues/")
    settle(desk)
    live(desk)
    # An open stream outlives Chromium's switch: this one is cut at its next beginning.
    desk.context.set_offline(True)
    desk.evaluate("dispatchEvent(new Event('pagehide'))")
    desk.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    pill = desk.locator("[data-conn]").first
    expect(pill).to_have_attribute("data-state", "retrying")
    expect(pill).to_contain_text("Offline")
    for n in (1, 2, 3):
        write(hands, f"Behind your back {n}")
    expect(desk.get_by_role("link", name="Behind your back 1")).to_have_count(0)
    desk.context.set_offline(False)
    live(desk)
    for n in (1, 2, 3):
        expect(desk.get_by_role("link", name=f"Behind your back {n}")).to_be_visible()


def test_a_tab_that_slept_is_right_when_somebody_looks_again(desk: Page, hands: Page) -> None:
    desk.clock.install()
    desk.goto(f"{BASE}/issues/")
    desk.clock.run_for(1_000)
    settle(desk)
    live(desk)
    desk.evaluate(LOOK_AWAY, True)
    desk.clock.run_for(600_000)
    expect(desk.locator("[data-conn]").first).to_have_attribute("data-state", "off")
    write(hands, "While you slept")
    desk.evaluate(LOOK_AWAY, False)
    live(desk)
    desk.clock.run_for(1_000)
    expect(desk.get_by_role("link", name="While you slept")).to_be_visible()


def test_a_stream_that_is_not_there_is_asked_for_less_and_less(desk: Page) -> None:
    tries: list[str] = []

    def refuse(route: Route) -> None:
        tries.append(route.request.url)
        route.fulfill(status=404, body="")

    desk.route("**/events?*", refuse)
    desk.clock.install()
    desk.goto(f"{BASE}/issues/")
    for _ in range(MINUTES * 30):
        desk.clock.run_for(2_000)
    assert 5 <= len(tries) <= MOST_TRIES
    expect(desk.locator("[data-conn]").first).to_have_attribute("data-state", "retrying")
