"""Every page at a desk and on a phone, in light and dark: accessible, and nothing cut or outside
of what it belongs to. What a page looks like is measured where it can be: by places and sizes."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PREFIXES
from tests.browser.windows import check, settle
from tests.flows.office import EMAIL, PASSWORD
from tests.house.instance import Instance, manage

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(240)]

# A company that was at work: people who report to each other, money, a provider, a long name for
# everything, somebody who only looks.
_SEED = """
import json, os
from django.utils import timezone
from agents import connections, roster
from agents.models import Agent
from billing import budgets, prices
from companies import secrets, tenancy
from companies.activity import Actor
from companies.models import Company, Membership, User
from issues import board
now = timezone.now()
olga = User.objects.get(email=os.environ["SEED_EMAIL"])
me = Actor("user", olga.id, "Olga")
vera = User.objects.create_user(
    email="vera@example.com", password=os.environ["SEED_PASSWORD"], name="Vera")
for prefix in json.loads(os.environ["SEED_PREFIXES"]):
    company = Company.objects.get(issue_prefix=prefix)
    tenancy.update(company=company, changes={"name": f"Northern Machine Works {prefix}"}, actor=me)
    Membership.objects.create(company=company, user=vera, role=Membership.Role.VIEWER)
    def hire(name, boss=None, **fields):
        fields = {"adapter_type": "demo", "adapter_config": {"pace": 0}} | fields
        return roster.hire(company=company, actor=me, now=now, name=name, reports_to=boss, **fields)
    head = hire("Margaret", title="Chief executive of the whole group")
    for lead in ("Konstantin", "Theodora", "Friederike"):
        boss = hire(lead, head)
        for n in range(1, 5):
            hire(f"{lead[:5]}{n}", boss)
    program = {"adapter_type": "process", "adapter_config": {"command": "/bin/echo"}}
    paused = hire("Eberhard", head, **program)
    roster.pause(agent=paused, actor=me, now=now, note="Stocktaking in the warehouse")
    roster.update(agent=paused, actor=me,
        changes={"instructions": "Be brief.", "title": "Designer"})
    for n in range(3):
        board.create(company=company, actor=me, now=now, assignee_agent=paused,
            title=f"Paint the frames of batch {n} in the new colour of the whole company")
    connections.create(company=company, actor=me, now=now, kind="openai",
        name="Main provider of the whole group", base_url="http://127.0.0.1:9/v1",
        requests_per_minute=600, tokens_per_minute=2_000_000, max_concurrent_runs=8)
    secrets.put(company=company, name="OPENAI_API_KEY_OF_THE_WHOLE_GROUP", value="x" * 20,
        actor=me, now=now)
    for scope, at in (("company", company.id), ("agent", paused.id)):
        budgets.set_limit(company=company, scope=scope, scope_id=at, limit_micros=25_000_000,
            actor=me, now=now, is_hard=False, limit_tokens=2_000_000)
    prices.set_price(company=company, model="a-model-with-a-long-name", actor=me, now=now,
        input_pico=150_000, output_pico=600_000)
