"""Runs whose holder is gone: found, fenced, queued again or shown to a person."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agents import runs
from agents.models import HeartbeatRun, Worker
from companies.activity import SYSTEM
from issues import work
from issues.models import Checkout, Comment
from paperclip.engine import recover
from tests import factories
from tests.engine.puppet import Puppet

pytestmark = pytest.mark.django_db


@pytest.fixture
def dead(now) -> Worker:
    return factories.worker(lease_expires_at=now - timedelta(seconds=1))


@pytest.fixture
def orphan(pia, acme, dead) -> HeartbeatRun:
    """A run of a dead worker, with its issue checked out."""
    issue = factories.issue(acme, assignee=pia)
    run = factories.running(pia, issue, worker=dead)
    work.begin(run=run)
    return run


def test_a_safe_run_is_lost_and_follows_itself(orphan):
    (lost,) = recover.sweep()
    orphan.refresh_from_db()
    following = HeartbeatRun.objects.get(pk=lost.retry)
    assert (orphan.status, orphan.code, orphan.epoch) == ("lost", "lost", 2)
    assert (following.status, following.attempt, following.retry_of_id) == ("queued", 2, orphan.pk)
    assert following.reason == "process_lost_retry"
    orphan.issue.refresh_from_db()
    assert orphan.issue.status == "todo"
    assert not Checkout.objects.filter(released_at=None).exists()


def test_the_former_holder_is_fenced_off(orphan):
    recover.sweep()
    assert not runs.finish(run_id=orphan.pk, epoch=1, status="succeeded")
    with pytest.raises(runs.Stale):
        runs.mark_acted(run_id=orphan.pk, epoch=1)


def test_a_run_of_a_living_worker_is_left(pia, issue):
    factories.running(pia, issue, worker=factories.worker())
    factories.run(pia)
    assert recover.sweep() == []


def test_an_unsafe_run_is_for_a_person_to_decide(orphan, puppet: Puppet):
    puppet.retry_safe = False
    (lost,) = recover.sweep()
    assert (lost.status, lost.retry) == ("unknown", None)
    orphan.issue.refresh_from_db()
    assert orphan.issue.status == "blocked"
    assert "Worker lost" in Comment.objects.get(issue=orphan.issue).body


def test_a_run_that_had_acted_is_not_repeated(orphan):
    runs.mark_acted(run_id=orphan.pk, epoch=1)
    (lost,) = recover.sweep()
    assert lost.status == "unknown"


def test_a_run_is_lost_three_times_at_most(orphan):
    HeartbeatRun.objects.filter(pk=orphan.pk).update(attempt=3)
    (lost,) = recover.sweep()
    assert (lost.status, lost.retry) == ("unknown", None)


def test_a_run_that_should_stop_anyway_is_cancelled(orphan):
    runs.cancel(run=orphan, actor=SYSTEM, reason="Enough")
    (lost,) = recover.sweep()
    orphan.refresh_from_db()
    assert (lost.status, orphan.message) == ("cancelled", "Enough")
    orphan.issue.refresh_from_db()
    assert orphan.issue.status == "todo"


def test_the_next_run_takes_over_what_was_queued_meanwhile(orphan, pia, now):
    waiting = factories.run(pia, orphan.issue, comment_ids=[orphan.pk])
    (lost,) = recover.sweep()
    assert lost.retry == waiting.pk
    waiting.refresh_from_db()
    assert (waiting.attempt, waiting.wake_count) == (2, 2)


def test_a_server_elsewhere_that_goes_silent_loses_its_run(orphan, now):
    HeartbeatRun.objects.filter(pk=orphan.pk).update(
        worker=None, lease_expires_at=now - timedelta(seconds=1), acted_at=now
    )
    (lost,) = recover.sweep()
    orphan.refresh_from_db()
    assert lost.status == "unknown"
    assert "has not reported in time" in orphan.message


def test_one_runs_trouble_does_not_keep_the_others(orphan, acme, pia, dead, monkeypatch, caplog):
    second = factories.running(pia, factories.issue(acme, assignee=pia), worker=dead)
    report = work.report

    def fails_once(*, run, **rest):
        if run.pk == orphan.pk:
            raise RuntimeError("no")
        return report(run=run, **rest)

    monkeypatch.setattr(work, "report", fails_once)
    assert [lost.run_id for lost in recover.sweep()] == [second.pk]
    assert str(orphan.pk) in caplog.text


def test_the_trouble_of_all_is_said_once_and_counted(orphan, acme, pia, dead, monkeypatch, caplog):
    for _ in range(3):
        factories.running(pia, factories.issue(acme, assignee=pia), worker=dead)

    def fails(**_):
        raise RuntimeError("no")

    monkeypatch.setattr(work, "report", fails)
    assert recover.sweep() == []
    assert caplog.text.count("Traceback") == 1
    assert "3 more runs: not rescued" in caplog.text


def test_an_issue_in_the_hands_of_an_ended_run_is_freed(pia, acme):
    issue = factories.issue(acme, assignee=pia)
    run = factories.running(pia, issue)
    work.begin(run=run)
    runs.go_external(run_id=run.pk, epoch=1, session={})
    runs.cancel(run=run, actor=SYSTEM)
    assert recover.tidy() == 1
    issue.refresh_from_db()
    assert issue.status == "todo"
    assert recover.tidy() == 0
