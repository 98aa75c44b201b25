"""Each limit of the loop breaker bites, set for an agent or for the instance."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from agents import loop_limits, loops, roster
from agents.adapters.base import AdapterError, Step
from agents.models import Hold
from companies.activity import SYSTEM, Actor
from companies.errors import Invalid
from issues import board
from tests import factories
from tests.api.conftest import as_olga, operator  # noqa: F401
from tests.providers.test_loops import carry, foreign  # noqa: F401

pytestmark = pytest.mark.django_db


def steps(agent, names: str) -> str:
    """Takes steps called by letters, all with the same result; what stopped them."""
    watch = loops.Steps(loop_limits.of(agent))
    try:
        for n, name in enumerate(names):
            watch.see(Step(id=str(n), name=name, phase="start", input={"a": 1}))
            watch.see(Step(id=str(n), name=name, phase="end", output="x"))
    except AdapterError as error:
        return str(error.detail["loop"])
    return ""


def spends(agent, *habit: int, cost: int) -> str:
    for micros in habit:
        factories.run(agent, status="succeeded", cost_micros=micros)
    found = loops.overspent(run=factories.running(agent, cost_micros=cost))
    return found.kind if found else ""


def makes_an_issue(carry, issue, acme, ada) -> str:  # noqa: F811
    def split(run: Any, at: Any) -> None:
        board.create(
            company=acme, actor=Actor("agent", ada.pk, "Ada", run.pk), title="Part", parent=issue,
            now=run.started_at + timedelta(seconds=1),
        )  # fmt: skip

    return carry(issue, during=split)


# What happens, how it ends by default, the limits that make the difference, how it ends then.
CASES = {
    "same_steps": (lambda s: steps(s.ada, "AA"), "", {"same_steps": 1}, "same_step"),
    "among_steps": (
        lambda s: steps(s.ada, "ABABABABABABABABABA"),
        "same_step",
        {"among_steps": 1},
        "",
    ),
    "steps_a_minute": (lambda s: steps(s.ada, "AB"), "", {"steps_a_minute": 1}, "step_rate"),
    "spend_times": (
        lambda s: spends(s.ada, *[2_000_000] * 5, cost=2_500_000),
        "",
        {"spend_times": 1},
        "spend",
    ),
    "spend_floor_micros": (
        lambda s: spends(s.ada, *[10] * 5, cost=900),
        "",
        {"spend_floor_micros": 1},
        "spend",
    ),
    "spend_runs": (
        lambda s: spends(s.ada, *[2_000_000] * 9, *[10] * 5, cost=2_500_000),
        "",
        {"spend_runs": 5},
        "spend",
    ),
    "spend_runs_needed": (
        lambda s: spends(s.ada, 100_000, cost=2_000_000),
        "",
        {"spend_runs_needed": 1},
        "spend",
    ),
    "idle_runs": (lambda s: s.carry(s.foreign), "", {"idle_runs": 1}, "no_progress"),
    "runs_an_hour": (
        lambda s: [s.carry(s.foreign, summary=f"News of {w}.") for w in ("ore", "coal")][-1],
        "",
        {"runs_an_hour": 1},
        "too_often",
    ),
    "issues_a_run": (
        lambda s: makes_an_issue(s.carry, s.foreign, s.acme, s.ada),
        "",
        {"issues_a_run": 1},
        "fan_out",
    ),
}


@dataclasses.dataclass
class Stage:
    ada: Any
    acme: Any
    foreign: Any
    carry: Any


@pytest.fixture
def stage(ada, acme, foreign, carry) -> Stage:  # noqa: F811
    return Stage(ada, acme, foreign, carry)


def test_there_is_a_case_for_each_limit():
    assert set(CASES) == set(loop_limits.NAMES)


@pytest.mark.parametrize("name", CASES)
def test_by_default_it_goes_on(stage, name):
    act, ending, _, _ = CASES[name]
    assert act(stage) == ending


@pytest.mark.parametrize("name", CASES)
def test_a_limit_of_the_agent_bites(stage, name):
    act, _, limits, ending = CASES[name]
    roster.update(agent=stage.ada, changes={"loop_limits": limits}, actor=SYSTEM)
    stage.ada.refresh_from_db()
    assert act(stage) == ending


@pytest.mark.parametrize("name", CASES)
def test_a_limit_of_the_instance_bites(stage, settings, name):
    act, _, limits, ending = CASES[name]
    settings.LOOP_LIMITS = limits
    assert act(stage) == ending


def test_the_agents_own_goes_before_the_instances(ada, settings):
    settings.LOOP_LIMITS = {"same_steps": 2, "idle_runs": 7}
    ada.loop_limits = {"same_steps": 5}
    found = loop_limits.of(ada)
    assert (found.same_steps, found.idle_runs, found.runs_an_hour) == (5, 7, 5)


@pytest.mark.parametrize(
    "given",
    [
        {"same_step": 1}, {"same_steps": 0}, {"same_steps": -1}, {"same_steps": True},
        {"same_steps": "many"}, {"same_steps": 1.5}, {"same_steps": None}, ["same_steps"], "x",
        {"same_steps": 10**12},
    ],
)  # fmt: skip
def test_what_is_no_limit_is_refused_at_its_field(ada, given):
    with pytest.raises(Invalid) as refused:
        roster.update(agent=ada, changes={"loop_limits": given}, actor=SYSTEM)
    assert (refused.value.code, refused.value.field) == ("loop_limits_invalid", "loop_limits")


def test_an_instance_with_a_limit_that_nobody_knows_does_not_start(settings):
    settings.LOOP_LIMITS = {"same_step": 3}
    with pytest.raises(ImproperlyConfigured, match="PAPERCLIP_LOOP_LIMITS: There is no limit"):
        loop_limits.of_instance()


def test_what_another_version_stored_is_left_out(ada):
    ada.loop_limits = {"same_steps": 3, "moon_phases": 2, "idle_runs": "x"}
    assert (loop_limits.of(ada).same_steps, loop_limits.of(ada).idle_runs) == (3, 3)


def test_the_api_tells_and_changes_them(as_olga, ada):  # noqa: F811
    def change(limits: Any) -> Any:
        body = {"runtimeConfig": {"loopLimits": limits}}
        return as_olga.send("PATCH", f"/api/agents/{ada.pk}", body)

    answer = change({"sameSteps": 12, "idleRuns": 5})
    assert answer.status_code == 200, answer.json()
    assert answer.json()["runtimeConfig"]["loopLimits"] == {"sameSteps": 12, "idleRuns": 5}
    assert change({"sameSteps": 4}).json()["runtimeConfig"]["loopLimits"] == {"sameSteps": 4}
    for wrong in ({"sameSteps": 0}, {"sameSteps": "x"}, {"sameSteps": 10**12}):
        assert change(wrong).status_code == 400
    assert change({}).json()["runtimeConfig"]["loopLimits"] == {}


def test_a_hold_shows_its_evidence_on_the_agents_page(client, olga, stage):
    from django.utils import timezone

    client.force_login(olga)
    run = factories.run(stage.ada, stage.foreign, status="succeeded")
    finding = loops.Finding(
        "no_progress", "3 runs on ACM-1 went well and changed nothing.", {"runs": [str(run.pk)]}
    )
    loops.hold(agent=stage.ada, run=run, finding=finding, now=timezone.now())
    assert Hold.objects.get().details["kind"] == "no_progress"
    page = client.get("/c/ACM/agents/ada/").content.decode()
    assert "3 runs on ACM-1 went well and changed nothing." in page
    assert f'href="/c/ACM/runs/{run.pk}"' in page


def test_the_form_reads_and_shows_them(client, olga, ada):
    from agents import loop_fields
    from agents.forms import AgentForm

    assert {name.removeprefix("limit_") for name in loop_fields.NAMES} == set(loop_limits.NAMES)
    given = {"limit_same_steps": " 12 ", "limit_idle_runs": "5", "limit_spend_floor_micros": "0.25"}
    form = AgentForm([], {**AgentForm.of(ada), **given})
    assert form.is_valid(), form.errors
    limits = {"same_steps": 12, "idle_runs": 5, "spend_floor_micros": 250_000}
    assert form.fields_of_agent(ada.company_id)["loop_limits"] == limits
    for name in loop_fields.NAMES:
        for wrong in ("x", "0", "-1", "1e30", "2000000000"):
            assert name in AgentForm([], {**AgentForm.of(ada), name: wrong}).errors
    ada.loop_limits = limits
    shown = AgentForm.of(ada)
    assert (shown["limit_same_steps"], shown["limit_idle_runs"]) == (12, 5)
    again = AgentForm([], {k: str(v) for k, v in shown.items() if v is not None})
    assert again.is_valid(), again.errors
    assert again.fields_of_agent(ada.company_id)["loop_limits"] == limits
