"""The staff: hiring, changing, holding, letting go."""

from __future__ import annotations

import pytest

from agents import roster, runs
from agents.models import Agent, AgentKey, HeartbeatRun, Hold
from companies.activity import SYSTEM, Actor
from companies.errors import Conflict, Invalid, NotFound, Refusal
from companies.models import Activity
from tests import factories

pytestmark = pytest.mark.django_db


def hire(company, **fields) -> Agent:
    return roster.hire(
        company=company, actor=SYSTEM, **{"name": "Eve", "adapter_type": "demo", **fields}
    )


def test_a_hire_has_a_short_name_a_number_and_an_entry(acme):
    first, second = hire(acme, name="Ève O’Neil"), hire(acme, name="Eve O'Neil")
    assert (first.slug, second.slug) == ("eve-oneil", "eve-o-neil")
    assert second.number > first.number
    assert Activity.objects.filter(action="agent.hired").count() == 2


def test_the_same_name_twice_gets_another_short_name(acme, globex):
    assert [hire(acme).slug, hire(acme).slug, hire(globex).slug] == ["eve", "eve-2", "eve"]


def test_a_name_without_letters_still_has_a_short_name(acme):
    assert hire(acme, name="漢字").slug == "agent"


def test_a_timer_begins_with_its_next_slot(acme, now):
    assert hire(acme).next_beat_at is None
    timed = hire(acme, heartbeat_enabled=True, now=now)
    assert timed.next_beat_at is not None
    assert timed.next_beat_at > now


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "  "}, "name"),
        ({"adapter_type": "nonesuch"}, "adapter_type"),
        ({"adapter_type": ""}, "adapter_type"),
        ({"adapter_type": 7}, "adapter_type"),
        ({"adapter_config": {"nonesuch": 1}}, "adapter_config"),
        ({"adapter_config": []}, "adapter_type"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"interval_seconds": 1}, "interval_seconds"),
        ({"max_concurrent_runs": 0}, "max_concurrent_runs"),
        ({"on_finish": "nonesuch"}, "on_finish"),
        ({"salary": 1}, "salary"),
        ({"company_id": 1}, "company_id"),
    ],
)
def test_a_bad_field_is_named(acme, fields, field):
    with pytest.raises(Invalid) as refusal:
        hire(acme, **fields)
    assert refusal.value.field == field
    assert not Agent.objects.exists()


def test_a_known_alias_becomes_the_real_adapter(acme):
    eve = hire(acme, adapter_type="shell", adapter_config={"command": "/bin/echo"})
    assert eve.adapter_type == "process"


def test_nobody_reports_to_another_company(acme, spy):
    with pytest.raises(NotFound):
        hire(acme, reports_to=spy)


def test_the_line_of_managers_never_comes_back(acme, ada, bo):
    eve = hire(acme, reports_to=ada)
    roster.update(agent=bo, changes={"reports_to": eve}, actor=SYSTEM)
    with pytest.raises(Invalid, match="report to itself"):
        roster.update(agent=ada, changes={"reports_to": bo}, actor=SYSTEM)
    with pytest.raises(Invalid, match="report to itself"):
        roster.update(agent=ada, changes={"reports_to": ada}, actor=SYSTEM)


def test_a_change_counts_up_the_version_and_a_stale_one_is_refused(ada):
    changed = roster.update(agent=ada, changes={"title": "Boss"}, actor=SYSTEM, if_version=1)
    assert (changed.title, changed.version) == ("Boss", 2)
    with pytest.raises(Conflict):
        roster.update(agent=ada, changes={"title": "Chief"}, actor=SYSTEM, if_version=1)


def test_a_taken_short_name_is_refused(ada, bo):
    with pytest.raises(Invalid) as refusal:
        roster.update(agent=bo, changes={"slug": "ada"}, actor=SYSTEM)
    assert refusal.value.code == "slug_taken"


def test_another_adapter_starts_with_a_configuration_of_its_own(acme):
    eve = hire(acme, adapter_config={"pace": 0})
    changed = roster.update(
        agent=eve,
        changes={"adapter_type": "process", "adapter_config": {"command": "/bin/echo"}},
        actor=SYSTEM,
    )
    assert changed.adapter_config == {"command": "/bin/echo"}


