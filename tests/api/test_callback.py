"""Runs that go on elsewhere: lease and result, with the run's own token."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents import runs
from agents.models import Agent, HeartbeatRun
from billing.models import CostEvent
from companies import keys, secrets
from companies.activity import SYSTEM
from companies.models import Company
from issues.models import Comment, Issue
from tests import factories
from tests.api.conftest import Caller


@pytest.fixture
def elsewhere(adas_run: HeartbeatRun, ada: Agent, issue: Issue, as_run: Caller) -> HeartbeatRun:
    """Ada's run, checked out, after a 202."""
    factories.checkout(issue, ada, adas_run)
    Issue.objects.filter(id=issue.id).update(status="in_progress")
    runs.go_external(run_id=adas_run.id, epoch=adas_run.epoch, session={"id": "s-1"})
    adas_run.refresh_from_db()
    return adas_run


def test_a_sign_of_life_moves_the_lease(as_run: Caller, elsewhere: HeartbeatRun) -> None:
    HeartbeatRun.objects.filter(id=elsewhere.id).update(
        lease_expires_at=timezone.now() + timedelta(seconds=5)
    )

    moved = as_run.send("POST", f"/api/heartbeat-runs/{elsewhere.id}/lease", {"seconds": 3600})

    assert moved.status_code == 200, moved.content
    elsewhere.refresh_from_db()
    assert elsewhere.lease_expires_at is not None
    assert elsewhere.lease_expires_at > timezone.now() + timedelta(minutes=50)


def test_the_result_ends_the_run_and_reports_to_the_issue(
    as_run: Caller, elsewhere: HeartbeatRun
) -> None:
    done = as_run.send(
        "POST", f"/api/heartbeat-runs/{elsewhere.id}/result",
        {
            "summary": "Forged.", "status": "done", "cost": 0.25,
            "usage": {"model": "m", "inputTokens": 10, "outputTokens": 5},
        },
    )  # fmt: skip

    assert done.status_code == 200, done.content
    assert done.json()["status"] == "succeeded"
    assert Issue.objects.get().status == "done"
    assert Comment.objects.get().body == "Forged."
    assert CostEvent.objects.get().cost_micros == 250_000
    assert as_run.send("GET", "/api/agents/me").status_code == 401


def test_a_run_elsewhere_can_say_that_it_failed(as_run: Caller, elsewhere: HeartbeatRun) -> None:
    failed = as_run.send(
        "POST", f"/api/heartbeat-runs/{elsewhere.id}/result",
        {"error": "The forge is cold.", "status": "done", "cost": 0.5},
    )  # fmt: skip

    assert failed.status_code == 200, failed.content
    told = failed.json()
    assert (told["status"], told["errorCode"]) == ("failed", "reported_failure")
    assert told["error"] == "The forge is cold."
    assert Issue.objects.get().status != "done"
    assert CostEvent.objects.get().cost_micros == 500_000
    assert HeartbeatRun.objects.count() == 1  # half of the work may be done: nobody repeats it


def test_a_result_is_no_larger_than_one_that_is_answered_at_once(
    as_run: Caller, elsewhere: HeartbeatRun
) -> None:
    body = {"summary": "Forged.", "result": {"log": "x" * 1024**2}}

    refused = as_run.send("POST", f"/api/heartbeat-runs/{elsewhere.id}/result", body)

    assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")
    elsewhere.refresh_from_db()
    assert elsewhere.status == "running"


def test_what_it_says_is_shown_without_the_secrets_that_it_was_given(
    as_run: Caller, elsewhere: HeartbeatRun, acme: Company, ada: Agent
) -> None:
    secrets.put(
        company=acme, name="SIGNING", value="forge-fire-17", actor=SYSTEM, now=timezone.now()
    )
    config = {"url": "https://forge.example/run", "secretRef": "SIGNING"}
    Agent.objects.filter(id=ada.id).update(adapter_type="http", adapter_config=config)
    words = f"Signed with forge-fire-17 as {as_run.token} by sk-ant-{'a1' * 20}."

    done = as_run.send(
        "POST", f"/api/heartbeat-runs/{elsewhere.id}/result",
        {"summary": words, "result": {"log": [words]}},
    )  # fmt: skip

    assert done.status_code == 200, done.content
    shown = done.content.decode() + Comment.objects.get().body
    for secret in ("forge-fire-17", as_run.token):
        assert secret not in shown
    assert "sk-ant-" not in Comment.objects.get().body


def test_a_result_that_is_none_changes_nothing(as_run: Caller, elsewhere: HeartbeatRun) -> None:
    refused = as_run.send(
        "POST", f"/api/heartbeat-runs/{elsewhere.id}/result", {"summary": "x", "status": "maybe"}
    )

    assert (refused.status_code, refused.json()["code"]) == (400, "bad_result")
    elsewhere.refresh_from_db()
    assert elsewhere.status == "running"


def test_another_run_is_not_found(as_run: Caller, elsewhere: HeartbeatRun, bo: Agent) -> None:
    other = factories.running(bo)

    assert as_run.send("POST", f"/api/heartbeat-runs/{other.id}/result", {}).status_code == 404


