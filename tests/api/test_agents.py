"""Agents over the API: the picture of who reports to whom, models, sessions, history."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest

from agents.models import Agent, HeartbeatRun
from companies import wire
from companies.models import Activity, Company
from issues import briefing
from issues.models import Issue
from tests import factories
from tests.api.conftest import Caller


def test_the_org_chart_is_a_picture_of_names_and_no_markup(
    as_vera: Caller, acme: Company, ada: Agent, bo: Agent
) -> None:
    Agent.objects.filter(id=bo.id).update(reports_to=ada, name="<script>alert(1)</script>")

    drawn = as_vera.send("GET", f"/api/companies/{acme.id}/org.svg")

    assert drawn["Content-Type"] == "image/svg+xml; charset=utf-8"
    picture = ElementTree.fromstring(drawn.content)
    names = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")][::2]
    assert names == ["Ada", "<script>alert(1)</scr…"]
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}path"))) == 1
    assert not list(picture.iter("{http://www.w3.org/2000/svg}script"))


def test_a_company_without_agents_has_a_picture_too(as_vera: Caller, acme: Company) -> None:
    drawn = as_vera.send("GET", f"/api/companies/{acme.id}/org.svg")

    assert ElementTree.fromstring(drawn.content).tag.endswith("svg")


def test_models_of_an_adapter_come_from_the_prices(as_olga: Caller, acme: Company) -> None:
    prices = f"/api/companies/{acme.id}/prices"
    price = {"model": "acme-1", "inputUsdPerMillion": 3, "outputUsdPerMillion": 15}
    made = as_olga.send("POST", prices, price)
    assert made.status_code == 201, made.content

    models = f"/api/companies/{acme.id}/adapters/{{}}/models"
    claude = as_olga.send("GET", models.format("claude-code")).json()
    assert claude[0] == {"id": "acme-1", "label": "acme-1"}
    assert any(one["id"].startswith("claude-") for one in claude)
    assert as_olga.send("GET", models.format("process")).json() == []
    assert as_olga.send("GET", models.format("abacus")).status_code == 404


def test_a_price_of_ones_own_is_exact_and_comes_first(as_olga: Caller, acme: Company) -> None:
    prices = f"/api/companies/{acme.id}/prices"
    body = {"model": "m", "inputUsdPerMillion": 0.075, "outputUsdPerMillion": "15.000001"}

    made = as_olga.send("POST", prices, body).json()
    again = as_olga.send("POST", prices, {**body, "inputUsdPerMillion": 0.0000001})
    listed = as_olga.send("GET", f"{prices}?limit=3").json()

    assert made["source"] == "operator"
    assert made["prices"]["input"][0]["picoUsdPerToken"] == 75_000
    assert made["prices"]["output"][0]["picoUsdPerToken"] == 15_000_001
    assert again.status_code == 400  # less than a pico-dollar cannot be kept
    assert [row["source"] for row in listed] == ["operator", "genai-prices", "genai-prices"]


def test_forgotten_sessions_are_not_gone_on_with(
    as_olga: Caller, acme: Company, ada: Agent, issue: Issue
) -> None:
    other = factories.issue(acme, assignee=ada)
    for about in (issue, other):
        done = factories.running(ada, about)
        HeartbeatRun.objects.filter(id=done.id).update(
            status="succeeded", session={"id": "s-1"}, finished_at=issue.created_at
        )
    path = f"/api/agents/{ada.id}/runtime-state/reset-session"

    one = as_olga.send("POST", path, {"taskKey": issue.identifier})
    left = HeartbeatRun.objects.exclude(session={})

    assert one.json()["forgotten"] == 1
    assert [run.issue_id for run in left] == [other.id]
    assert as_olga.send("POST", path).json()["forgotten"] == 1
    assert not HeartbeatRun.objects.exclude(session={}).exists()
    assert Activity.objects.filter(action="agent.session_reset").count() == 2


def test_a_wake_can_ask_for_a_fresh_session(as_olga: Caller, ada: Agent, issue: Issue) -> None:
    done = factories.running(ada, issue)
    HeartbeatRun.objects.filter(id=done.id).update(
        status="succeeded", session={"id": "s-1"}, finished_at=done.started_at
    )
    body = {"payload": {"issueId": str(issue.id)}, "forceFreshSession": True}

    woken = as_olga.send("POST", f"/api/agents/{ada.id}/wakeup", body).json()
    fresh = HeartbeatRun.objects.get(id=woken["id"])

    assert briefing.write(run_id=fresh.id, epoch=fresh.epoch).session == {}
    HeartbeatRun.objects.filter(id=fresh.id).update(payload={"issueId": str(issue.id)})
    assert briefing.write(run_id=fresh.id, epoch=fresh.epoch).session == {"id": "s-1"}


def test_a_revision_says_what_differs(as_olga: Caller, ada: Agent) -> None:
    change = {"title": "Smith", "runtimeConfig": {"heartbeat": {"maxConcurrentRuns": 3}}}
    as_olga.send("PATCH", f"/api/agents/{ada.id}", change)

    (revision,) = as_olga.send("GET", f"/api/agents/{ada.id}/config-revisions").json()

    assert {one["path"]: (one["before"], one["after"]) for one in revision["changes"]} == {
        "title": (ada.title or None, "Smith"),
        "runtimeConfig.heartbeat.maxConcurrentRuns": (ada.max_concurrent_runs, 3),
    }


def test_the_last_heartbeat_is_that_of_any_run_that_began(
    as_olga: Caller, ada: Agent, bo: Agent, now: datetime
) -> None:
    """Not only of a regular one, and not of one that still waits."""
    path = f"/api/agents/{ada.id}"
    assert as_olga.get(path).json()["lastHeartbeatAt"] is None
    began = now - timedelta(minutes=3)
    factories.run(ada, status="succeeded", now=now - timedelta(hours=1))
    factories.run(ada, status="failed", reason="issue_assigned", source="assignment", now=began)
    factories.run(ada)
    factories.run(bo, status="succeeded", now=now)

    assert as_olga.get(path).json()["lastHeartbeatAt"] == wire.moment(began)
    listed = as_olga.get(f"/api/companies/{ada.company_id}/agents").json()
    assert wire.moment(began) in [one["lastHeartbeatAt"] for one in listed]


@pytest.mark.parametrize("value", [True, "2", 2.0, 2.5, "many"])
@pytest.mark.parametrize("name", ["maxConcurrentRuns", "intervalSec", "maxDailyRuns"])
def test_whole_numbers_are_whole_numbers(
    as_olga: Caller, acme: Company, ada: Agent, name: str, value: Any
) -> None:
    body = {"runtimeConfig": {"heartbeat": {name: value}}}

    changed = as_olga.send("PATCH", f"/api/agents/{ada.id}", body)
    hired = as_olga.send("POST", f"/api/companies/{acme.id}/agents", {"name": "Cy", **body})

    for refused in (changed, hired):
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid")
        assert name in refused.json()["error"]


def test_a_whole_number_is_taken(as_olga: Caller, ada: Agent) -> None:
    body = {"runtimeConfig": {"heartbeat": {"maxConcurrentRuns": 2, "intervalSec": 60}}}

    changed = as_olga.send("PATCH", f"/api/agents/{ada.id}", body)

    assert changed.status_code == 200, changed.content
    ada.refresh_from_db()
    assert (ada.max_concurrent_runs, ada.interval_seconds) == (2, 60)
