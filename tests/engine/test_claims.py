"""The start gate: caps, holds, order and staleness."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from agents import auth, runs, workers
from agents.models import Agent, HeartbeatRun, RunEvent, Worker
from companies.models import Company
from issues.models import Issue
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker(db) -> uuid.UUID:
    return workers.register(instance="here", slot=0, pid=1, capacity=250)


def queue(agent: Agent, count: int = 1, **fields) -> list[HeartbeatRun]:
    made = []
    for _ in range(count):
        issue = factories.issue(agent.company, assignee=agent, **fields)
        made.append(factories.run(agent, issue))
    return made


def status(run: HeartbeatRun) -> tuple[str, str]:
    run.refresh_from_db()
    return run.status, run.code


def test_a_claim_starts_a_run_under_a_new_epoch(worker, ada):
    (run,) = queue(ada)
    (claimed,) = runs.claim(worker_id=worker, limit=10)
    run.refresh_from_db()
    assert (claimed.run_id, claimed.epoch, claimed.issue_id) == (run.pk, 1, run.issue_id)
    assert (run.status, run.epoch, run.worker_id) == ("running", 1, worker)
    event = RunEvent.objects.get(run_id=run.pk)
    assert (event.seq, event.kind, event.data["status"]) == (1, "status", "running")


def test_each_claim_brings_a_token_of_its_own_that_dies_with_its_epoch(worker, acme):
    """Also where more could start than are taken."""
    Company.objects.filter(pk=acme.pk).update(max_concurrent_agents=20)
    for _ in range(5):
        queue(factories.agent(acme))
    batches = [runs.claim(worker_id=worker, limit=3), runs.claim(worker_id=worker, limit=3)]
    claimed = [one for batch in batches for one in batch]
    assert len({one.token for one in claimed}) == 5
    assert [proves(one.token) for one in claimed] == [one.run_id for one in claimed]
    assert not any(one.token in repr(one) for one in claimed)
    (first, *_) = claimed
    run = runs.held(run_id=first.run_id, epoch=first.epoch)
    assert runs.lose(run=run, loss=runs.Loss("lost", "lost", "", 2), now=timezone.now())
    assert proves(first.token) is None
    (again,) = runs.claim(worker_id=worker, limit=3)
    assert (again.attempt, proves(again.token)) == (2, again.run_id)
    assert proves(first.token) is None


def proves(token: str) -> uuid.UUID | None:
    principal = auth.principal_for_token(token)
    return principal.run_id if principal else None


def test_an_agent_runs_no_more_than_its_cap(worker, acme):
    agent = factories.agent(acme, max_concurrent_runs=3)
    queue(agent, 5)
    assert len(runs.claim(worker_id=worker, limit=10)) == 3
    assert len(runs.claim(worker_id=worker, limit=10)) == 0


def test_a_company_has_no_more_agents_at_work_than_its_cap(worker, acme):
    Company.objects.filter(pk=acme.pk).update(max_concurrent_agents=2)
    for _ in range(4):
        queue(factories.agent(acme, max_concurrent_runs=2), 2)
    claimed = runs.claim(worker_id=worker, limit=100)
    assert len(claimed) == 4
    assert len({run.agent_id for run in claimed}) == 2


def test_an_agent_at_work_takes_more_although_its_company_is_full(worker, acme):
    Company.objects.filter(pk=acme.pk).update(max_concurrent_agents=1)
    ada = factories.agent(acme, max_concurrent_runs=2)
    factories.running(ada)
    queue(ada)
    queue(factories.agent(acme))
    (claimed,) = runs.claim(worker_id=worker, limit=10)
    assert claimed.agent_id == ada.pk


def test_the_limit_is_kept(worker, acme):
    for _ in range(5):
        queue(factories.agent(acme))
    assert len(runs.claim(worker_id=worker, limit=2)) == 2


def test_one_issue_runs_once_at_a_time(worker, acme, ada, bo, issue):
    factories.run(ada, issue)
    factories.run(bo, issue, reason="issue_comment_mentioned")
    (first,) = runs.claim(worker_id=worker, limit=10)
    assert len(runs.claim(worker_id=worker, limit=10)) == 0
    runs.finish(run_id=first.run_id, epoch=first.epoch, status="succeeded")
    (second,) = runs.claim(worker_id=worker, limit=10)
    assert {first.agent_id, second.agent_id} == {ada.pk, bo.pk}


def test_a_held_agent_waits_and_does_not_block_others(worker, ada, bo):
    queue(ada, 50)
    (wanted,) = queue(bo)
    factories.hold(ada)
    (claimed,) = runs.claim(worker_id=worker, limit=10)
    assert claimed.run_id == wanted.pk


@pytest.mark.parametrize("state", ["paused", "archived"])
def test_a_company_that_does_not_work_starts_nothing(worker, ada, acme, state):
    queue(ada)
    Company.objects.filter(pk=acme.pk).update(status=state)
    assert len(runs.claim(worker_id=worker, limit=10)) == 0


def test_a_run_waits_until_its_time(worker, ada, issue, now):
    factories.run(ada, issue, not_before=now + timedelta(hours=1))
    assert len(runs.claim(worker_id=worker, limit=10)) == 0


def test_priority_goes_before_age(worker, ada):
    (late,) = queue(ada, priority=0)
    HeartbeatRun.objects.all().delete()
    queue(ada, priority=3)
    urgent = factories.run(ada, late.issue)
    (claimed,) = runs.claim(worker_id=worker, limit=1)
    assert claimed.run_id == urgent.pk


def test_no_company_starves_another(worker, acme, globex):
    for _ in range(5):
        queue(factories.agent(acme))
    queue(factories.agent(globex))
    claimed = runs.claim(worker_id=worker, limit=2)
    assert {run.company_id for run in claimed} == {acme.pk, globex.pk}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"status": "done"}, "issue_closed"),
        ({"status": "cancelled"}, "issue_closed"),
        ({"status": "backlog"}, "issue_in_backlog"),
        ({"assignee_agent": None}, "issue_reassigned"),
        ({"archived_at": "2026-01-01T00:00Z"}, "issue_archived"),
    ],
)
def test_a_run_that_lost_its_purpose_is_cancelled_with_the_reason(worker, ada, changes, code):
    (run,) = queue(ada)
    Issue.objects.filter(pk=run.issue_id).update(**changes)
    batch = runs.claim(worker_id=worker, limit=10)
    assert len(batch) == 0
    assert status(run) == ("cancelled", code)


def test_stale_runs_at_the_head_do_not_hide_the_good_one(worker, ada):
    for run in queue(ada, 30):
        Issue.objects.filter(pk=run.issue_id).update(status="done")
    (good,) = queue(ada)
    claimed: list[runs.Claimed] = []
    for _ in range(10):
        batch = runs.claim(worker_id=worker, limit=1)
        claimed += batch
        if not batch.more:
            break
    assert [run.run_id for run in claimed] == [good.pk]


@pytest.mark.parametrize("reason", ["issue_comment_mentioned", "issue_commented", "manual"])
def test_who_is_called_may_answer_on_somebody_elses_issue(worker, bo, issue, reason):
    factories.run(bo, issue, reason=reason)
    assert len(runs.claim(worker_id=worker, limit=10)) == 1


def test_a_retry_of_an_answer_is_still_an_answer(worker, bo, issue):
    factories.run(
        bo,
        issue,
        reason="process_lost_retry",
        payload={"originalReason": "issue_comment_mentioned"},
    )
    assert len(runs.claim(worker_id=worker, limit=10)) == 1


def test_a_blocked_issue_waits_for_what_blocks_it(worker, ada, acme, issue):
    run = factories.run(ada, issue)
    other = factories.issue(acme, "First things first")
    factories.blocker(issue, by=other)
    assert len(runs.claim(worker_id=worker, limit=10)) == 0
    assert status(run) == ("queued", "")
    Issue.objects.filter(pk=other.pk).update(status="done")
    assert len(runs.claim(worker_id=worker, limit=10)) == 1


def test_blocked_issues_do_not_hide_the_good_one(worker, ada, acme):
    blocking = factories.issue(acme, "First things first")
    for run in queue(ada, 40):
        factories.blocker(run.issue, by=blocking)
    (good,) = queue(ada)
    (claimed,) = runs.claim(worker_id=worker, limit=1)
    assert claimed.run_id == good.pk


def test_a_daily_limit_of_runs_is_kept(worker, acme, now):
    agent = factories.agent(acme, max_concurrent_runs=5, max_daily_runs=2)
    factories.run(agent, status="succeeded", now=now)
    factories.run(agent, status="succeeded", now=now - timedelta(days=2))
    queue(agent, 3)
    assert len(runs.claim(worker_id=worker, limit=10)) == 1


def test_a_daily_limit_of_money_is_kept(worker, acme, now):
    agent = factories.agent(acme, max_daily_cost_micros=500)
    factories.run(agent, status="succeeded", now=now, cost_micros=500)
    queue(agent)
    assert len(runs.claim(worker_id=worker, limit=10)) == 0


@pytest.mark.parametrize("change", [{"draining": True}, {"lease_expires_at": "2020-01-01T00:00Z"}])
def test_a_worker_that_drains_or_is_dead_gets_nothing(worker, ada, change):
    queue(ada)
    Worker.objects.filter(pk=worker).update(**change)
    assert len(runs.claim(worker_id=worker, limit=10)) == 0


def test_everybody_has_a_turn_however_many_wait(worker, acme):
    """A window smaller than the number of waiting agents moves on from look to look."""
    Company.objects.filter(pk=acme.pk).update(max_concurrent_agents=100)
    for _ in range(7):
        held = factories.agent(acme)
        queue(held)
        factories.hold(held)
    wanted = {queue(factories.agent(acme))[0].pk for _ in range(4)}
    claimed: set[uuid.UUID] = set()
    place = runs.START
    for _ in range(20):
        batch = runs.claim(worker_id=worker, limit=1, place=place, window=2)
        claimed |= {run.run_id for run in batch}
        place = batch.place
    assert claimed == wanted


def test_every_company_has_its_turn_however_much_another_has_queued(worker, acme, globex):
    """The look goes round: what is full of work in front does not keep it there."""
    for company in (acme, globex):
        for _ in range(3):
            queue(factories.agent(company, max_concurrent_runs=20), 10)
    place, seen = runs.START, set()
    for _ in range(3):
        batch = runs.claim(worker_id=worker, limit=2, place=place, window=2)
        place = batch.place
        seen |= {claimed.company_id for claimed in batch}
    assert seen == {acme.pk, globex.pk}


def test_an_instance_carries_few_runs_of_a_heavy_kind(worker, acme):
    heavy = factories.agent(acme, max_concurrent_runs=9, adapter_type="claude_local")
    queue(heavy, 4)
    queue(factories.agent(acme, max_concurrent_runs=9), 4)
    batch = runs.claim(worker_id=worker, limit=20, most_of_kind={"claude_local": 2})
    assert sorted(claimed.adapter_type for claimed in batch) == ["claude_local"] * 2 + ["demo"] * 4
    assert not runs.claim(worker_id=worker, limit=20, most_of_kind={"claude_local": 2})
    elsewhere = workers.register(instance="there", slot=0, pid=1, capacity=250)
    assert len(runs.claim(worker_id=elsewhere, limit=20, most_of_kind={"claude_local": 2})) == 2