@pytest.fixture
def posted(adas_run: HeartbeatRun, ada: Agent, issue: Issue, as_run: Caller) -> HeartbeatRun:
    """Ada's run, posted to a web service whose answer nobody has seen yet."""
    factories.checkout(issue, ada, adas_run)
    Issue.objects.filter(id=issue.id).update(status="in_progress")
    HeartbeatRun.objects.filter(id=adas_run.id).update(adapter_type="http")
    adas_run.refresh_from_db()
    return adas_run


def test_a_result_that_overtakes_its_202_counts(as_run: Caller, posted: HeartbeatRun) -> None:
    done = as_run.send(
        "POST", f"/api/heartbeat-runs/{posted.id}/result", {"summary": "Forged.", "status": "done"}
    )

    assert done.status_code == 200, done.content
    assert done.json()["status"] == "succeeded"
    assert Comment.objects.get().body == "Forged."
    with pytest.raises(runs.Stale):  # the 202 comes too late to take anything back
        runs.go_external(run_id=posted.id, epoch=posted.epoch, session={})
    posted.refresh_from_db()
    assert (posted.status, posted.lease_expires_at) == ("succeeded", None)


def test_a_lease_that_overtakes_its_202_is_not_shortened_by_it(
    as_run: Caller, posted: HeartbeatRun
) -> None:
    asked = as_run.send("POST", f"/api/heartbeat-runs/{posted.id}/lease", {"seconds": 86_400})

    assert asked.status_code == 200, asked.content
    runs.go_external(run_id=posted.id, epoch=posted.epoch, session={"id": "s-1"})
    posted.refresh_from_db()
    assert posted.lease_expires_at is not None
    assert posted.lease_expires_at > timezone.now() + timedelta(hours=23)
    assert posted.session["id"] == "s-1"


def test_a_run_that_called_back_outlives_the_process_that_waited_for_its_202(
    as_run: Caller, posted: HeartbeatRun
) -> None:
    assert (posted.id, posted.epoch) in runs.expired()  # its worker is gone

    as_run.send("POST", f"/api/heartbeat-runs/{posted.id}/lease", {"seconds": 60})

    assert runs.expired() == []
    done = as_run.send("POST", f"/api/heartbeat-runs/{posted.id}/result", {"summary": "Forged."})
    assert done.status_code == 200, done.content


def test_no_other_agent_calls_back(as_run: Caller, adas_run: HeartbeatRun) -> None:
    for deed, body in (("lease", {}), ("result", {"summary": "x"})):
        refused = as_run.send("POST", f"/api/heartbeat-runs/{adas_run.id}/{deed}", body)
        assert (refused.status_code, refused.json()["code"]) == (409, "run_not_external")


def test_a_result_that_is_sent_again_with_its_key_gets_the_same_answer(
    as_run: Caller, elsewhere: HeartbeatRun
) -> None:
    path, body = f"/api/heartbeat-runs/{elsewhere.id}/result", {"summary": "Forged.", "cost": 0.5}

    first = as_run.send("POST", path, body, Idempotency_Key="r-1")
    again = as_run.send("POST", path, body, Idempotency_Key="r-1")
    other = as_run.send("POST", path, {"summary": "Other."}, Idempotency_Key="r-1")
    new = as_run.send("POST", path, body, Idempotency_Key="r-2")
    stranger = Caller(keys.mint(keys.RUN).token).send("POST", path, body, Idempotency_Key="r-1")

    assert first.status_code == again.status_code == 200, again.content
    assert first.content == again.content
    assert again["Idempotent-Replayed"] == "true"
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert (new.status_code, new.json()["code"]) == (401, "run_ended")
    assert (stranger.status_code, stranger.json()["code"]) == (401, "run_ended")
    assert Comment.objects.count() == CostEvent.objects.count() == 1


def cancelled_before_its_202(run: HeartbeatRun) -> None:
    """A person has cancelled it; the worker that waits for the service has not heard of it yet."""
    assert runs.cancel(run=run, actor=SYSTEM, reason="Enough.") == "running"


def test_a_run_that_has_to_stop_gets_no_lease(as_run: Caller, posted: HeartbeatRun) -> None:
    cancelled_before_its_202(posted)

    refused = as_run.send("POST", f"/api/heartbeat-runs/{posted.id}/lease", {"seconds": 86_400})

    assert (refused.status_code, refused.json()["code"]) == (409, "run_cancelled")
    posted.refresh_from_db()
    assert (posted.status, posted.lease_expires_at) == ("running", None)


def test_its_result_is_not_taken_and_its_cost_is_booked_once(
    as_run: Caller, posted: HeartbeatRun
) -> None:
    cancelled_before_its_202(posted)
    body = {"summary": "Forged.", "status": "done", "cost": 0.25}

    for _ in range(2):
        refused = as_run.send("POST", f"/api/heartbeat-runs/{posted.id}/result", body)
        assert (refused.status_code, refused.json()["code"]) == (409, "run_cancelled")

    posted.refresh_from_db()
    assert (posted.status, posted.summary, posted.cost_micros) == ("running", "", 250_000)
    assert Issue.objects.get().status == "in_progress"
    assert not Comment.objects.exists()
    assert CostEvent.objects.get().cost_micros == 250_000


def test_its_202_hands_nothing_over(as_run: Caller, posted: HeartbeatRun) -> None:
    cancelled_before_its_202(posted)

    assert not runs.go_external(run_id=posted.id, epoch=posted.epoch, session={"id": "s-1"})

    posted.refresh_from_db()
    assert (posted.status, posted.lease_expires_at) == ("running", None)
