"""An operator's first five minutes in a real browser on a whole instance: sign in, look around,
give an agent an issue, watch it work, find the result and what it cost."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from tests import mock_llm
from tests.flows import office as offices
from tests.flows.office import EMAIL, PASSWORD, Office
from tests.house.instance import Instance

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(180)]

PATIENCE_MS = 20_000
WORDS = [f"word{number}" for number in range(40)]
ANSWER = " ".join(WORDS)
SIZES = {"desk": (1440, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def running() -> Iterator[Instance]:
    """A whole instance with the demo company."""
    with tempfile.TemporaryDirectory(prefix="paperclip-test-") as folder:
        with offices.instance(Path(folder), PAPERCLIP_DEMO="1") as instance:
            yield instance


@pytest.fixture(scope="module")
def model() -> Iterator[mock_llm.Served]:
    with mock_llm.serve_in_thread() as served:
        yield served


@pytest.fixture(scope="module")
def office(running: Instance, model: mock_llm.Served) -> Iterator[Office]:
    """A company beside the demo, with one agent that talks to a model."""
    with Office(running, "Forge", "FRG") as made:
        made.set_prices()
        made.hire(
            "Ada",
            "openai",
            {"baseUrl": model.url, "model": "gpt-4o-mini", "tools": False},
            onFinish="done",
        )
        yield made


@dataclass
class Complaints:
    """What the browser found wrong with the pages: errors of scripts, of requests, of policies."""

    found: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", self.hear)
        page.on("pageerror", lambda error: self.found.append(f"script: {error}"))
        page.on(
            "response",
            lambda answer: (
                answer.status >= 400 and self.found.append(f"{answer.status} {answer.url}")
            ),
        )
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error("
            "`policy: ${e.violatedDirective} ${e.blockedURI}`))"
        )

    def hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.found.append(f"{message.type}: {message.text}")


@pytest.fixture(params=SIZES)
def page(request: pytest.FixtureRequest, browser: Browser, running: Instance) -> Iterator[Page]:
    """A browser of a desk or of a phone, which nothing displeased until the end of the test."""
    width, height = SIZES[request.param]
    context = browser.new_context(
        base_url=f"http://127.0.0.1:{running.port}",
        viewport={"width": width, "height": height},
        has_touch=request.param == "phone",
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    complaints = Complaints()
    complaints.watch(page)
    yield page
    context.close()
    assert complaints.found == []


def sign_in(page: Page) -> None:
    page.goto("/")
    page.get_by_label("Email").fill(EMAIL)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/c/**")


def fits(page: Page) -> bool:
    """Nothing makes the page scroll sideways."""
    return bool(
        page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
    )


def test_the_demo_company_is_at_work_on_the_first_page(page: Page, running: Instance) -> None:
    sign_in(page)
    page.wait_for_url("**/c/ACM/")
    expect(page.get_by_role("heading", name="Acme Robotics (demo)")).to_be_visible()
    for panel in ("Running now", "Needs you", "This month"):
        expect(page.get_by_role("heading", name=panel)).to_be_visible()
    expect(page.locator("#glance a").first).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator(".home .skeleton")).to_have_count(0, timeout=PATIENCE_MS)
    assert fits(page)


def test_an_issue_is_written_watched_and_done(page: Page, office: Office) -> None:
    sign_in(page)
    page.goto("/c/FRG/issues/new")
    page.get_by_label("Title").fill("Forge an anvil")
    page.get_by_label("Description").fill(
        f"Say it slowly. [[mock:text={ANSWER};chunks=40;delay=0.2]]"
    )
    page.get_by_label("Assignee").select_option(label="Ada")
    page.get_by_role("button", name="Create issue").click()
    page.wait_for_url(re.compile(r"/c/FRG/issues/FRG-\d+$"))
    expect(page.get_by_role("heading", name="Forge an anvil")).to_be_visible()

    run = page.locator("details.run-fold[data-s=running]")
    expect(run).to_be_visible(timeout=PATIENCE_MS)
    run.locator("summary").click()
    lines = run.locator("[data-lines]")
    expect(lines).to_contain_text(WORDS[3], timeout=PATIENCE_MS)
    # It comes while it is written, not when it is over.
    assert WORDS[-1] not in lines.inner_text()
    expect(page.locator("#p-status")).to_have_value("in_progress")

    expect(page.locator("article.comment")).to_contain_text(ANSWER, timeout=PATIENCE_MS)
    expect(page.locator("#p-status")).to_have_value("done", timeout=PATIENCE_MS)
    # 150 tokens at 0.15, 1000 cached at 0.075 and 25 at 0.60 dollars a million, rounded half up.
    expect(page.locator("#properties")).to_contain_text("$0.000113", timeout=PATIENCE_MS)
    assert fits(page)
