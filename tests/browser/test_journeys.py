"""What operators do all day, each at a desk and on a phone, in light and dark; the pages on the way
are checked by axe."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.windows import check, drag, settle

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(180)]


def test_the_first_run_leads_to_a_first_result(page: Page, view: str) -> None:
    """Found a company, hire, write an issue, see the heartbeat: the checklist names each step."""
    page.goto("/companies/new")
    check(page)
    page.get_by_label("Name").fill(f"First steps {view}")
    page.get_by_role("button", name="Found it").click()
    page.wait_for_url(re.compile(r"/c/\w+/$"))
    expect(page.get_by_role("region", name="First steps")).to_be_visible()
    check(page)
    home = page.url

    page.get_by_role("link", name="New agent").click()
    check(page)
    page.get_by_role("link", name=re.compile("Simulated")).click()
    page.get_by_label("Name", exact=True).fill("Grace")
    check(page)
    page.get_by_role("button", name="Hire", exact=True).click()
    expect(page.get_by_role("heading", name="Grace")).to_be_visible()

    page.goto(home)
    page.get_by_role("link", name="New issue").last.click()
    page.get_by_label("Title").fill("Compare three suppliers")
    page.get_by_label("Assignee").select_option(label="Grace")
    check(page)
    page.get_by_role("button", name="Create issue").click()
    expect(page.get_by_role("heading", name="Compare three suppliers")).to_be_visible()
    # It is watched while it works, and says by itself when it is through.
    expect(page.locator("details.run-fold").first).to_be_visible()
    page.locator("details.run-fold summary").first.click()
    expect(page.locator("article.comment, section.answer").first).to_be_visible(timeout=60_000)
    check(page)
    page.goto(home)
    settle(page)
    expect(page.get_by_text("Found a company")).to_have_count(0)


def test_a_configuration_is_tried_before_somebody_is_hired(page: Page, base: str) -> None:
    page.goto(f"{base}/agents/new?adapter=demo")
    page.get_by_label("Name", exact=True).fill("Linus")
    page.get_by_role("button", name="Test this configuration").click()
    expect(page.locator("#checks li").first).to_be_visible()
    page.get_by_role("button", name="Hire", exact=True).click()
    page.wait_for_url("**/agents/linus/")
    check(page)


def test_a_question_is_answered_from_the_inbox(page: Page, base: str) -> None:
    page.goto(f"{base}/inbox/")
    check(page)
    page.get_by_role("link", name="Ada asks").click()
    expect(page.get_by_text("Round or square?").last).to_be_visible()
    check(page)
    page.get_by_role("button", name="Square").click()
    expect(page.get_by_role("link", name="Ada asks")).to_have_count(0)
    page.goto(f"{base}/inbox/?show=decided")
    expect(page.get_by_text("Round or square?")).to_be_visible()
    check(page)


def test_an_approval_is_given_and_every_tab_knows(page: Page, base: str) -> None:
    other = page.context.new_page()
    other.goto(f"{base}/activity/")
    badge = other.locator("#badge-needs")
    before = int(badge.inner_text().split()[0]) if badge.is_visible() else None
    page.goto(f"{base}/inbox/")
    page.get_by_role("link", name="Move the launch").click()
    expect(page.get_by_text("40 dollars")).to_be_visible()
    page.get_by_label("Note").fill("Well prepared.")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved. The agent hears of it.")).to_be_visible()
    check(page)
    if before is not None:  # a phone shows it in its own navigation
        expect(badge).not_to_contain_text(str(before))
    other.close()


def test_why_something_is_stuck_is_said_with_the_button_that_changes_it(
    page: Page, base: str
) -> None:
    page.goto(f"{base}/agents/ada/")
    page.locator("summary", has_text="Pause").click()
    page.get_by_label("Why?").fill("Stocktaking")
    page.get_by_role("button", name="Pause Ada").click()
    expect(page.get_by_text("Stocktaking")).to_be_visible()
    check(page)
    page.goto(f"{base}/issues/new")
    page.get_by_label("Title").fill("Polish the floor")
    page.get_by_label("Assignee").select_option(label="Ada")
    page.get_by_role("button", name="Create issue").click()
    reason = page.locator(".why li", has_text="Ada is paused")
    expect(reason).to_be_visible()
    check(page)
    reason.get_by_role("button", name="Resume").click()
    page.wait_for_load_state()
    expect(page.locator("article.comment")).to_be_visible(timeout=60_000)


def test_a_budget_is_hit_and_raised(page: Page, base: str) -> None:
    """A limit stops an agent that has spent more; whoever looks into the inbox raises it."""
    page.goto(f"{base}/costs/")
    settle(page)
    whose = page.get_by_label("For", exact=True)
    cleo = whose.locator("option", has_text="Cleo").get_attribute("value")
    whose.select_option(value=cleo)
    page.get_by_label("Limit in $").fill("1.50")
    page.get_by_role("button", name="Set budget").click()
    expect(page.get_by_text("Reached, held")).to_be_visible()
    check(page)

    page.goto(f"{base}/issues/new")
    page.get_by_label("Title").fill("Polish the bell")
    page.get_by_label("Assignee").select_option(label="Cleo")
    page.get_by_role("button", name="Create issue").click()
    expect(page.locator(".why li", has_text="budget")).to_be_visible()
    check(page)
    waiting = page.url

    page.goto(f"{base}/inbox/")
    page.get_by_role("link", name="Cleo is on hold").click()
    expect(page.get_by_text("queued run")).to_be_visible()
    check(page)
    page.get_by_role("link", name="Raise the budget").click()
    page.get_by_placeholder("New limit, $").fill("50")
    page.get_by_role("button", name="Raise and resume").click()
    expect(page.get_by_text("whom it held goes on")).to_be_visible()
    expect(page.get_by_text("Reached, held")).to_have_count(0)
    check(page)

    page.goto(waiting)
    expect(page.locator("article.comment")).to_be_visible(timeout=60_000)


def test_an_error_is_understood_and_replayed(page: Page, base: str) -> None:
    page.goto(f"{base}/issues/new")
    page.get_by_label("Title").fill("Break a cup")
    page.get_by_label("Assignee").select_option(label="Bo")
    page.get_by_role("button", name="Create issue").click()
    failure = page.get_by_role("region", name="Why it failed")
    expect(failure).to_be_visible(timeout=60_000)
    expect(failure.get_by_role("link", name="Open its configuration")).to_be_visible()
    check(page)
    failure.get_by_role("button", name="Try again").click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]+$"))
    expect(page.get_by_role("region", name="Why it failed")).to_be_visible(timeout=60_000)
    check(page)
    page.goto(f"{base}/runs/?status=failed")
    assert page.locator("#runs .run-line").count() >= 2
    check(page)


def test_many_issues_are_moved_at_once_and_back(page: Page, base: str) -> None:
    page.goto(f"{base}/issues/")
    for n in (1, 2, 3):
        page.get_by_role("checkbox", name=re.compile(rf"Select \w+-{n}$")).check()
    expect(page.get_by_text("3 selected")).to_be_visible()
    check(page)
    page.get_by_label("Set priority").select_option("critical")
    page.get_by_label("Add label").fill("Spring")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Changed 3 issues.")).to_be_visible()
    check(page)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Taken back: 3 issues.")).to_be_visible()


def test_a_card_is_moved_by_its_menu_and_by_hand(page: Page, base: str, view: str) -> None:
    page.goto(f"{base}/issues/board")
    check(page)
    card = page.locator("[data-column=backlog] [data-card]", has_text="Sort shelf 4")
    card.get_by_role("button", name=re.compile("^Move")).click()
    expect(page.get_by_role("heading", name=re.compile("^Move .* to$"))).to_be_visible()
    check(page)
    page.locator("#move").get_by_role("button", name="To do").click()
    moved = page.locator("[data-column=todo] [data-card]", has_text="Sort shelf 4")
    expect(moved).to_be_visible()
    if view.startswith("phone"):
        return
    drag(moved, page.locator("[data-column=backlog]"), "**/issues/move*")
    expect(card).to_be_visible()
    page.get_by_role("button", name="Undo").last.click()
    expect(moved).to_be_visible()


def test_a_card_that_somebody_else_moved_says_so(page: Page, base: str) -> None:
    page.goto(f"{base}/issues/board")
    card = page.locator("[data-column=backlog] [data-card]", has_text="Sort shelf 5")
    card.get_by_role("button", name=re.compile("^Move")).click()
    # While the dialog is open, live updates wait; meanwhile somebody is quicker.
    name = card.get_attribute("data-card")
    other = page.context.new_page()
    other.goto(f"{base}/issues/{name}")
    other.locator("#p-status").select_option("cancelled")
    expect(other.locator("#p-status")).to_have_value("cancelled")
    other.close()
    page.locator("#move").get_by_role("button", name="To do").click()
    expect(page.get_by_text("somebody else has moved it to Cancelled")).to_be_visible()


def test_everything_is_done_by_keyboard_alone(page: Page, base: str) -> None:
    keys = page.keyboard
    page.goto(f"{base}/")
    settle(page)
    keys.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    check(page)
    keys.press("Escape")
    keys.press("Control+k")
    field = page.get_by_role("searchbox", name="Find or do anything")
    expect(field).to_be_focused()
    keys.type("shelf 1")
    expect(page.locator("#palette [data-on]")).to_contain_text("Sort shelf 1")
    check(page)
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Sort shelf 1")).to_be_visible()
    keys.press("g")
    keys.press("i")
    page.wait_for_url("**/issues/")
    settle(page)
    keys.press("j")
    keys.press("x")
    expect(page.locator("[data-picked]")).to_have_text("1")
    keys.press("x")
    keys.press("j")
    keys.press("Space")
    expect(page.locator("#peek")).to_be_visible()
    check(page)
    keys.press("Escape")
    expect(page.locator("#peek")).to_be_hidden()
    keys.press("c")
    page.wait_for_url("**/issues/new")
    expect(page.get_by_label("Title")).to_be_focused()
    keys.type("Written without a mouse")
    keys.press("Control+Enter")
    expect(page.get_by_role("heading", name="Written without a mouse")).to_be_visible()
    # The keys can be switched off; then letters are letters.
    keys.press("?")
    page.get_by_label("Single keys work on these pages").press("Space")
    keys.press("Escape")
    at = page.url
    keys.press("c")
    expect(page.get_by_role("heading", name="Written without a mouse")).to_be_visible()
    assert page.url == at
