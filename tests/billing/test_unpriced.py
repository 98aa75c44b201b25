"""A cost that nobody knows is shown as unknown everywhere, never as 0 or as part of a whole."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from agents.models import Agent, HeartbeatRun
from companies import operator_keys
from companies.models import Company, User
from issues.models import Issue
from paperclip.streams import service
from tests import factories
from tests.billing.receipts import book

pytestmark = pytest.mark.django_db
PAGES = (
    "issues/{issue}",
    "issues/{issue}/peek",
    "issues/",
    "issues/board",
    "agents/",
    "agents/ada/",
    "agents/ada/runs",
    "runs/",
    "runs/{run}",
    "costs/",
    "costs/?by=model",
    "costs/?by=project",
    "panels/money",
    "panels/glance",
)


@pytest.fixture
def run(acme: Company, ada: Agent) -> HeartbeatRun:
    issue = factories.issue(acme, "Smelt it", status="in_review", assignee=ada)
    return factories.run(ada, issue, status="succeeded", model="made-up-1")


@pytest.fixture
def issue(run: HeartbeatRun) -> Issue:
    assert run.issue is not None
    return run.issue


def spend(run: HeartbeatRun, *costs: int | None) -> None:
    """Calls of the run that cost so much; None: nobody knows."""
    for number, micros in enumerate(costs):
        book(
            run.agent, f"call-{number}", micros, run_id=run.id, issue_id=run.issue_id,
            usage_model="nobody-knows-it", usage_call=number + 1,
        )  # fmt: skip


def page(client: Client, path: str, run: HeartbeatRun, issue: Issue) -> str:
    answer = client.get("/c/ACM/" + path.format(issue=issue.identifier, run=run.id))
    assert answer.status_code == 200, path
    plain = re.sub(r"<[^>]+>", " ", unescape(answer.content.decode()))
    return " ".join(plain.split())


@pytest.mark.parametrize("path", PAGES)
def test_a_page_says_unpriced_and_not_nothing(
    client: Client, olga: User, run: HeartbeatRun, issue: Issue, path: str
) -> None:
    spend(run, None)
    client.force_login(olga)
    shown = page(client, path, run, issue)
    assert "unpriced" in shown
    shown = re.sub(r"Spent (\d+ \w+ )?\$0\.00|Reserved now \$0\.00|\d+ \w{3} \$0\.00", "", shown)
    assert "$0.00" not in shown


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shows_what_is_known_beside_what_is_not(
    client: Client, olga: User, run: HeartbeatRun, issue: Issue, path: str
) -> None:
    spend(run, 20_000, None)
    client.force_login(olga)
    assert re.search(r"\$0\.02 \+ 1 unpriced", page(client, path, run, issue))


def asked(olga: User, run: HeartbeatRun, issue: Issue) -> dict[str, tuple[Any, Any]]:
    """Each place of the API that tells a cost, as (micros, cents)."""
    _, token = operator_keys.create(user=olga, name="laptop", now=run.created_at)
    client = Client(headers={"Authorization": f"Bearer {token}"})

    def get(path: str) -> Any:
        answer = client.get(f"/api{path}")
        assert answer.status_code == 200, answer.content
        return answer.json()

    here = f"/companies/{run.company_id}"
    found = {
        "run": get(f"/heartbeat-runs/{run.id}")["usageJson"],
        "issue": get(f"/issues/{issue.id}/cost-summary"),
        **{
            cut: get(f"{here}/costs/{cut}")[0]
            for cut in (
                "by-agent", "by-agent-model", "by-provider", "by-biller", "by-project",
                "window-spend",
            )
        },
        "done": service.outcome(HeartbeatRun.objects.filter(id=run.id).values().get()),
    }  # fmt: skip
    sums = {name: (each["costMicros"], each["costCents"]) for name, each in found.items()}
    month, home = get(f"{here}/costs/summary"), get(f"{here}/dashboard")["costs"]
    agent = get(f"/agents/{run.agent_id}")
    return {
        **sums,
        "summary": (month["spendMicros"], month["spendCents"]),
        "dashboard": (home["monthSpendMicros"], home["monthSpendCents"]),
        "agent": (agent["spentMonthlyMicros"], agent["spentMonthlyCents"]),
    }


@pytest.mark.parametrize(
    ("costs", "known"),
    [((None,), (None, None)), ((20_000, None), (20_000, 2)), ((20_000,), (20_000, 2)),
     ((0,), (0, 0))],
)  # fmt: skip
def test_the_api_says_null_while_nothing_is_priced(
    olga: User, run: HeartbeatRun, issue: Issue, costs: tuple[int | None, ...], known: Any
) -> None:
    spend(run, *costs)
    for place, told in asked(olga, run, issue).items():
        assert told == known, place


def test_the_file_of_the_costs_leaves_an_unknown_sum_empty(
    client: Client, olga: User, run: HeartbeatRun
) -> None:
    spend(run, None)
    client.force_login(olga)
    lines = client.get("/c/ACM/costs/table.csv").content.decode().splitlines()
    assert lines[1].split(",")[2:5] == ["", "1", "1"]
