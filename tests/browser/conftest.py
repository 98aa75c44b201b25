"""A browser for the tests of one module, and an instance with companies to work in."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser import windows
from tests.flows import office as offices
from tests.flows.office import EMAIL, PASSWORD
from tests.house.instance import Instance, manage


@pytest.fixture(scope="module")
def browser(browser_type_launch_args: dict[str, Any]) -> Iterator[Browser]:
    # The plugin's own one keeps an event loop running in the main thread until the session ends;
    # no test that runs a loop of its own could follow.
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(**browser_type_launch_args)
        yield opened
        opened.close()


# One company for each way to look at it, with the same things to do in each.
_SEED = """
import json, os
from django.utils import timezone
from agents import roster
from agents.adapters.base import Usage
from billing import ledger
from companies import tenancy
from companies.activity import Actor
from companies.models import User
from issues import approvals, board, questions
now = timezone.now()
olga = User.objects.get(email=os.environ["SEED_EMAIL"])
me = Actor("user", olga.id, "Olga")
for prefix in json.loads(os.environ["SEED_PREFIXES"]):
    company = tenancy.create(name=f"Works {prefix}", prefix=prefix, owner=olga, now=now)
    def hire(name, **config):
        return roster.hire(company=company, actor=me, now=now, name=name, adapter_type="demo",
            adapter_config={"pace": 0, "questions": False, "onFinish": "done", **config})
    ada, bo = hire("Ada"), hire("Bo", failRate=1)
    cleo = hire("Cleo")
    ledger.book(company_id=company.id, agent_id=cleo.id, key=f"before-{prefix}", now=now,
        usage=Usage(call=1, provider="here", model="dear", input_tokens=1_000, output_tokens=100,
            cost_micros=2_000_000))
    for n in range(1, 6):
        board.create(company=company, actor=me, now=now, title=f"Sort shelf {n}")
    asking = board.create(company=company, actor=me, now=now, title="Choose a shape",
        assignee_agent=ada, wake=False)
    questions.ask(issue=asking, actor=Actor("agent", ada.id, "Ada"), now=now,
        payload={"question": "Round or square?", "options": ["Round", "Square"]})
    approvals.request(company=company, type="request_board_approval", now=now, requester=ada,
        payload={"title": "Move the launch", "summary": "A week earlier.", "cost": "40 dollars"},
        actor=Actor("agent", ada.id, "Ada"))
"""
PREFIXES = {view: "".join(word[0] for word in view.split("-")).upper() for view in windows.VIEWS}


@pytest.fixture(scope="module")
def works() -> Iterator[Instance]:
    """A whole instance with a company for each way to look at it."""
    with tempfile.TemporaryDirectory(prefix="paperclip-test-") as folder:
        with offices.instance(Path(folder)) as instance:
            seeds = {"SEED_EMAIL": EMAIL, "SEED_PREFIXES": json.dumps(list(PREFIXES.values()))}
            done = manage("shell", "-v", "0", "-c", _SEED, env=instance.env | seeds)
            assert done.returncode == 0, done.stderr
            yield instance


@pytest.fixture(scope="module")
def signed_in(browser: Browser, works: Instance) -> Any:
    """The state of a browser in which Olga is signed in."""
    context = browser.new_context(base_url=f"http://127.0.0.1:{works.port}")
    page = context.new_page()
    page.goto("/sign-in")
    page.get_by_label("Email").fill(EMAIL)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/c/**")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture(params=windows.VIEWS)
def view(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def base(view: str) -> str:
    """The company's address for this way to look at it."""
    return f"/c/{PREFIXES[view]}"


@pytest.fixture
def page(browser: Browser, works: Instance, signed_in: Any, view: str) -> Iterator[Page]:
    with windows.window(browser, works.port, view, state=signed_in) as opened:
        yield opened
