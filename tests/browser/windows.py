"""Browsers of a desk and of a phone, in light and dark, and what must never displease them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Locator,
    Page,
    Response,
    expect,
)

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_RUN = """(rules) => axe.run(document, {runOnly: rules}).then((found) => found.violations.map(
  (one) => `${one.id}: ${one.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(" ")}`))"""
SIZES = {"desk": (1440, 900), "phone": (390, 844)}
VIEWS = ("desk-light", "desk-dark", "phone-light", "phone-dark")
PATIENCE_MS = 20_000


@dataclass
class Complaints:
    """What the browser found wrong with the pages: errors of scripts, of requests, of policies."""

    found: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()  # parts of what a test provokes itself

    def watch(self, page: Page) -> None:
        page.on("console", self.hear)
        page.on("pageerror", lambda error: self.note(f"script: {error}"))
        page.on("response", self.see)
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error("
            "`policy: ${e.violatedDirective} ${e.blockedURI}`))"
        )

    def hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.note(f"{message.type}: {message.text}")

    def note(self, words: str) -> None:
        if not any(part in words for part in self.expected):
            self.found.append(words)

    def see(self, answer: Response) -> None:
        if answer.status >= 400:
            self.note(f"{answer.status} {answer.url}")
        policy = answer.headers.get("content-security-policy", "default-src none")
        if "unsafe" in policy or "default-src" not in policy:
            self.note(f"policy of {answer.url}: {policy}")


@contextmanager
def window(
    browser: Browser,
    port: int,
    view: str,
    *,
    state: Any = None,
    scripts: bool = True,
    expected: tuple[str, ...] = (),
) -> Iterator[Page]:
    """A page that nothing displeased until it was closed. `state` is a signed-in browser's;
    `expected` names what the test provokes itself."""
    size, scheme = view.split("-")
    width, height = SIZES[size]
    context = browser.new_context(
        base_url=f"http://127.0.0.1:{port}",
        viewport={"width": width, "height": height},
        has_touch=size == "phone",
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
        java_script_enabled=scripts,
        storage_state=state,
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    complaints = Complaints(expected=expected)
    complaints.watch(page)
    yield page
    context.close()
    assert not complaints.found, "\n".join(complaints.found)


def settle(page: Page) -> None:
    """Until every part of the page has come."""
    page.wait_for_load_state("load")
    # Not by a script of the page: its policy forbids to evaluate any.
    expect(page.locator(".htmx-request, [hx-trigger^=load] > .skeleton")).to_have_count(0)


def check(page: Page) -> None:
    """The page is accessible, and nothing makes it scroll sideways."""
    settle(page)
    page.evaluate(AXE)
    where = page.url.partition("/c/")[2] or page.url
    found = [f"{where}: {one}" for one in page.evaluate(_RUN, RULES)]
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert not found, "\n".join(found)  # said in full: this module's assertions are plain
    assert wide <= 0, f"{where} scrolls sideways"


def drag(thing: Locator, place: Locator, request: str) -> None:
    """Take it there, as far as the page can tell, and wait until it sends that request.

    The page hears the events of a drag and no mouse: the driver's mouse loses the beginning of a
    drag on a machine that is busy, and with it the browser's whole drag.
    """
    expect(thing).to_have_attribute("draggable", "true")
    thing.dispatch_event("pointerdown")  # from now on nothing live takes it away
    held = thing.element_handle()
    data = {"dataTransfer": thing.page.evaluate_handle("() => new DataTransfer()")}
    with thing.page.expect_request(request):
        held.dispatch_event("dragstart", data)
        held.dispatch_event("pointercancel")
        place.dispatch_event("dragover", data)
        place.dispatch_event("drop", data)
    held.dispatch_event("dragend", data)