def test_switching_the_timer_sets_and_clears_the_next_beat(ada):
    on = roster.update(agent=ada, changes={"heartbeat_enabled": True}, actor=SYSTEM)
    assert on.next_beat_at is not None
    off = roster.update(agent=ada, changes={"heartbeat_enabled": False}, actor=SYSTEM)
    assert off.next_beat_at is None


def test_each_reason_is_a_hold_of_its_own(ada):
    roster.pause(agent=ada, actor=SYSTEM)
    roster.pause(agent=ada, actor=SYSTEM)
    roster.hold(agent=ada, reason=Hold.Reason.AGENT_BUDGET, actor=SYSTEM)
    assert set(Hold.objects.values_list("reason", flat=True)) == {"operator", "agent_budget"}
    assert roster.lift(agent=ada, reason="agent_budget", actor=SYSTEM)
    assert not roster.lift(agent=ada, reason="agent_budget", actor=SYSTEM)
    assert Hold.objects.get().reason == "operator"


def test_resuming_lifts_what_waits_for_a_person_and_no_budget(ada):
    for reason in ("operator", "quota", "loop", "company_budget"):
        roster.hold(agent=ada, reason=reason, actor=SYSTEM)
    roster.resume(agent=ada, actor=SYSTEM)
    assert Hold.objects.get().reason == "company_budget"


def test_a_pause_lets_runs_go_on_unless_told_otherwise(ada, issue):
    run = factories.running(ada, issue)
    roster.pause(agent=ada, actor=SYSTEM)
    run.refresh_from_db()
    assert run.cancel_requested_at is None
    roster.pause(agent=ada, actor=SYSTEM, stop_running=True)
    run.refresh_from_db()
    assert run.cancel_requested_at is not None


def test_who_is_let_go_has_no_keys_no_queue_and_no_way_back(ada, issue, olga, now):
    key = AgentKey.objects.create(company=ada.company, agent=ada, name="k", lookup="l", digest="d")
    waiting = factories.run(ada, issue)
    going = factories.running(ada, None)
    gone = roster.terminate(agent=ada, actor=Actor("user", olga.pk))
    key.refresh_from_db()
    waiting.refresh_from_db()
    going.refresh_from_db()
    assert gone.status == "terminated"
    assert key.revoked_at is not None
    assert (waiting.status, waiting.code) == ("cancelled", "agent_terminated")
    assert going.cancel_requested_at is not None
    with pytest.raises(Refusal):
        roster.resume(agent=ada, actor=SYSTEM)
    with pytest.raises(Refusal):
        roster.pause(agent=ada, actor=SYSTEM)
    assert roster.terminate(agent=ada, actor=SYSTEM).status == "terminated"


def test_a_hire_that_waits_for_approval_works_after_it(acme, issue):
    eve = hire(acme, status="pending_approval")
    wake = {"agent": eve, "reason": "manual", "source": "on_demand", "actor": SYSTEM}
    assert runs.wake(**wake).refused == "agent_pending_approval"
    roster.approve(agent=eve, actor=SYSTEM)
    assert runs.wake(**wake).created
    with pytest.raises(Conflict):
        roster.approve(agent=eve, actor=SYSTEM)


def test_an_error_is_cleared_by_a_person(ada):
    Agent.objects.update(error_code="auth_failed")
    assert roster.clear_error(agent=ada, actor=SYSTEM).error_code == ""
    assert Activity.objects.get().action == "agent.error_cleared"


@pytest.mark.parametrize(
    ("fields", "running", "holds", "word"),
    [
        ({}, 0, [], "idle"),
        ({}, 2, [], "running"),
        ({"error_code": "lost"}, 0, [], "error"),
        ({"error_code": "lost"}, 1, [], "running"),
        ({}, 1, ["operator"], "paused"),
        ({"status": "pending_approval"}, 0, [], "pending_approval"),
        ({"status": "terminated"}, 1, ["operator"], "terminated"),
    ],
)
def test_what_an_agent_is_doing_is_one_word(fields, running, holds, word):
    assert roster.status_of(Agent(**fields), running, holds) == word


def test_cancelled_work_of_a_terminated_agent_never_starts(ada, issue):
    roster.terminate(agent=ada, actor=SYSTEM)
    assert not HeartbeatRun.objects.filter(status="queued").exists()