"""
PEOPLE = (
    *("agents/", "agents/?view=org", "agents/eberhard/", "agents/eberhard/runs"),
    *("agents/eberhard/issues", "agents/eberhard/configuration", "agents/eberhard/revisions"),
)
MONEY = (
    *("costs/", "costs/?by=model", "costs/kept", "costs/estimate?issue=2"),
    *("costs/prices?q=gpt-4o", "costs/bill", "costs/archive"),
)
KEPT = ("settings/", "settings/connections/", "goals/", "activity/")
WORK = ("", "inbox/", "issues/", "issues/board", "runs/", "search?q=paint")
OWNERS = ("agents/eberhard/keys", "agents/new", "agents/new?adapter=process", "issues/new")

# What shows only a part of itself, and whether it means to: dots say so, a box that scrolls is
# meant to, and what is read out only has no size.
_CUT = """() => [...document.querySelectorAll(
    '.btn, .badge, .chip, .tabs a, .segmented > *, .table th, .field label, .bottom-nav a')]
  .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1
    && !one.closest('.sr-only') && !one.querySelector('.clip')
    && getComputedStyle(one).display !== 'inline')
  .map((one) => one.outerHTML.slice(0, 160))"""
_OUTSIDE = """() => [...document.querySelectorAll(
    '.panel :is(.btn, .badge, .chip, .segmented, input, select, time, h2, h3, label, code, .bar)')]
  .filter((one) => {
    const panel = one.closest('.panel').getBoundingClientRect();
    const at = one.getBoundingClientRect();
    const scrolls = one.closest('.table-box, .menu, pre, .org-box, .log, dialog, .sr-only');
    return at.width && !scrolls && one.checkVisibility()
      && (at.right > panel.right + 0.5 || at.left < panel.left - 0.5
        || at.top < panel.top + 3 || at.bottom > panel.bottom + 0.5);
  }).map((one) => one.outerHTML.slice(0, 160))"""
# Controls of fields that stand side by side.
_ROWS = """() => [...document.querySelectorAll('.form-grid')].flatMap((grid) => {
    const fields = [...grid.children].filter(
      (one) => one.matches('.field') && one.checkVisibility());
    const rows = Map.groupBy(fields, (one) => Math.round(one.getBoundingClientRect().top));
    return [...rows.values()].map((row) => row.map((one) => Math.round(one.querySelector(
      'input:not([type=checkbox]), select, textarea')?.getBoundingClientRect().top ?? 0)));
  })"""


@pytest.fixture(scope="module", autouse=True)
def furnished(works: Instance) -> None:
    """Everything there is a page for."""
    seeds = {
        "SEED_EMAIL": EMAIL,
        "SEED_PASSWORD": PASSWORD,
        "SEED_PREFIXES": json.dumps(list(PREFIXES.values())),
    }
    done = manage("shell", "-v", "0", "-c", _SEED, env=works.env | seeds)
    assert done.returncode == 0, done.stderr


def look(page: Page, address: str) -> None:
    """Open a page and find nothing wrong with how it stands there."""
    page.goto(address)
    check(page)
    cut, outside = page.evaluate(_CUT), page.evaluate(_OUTSIDE)
    assert not cut, "\n".join([f"cut on {address}:", *cut])
    assert not outside, "\n".join([f"outside of its card on {address}:", *outside])


def become_vera(page: Page) -> None:
    page.context.clear_cookies()
    page.goto("/sign-in")
    page.get_by_label("Email").fill("vera@example.com")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/c/**")


def test_the_pages_of_the_work_stand_well(page: Page, base: str) -> None:
    for path in WORK:
        look(page, f"{base}/{path}")


def test_the_pages_of_people_stand_well(page: Page, base: str) -> None:
    for path in PEOPLE:
        look(page, f"{base}/{path}")


def test_the_pages_of_money_stand_well(page: Page, base: str) -> None:
    for path in MONEY:
        look(page, f"{base}/{path}")


def test_the_pages_of_settings_and_of_the_instance_stand_well(page: Page, base: str) -> None:
    for path in (*KEPT, *OWNERS):
        look(page, f"{base}/{path}")
    page.goto(f"{base}/settings/connections/")
    page.get_by_role("link", name="Change or test").click()
    look(page, page.url)
    look(page, f"/scaling?company={base.rpartition('/')[2]}")


def test_who_only_looks_finds_the_same_pages_in_order(page: Page, base: str) -> None:
    become_vera(page)
    for path in (*WORK, *PEOPLE, *MONEY, *KEPT):
        look(page, f"{base}/{path}")
    page.goto(f"{base}/settings/")
    expect(page.get_by_role("link", name="Scaling")).to_have_count(0)


def test_all_tabs_are_in_sight(page: Page, base: str) -> None:
    for path in ("agents/eberhard/keys", "costs/archive"):
        page.goto(f"{base}/{path}")
        width = page.evaluate("document.documentElement.clientWidth")
        boxes = [tab.bounding_box() for tab in page.locator(".tabs a").all()]
        assert len(boxes) == 6
        assert all(box and box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)


def test_the_org_chart_can_be_read(page: Page, base: str, view: str) -> None:
    page.goto(f"{base}/agents/?view=org")
    settle(page)
    if view.startswith("phone"):
        expect(page.locator(".org")).to_be_hidden()
        expect(page.locator(".tree").get_by_role("link", name="Eberhard")).to_be_visible()
        return
    names = page.locator(".org .name").all()
    assert len(names) == 20
    heights = [box["height"] for box in (name.bounding_box() for name in names) if box]
    assert min(heights) >= 12, "as large as it is drawn"
    frame = page.locator(".org-box").bounding_box()
    assert frame
    assert frame["height"] <= 700


def test_fields_side_by_side_stand_on_one_line(page: Page, base: str) -> None:
    for path in ("agents/new?adapter=process", "agents/eberhard/configuration", "costs/"):
        page.goto(f"{base}/{path}")
        for fold in page.locator("details.edit > summary").all():
            fold.click()
        rows = page.evaluate(_ROWS)
        assert sum(len(row) for row in rows) >= 6
        uneven = [row for row in rows if len(set(filter(None, row))) > 1]
        assert not uneven, (path, uneven)


def test_what_is_sent_stands_beside_its_field(page: Page, base: str) -> None:
    page.goto(f"{base}/costs/estimate")
    field = page.locator("#issue").bounding_box()
    button = page.get_by_role("button", name="Estimate").bounding_box()
    assert field
    assert button
    assert abs(field["y"] + field["height"] - button["y"] - button["height"]) <= 1


def test_everything_is_reached_from_a_phone(page: Page, base: str, view: str) -> None:
    page.goto(f"{base}/inbox/")
    if not view.startswith("phone"):
        assert page.get_by_role("link", name="Scaling").is_visible()
        return
    page.get_by_text("More", exact=True).click()
    menu = page.locator(".bottom-nav .menu")
    expect(menu.get_by_role("button", name="Sign out")).to_be_in_viewport(ratio=1)
    sizes = menu.get_by_role("link").evaluate_all(
        "(links) => links.filter((one) => one.checkVisibility())"
        ".map((one) => parseFloat(getComputedStyle(one).fontSize))"
    )
    assert min(sizes) >= 14
    menu.locator("summary").click()
    other = next(prefix for prefix in PREFIXES.values() if not base.endswith(f"/{prefix}"))
    menu.get_by_role("link", name=other).click()
    page.wait_for_url(f"**/c/{other}/")


def test_home_offers_each_thing_once(page: Page, base: str, view: str) -> None:
    page.goto(f"{base}/")
    settle(page)
    expect(page.get_by_text("Live", exact=True).filter(visible=True)).to_have_count(1)
    new = page.get_by_role("link", name="New issue").filter(visible=True)
    expect(new).to_have_count(0 if view.startswith("phone") else 1)


def test_the_note_for_who_only_looks_stands_above_the_page(
    page: Page, base: str, view: str
) -> None:
    become_vera(page)
    page.goto(f"{base}/issues/")
    page.locator("#content .row-title").first.click()
    page.wait_for_url("**/issues/*-*")
    settle(page)
    width, height = page.viewport_size["width"], page.viewport_size["height"]  # type: ignore[index]
    note, main = page.locator(".role-note").bounding_box(), page.locator("#content").bounding_box()
    assert note
    assert main
    assert note["height"] <= 40
    assert note["y"] + note["height"] <= main["y"] + 1
    assert note["width"] == main["width"] >= width * 0.8
    page.goto(f"{base}/issues/board")
    assert page.evaluate("document.documentElement.scrollHeight") <= height
