"""How runs end, and what people may ask of them, in every state."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from agents import auth, runs
from agents.adapters.base import Code
from agents.models import HeartbeatRun, RunEvent
from companies.activity import SYSTEM, Actor
from companies.errors import Conflict
from companies.models import Activity
from tests import factories

pytestmark = pytest.mark.django_db

Status = HeartbeatRun.Status
ENDED = [s for s in Status.values if s not in HeartbeatRun.LIVE]


@pytest.fixture
def going(ada, issue) -> HeartbeatRun:
    return factories.running(ada, issue, worker=factories.worker())


def test_finishing_raises_the_epoch_and_kills_the_token(going):
    token = factories.run_token(going)
    principal = auth.principal_for_token(token)
    assert principal is not None
    assert principal.run_id == going.pk
    assert runs.finish(run_id=going.pk, epoch=1, status="succeeded", summary="ok")
    going.refresh_from_db()
    assert (going.status, going.epoch, going.token_digest) == ("succeeded", 2, None)
    assert auth.principal_for_token(token) is None


def test_the_end_is_an_event_and_an_activity(going):
    runs.finish(run_id=going.pk, epoch=1, status="failed", code=Code.REFUSED, message="No.")
    event = RunEvent.objects.get(run_id=going.pk)
    assert (event.kind, event.data) == ("status", {"status": "failed", "code": "refused"})
    assert Activity.objects.get().action == "run.failed"


def test_who_has_lost_the_run_cannot_finish_it(going, caplog):
    assert runs.finish(run_id=going.pk, epoch=1, status="succeeded")
    with caplog.at_level(logging.WARNING):
        assert not runs.finish(run_id=going.pk, epoch=1, status="failed", code="lost")
    going.refresh_from_db()
    assert going.status == "succeeded"
    assert "stale_write_blocked" in caplog.text
    assert Activity.objects.count() == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda run: runs.mark_acted(run_id=run.pk, epoch=1),
        lambda run: runs.note_started(run_id=run.pk, epoch=1, model="m", session={}),
        lambda run: runs.go_external(run_id=run.pk, epoch=1, session={}),
    ],
)
def test_who_has_lost_the_run_writes_nothing(going, write):
    HeartbeatRun.objects.filter(pk=going.pk).update(epoch=2)
    before = HeartbeatRun.objects.filter(pk=going.pk).values().get()
    with pytest.raises(runs.Stale):
        write(going)
    assert HeartbeatRun.objects.filter(pk=going.pk).values().get() == before


def test_a_queued_run_is_cancelled_at_once(ada, issue, olga):
    run = factories.run(ada, issue)
    assert runs.cancel(run=run, actor=Actor("user", olga.pk), reason="No need") == "cancelled"
    run.refresh_from_db()
    assert (run.status, run.code, run.message) == ("cancelled", "cancelled", "No need")


def test_a_running_run_is_asked_to_stop(going, olga):
    assert runs.cancel(run=going, actor=Actor("user", olga.pk), reason="Stop") == "running"
    going.refresh_from_db()
    assert (going.status, going.cancel_reason) == ("running", "Stop")
    assert going.cancel_requested_at is not None
    assert Activity.objects.get().action == "run.cancel_requested"


def test_asking_twice_is_asking_once(going):
    for _ in range(2):
        runs.cancel(run=going, actor=SYSTEM)
    assert Activity.objects.count() == 1


def test_a_run_that_goes_on_elsewhere_is_cancelled_at_once(going):
    runs.go_external(run_id=going.pk, epoch=1, session={"id": "x"})
    assert runs.cancel(run=going, actor=SYSTEM) == "cancelled"


@pytest.mark.parametrize("status", ENDED)
def test_an_ended_run_stays_as_it_is(ada, issue, status):
    run = factories.run(ada, issue, status=status)
    assert runs.cancel(run=run, actor=SYSTEM) == status
    run.refresh_from_db()
    assert (run.status, run.epoch, run.cancel_requested_at) == (status, 1, None)


def test_what_waits_for_an_agent_is_cancelled_together(ada, bo, acme, now):
    for _ in range(3):
        factories.run(ada, factories.issue(acme, assignee=ada))
    factories.run(bo)
    assert runs.cancel_queued(agent_id=ada.pk, now=now) == 3
    assert HeartbeatRun.objects.filter(status="queued").count() == 1


@pytest.mark.parametrize("status", ENDED)
def test_an_ended_run_can_be_run_again_by_a_person(ada, issue, olga, status):
    run = factories.run(ada, issue, status=status, attempt=3)
    wake = runs.retry(run=run, actor=Actor("user", olga.pk))
    following = HeartbeatRun.objects.get(pk=wake.run_id)
    assert (following.retry_of_id, following.attempt) == (run.pk, 1)


@pytest.mark.parametrize("status", HeartbeatRun.LIVE)
def test_a_live_run_cannot_be_run_again(ada, issue, status):
    with pytest.raises(Conflict):
        runs.retry(run=factories.run(ada, issue, status=status), actor=SYSTEM)


def test_a_server_elsewhere_keeps_its_run_alive_by_signs_of_life(going, now):
    with pytest.raises(Conflict):
        runs.extend_lease(run_id=going.pk)
    runs.go_external(run_id=going.pk, epoch=1, session={})
    until = runs.extend_lease(run_id=going.pk, lease=timedelta(hours=1))
    assert timedelta(minutes=59) < until - now < timedelta(minutes=61)


def test_a_lease_that_has_run_out_is_not_extended(going):
    runs.go_external(run_id=going.pk, epoch=1, session={})
    HeartbeatRun.objects.update(lease_expires_at="2020-01-01T00:00Z")
    with pytest.raises(Conflict):
        runs.extend_lease(run_id=going.pk)
