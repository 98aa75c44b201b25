"""Whole runs on connections, by a real shift against a mock provider."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents import buckets, providers, runs
from agents.connection_models import ProviderConnection
from agents.models import Agent, HeartbeatRun, Hold, RunEvent
from billing.models import CostEvent, Reservation
from companies import activity
from companies.models import Activity
from paperclip.engine import turnstile
from tests import factories
from tests.engine.conftest import until

pytestmark = pytest.mark.django_db(transaction=True)


def wake(agent: Agent, prompt: str) -> HeartbeatRun:
    issue = factories.issue(agent.company, description=prompt, assignee=agent)
    woken = runs.wake(
        agent=agent,
        issue=issue,
        reason="issue_assigned",
        source="assignment",
        actor=activity.SYSTEM,
    )
    return HeartbeatRun.objects.get(pk=woken.run_id)


@pytest.fixture
def carried(during):
    """Wake agents about prompts, let a shift work until those runs have ended."""

    def carry(*wishes: tuple[Agent, str]) -> list[HeartbeatRun]:
        made = [wake(agent, prompt) for agent, prompt in wishes]
        ids = [run.pk for run in made]

        async def watch(shift: Any) -> None:
            await until(
                lambda: (
                    not HeartbeatRun.objects.filter(
                        pk__in=ids, status__in=HeartbeatRun.LIVE
                    ).exists()
                ),
                30,
            )

        during(watch)
        for run in made:
            run.refresh_from_db()
        return made

    return carry


def words(run: HeartbeatRun) -> str:
    events = RunEvent.objects.filter(run_id=run.pk).order_by("seq")
    return " ".join(event.text for event in events)


def following(run: HeartbeatRun) -> HeartbeatRun | None:
    return HeartbeatRun.objects.filter(retry_of=run).first()


def test_a_run_uses_the_connections_address_and_key_and_is_counted(
    carried, connect, hire, mock_llm
):
    row = connect(base_url=mock_llm.url, key_secret="KEY", requests_per_minute=5)
    (run,) = carried((hire(row), "Hello sk-test-0001"))
    assert (run.status, run.connection_id, run.model) == ("succeeded", row.pk, "mock-1")
    assert mock_llm.state.posts[0].headers["authorization"] == "Bearer sk-test-0001"
    left, _ = buckets.left(connection_id=row.pk)
    assert left is not None
    assert left < 5
    row.refresh_from_db()
    assert row.last_answer_at is not None


def test_what_was_not_used_of_the_tokens_comes_back(carried, connect, hire, mock_llm):
    row = connect(base_url=mock_llm.url, tokens_per_minute=1_000_000)
    (run,) = carried((hire(row), "Hello"))
    _, left = buckets.left(connection_id=row.pk, now=row.created_at)
    assert run.status == "succeeded"
    assert left == 1_000_000 - 1175


def test_a_run_on_the_fallback_says_so_everywhere(carried, connect, hire, mock_llm):
    main = connect("Main", base_url=mock_llm.url)
    spare = connect("Spare", base_url=mock_llm.url)
    (run,) = carried((hire(main, spare), "[[mock:status=529;times=3]]"))
    assert (run.status, run.model, run.connection_id) == ("succeeded", "mock-2", spare.pk)
    assert run.result["fallback"]["because"] == "provider_overloaded"
    assert "Ran on fallback: Spare (mock-2)" in words(run)
    assert run.on_fallback
    assert [event.model for event in CostEvent.objects.filter(run_id=run.pk)] == ["mock-2"]
    assert not Reservation.objects.filter(run_id=run.pk, state="held").exists()
    main.refresh_from_db()
    assert len(main.failed_at) == 1
    assert main.last_errors[0]["code"] == "provider_overloaded"


def test_a_run_that_is_claimed_on_the_fallback_says_so_too(carried, connect, hire, mock_llm):
    main = connect("Main", base_url=mock_llm.url)
    spare = connect("Spare", base_url=mock_llm.url)
    agent = hire(main, spare)
    ProviderConnection.objects.filter(pk=main.pk).update(
        breaker="open",
        open_code="provider_overloaded",
        open_until=timezone.now() + timedelta(minutes=5),
    )
    (run,) = carried((agent, "Hello"))
    assert (run.status, run.connection_id) == ("succeeded", spare.pk)
    assert run.result["fallback"]["because"] == "provider_open"
    assert "Ran on fallback" in words(run)
    assert run.on_fallback


def test_a_short_wait_for_the_limit_happens_inside_the_run(carried, connect, hire, mock_llm):
    row = connect(base_url=mock_llm.url, requests_per_minute=60)
    agent = hire(row)
    later = timezone.now()
    for _ in range(60):
        buckets.take(connection_id=row.pk, tokens=1, now=later)
    (run,) = carried((agent, "Hello"))
    assert run.status == "succeeded"
    assert following(run) is None


def test_a_long_wait_brings_the_run_back_later_and_counts_no_attempt(
    carried, connect, hire, mock_llm
):
    row = connect(base_url=mock_llm.url, requests_per_minute=1)
    agent = hire(row)
    assert buckets.take(connection_id=row.pk, tokens=1) is None
    (run,) = carried((agent, "Hello"))
    assert (run.status, run.code) == ("cancelled", "rate_limited")
    assert mock_llm.state.posts == []
    again = following(run)
    assert again is not None
    assert again.attempt == 1
    wait = (again.not_before - run.finished_at).total_seconds()
    assert 40 < wait < 75
    run.issue.refresh_from_db()
    assert run.issue.status == "todo"
    agent.refresh_from_db()
    assert agent.error_code == ""


def test_one_that_has_acted_waits_rather_than_fails(carried, connect, hire, mock_llm, monkeypatch):
    monkeypatch.setattr(turnstile, "PATIENCE_SECONDS", 0.1)
    row = connect(base_url=mock_llm.url, requests_per_minute=40)
    agent = hire(row)
    for _ in range(39):
        buckets.take(connection_id=row.pk, tokens=1)
    (run,) = carried((agent, '[[mock:tool=comment;args={"body":"At work."}]]'))
    assert run.status == "succeeded"
    assert len(mock_llm.state.posts) == 2


def test_trouble_of_the_provider_opens_the_breaker_for_all_who_use_it(
    carried, connect, hire, mock_llm
):
    row = connect(base_url=mock_llm.url)
    agents = [hire(row, name=f"Pia {n}") for n in range(5)]
    done = carried(*((agent, "[[mock:status=503]]") for agent in agents))
    assert {run.status for run in done} <= {"failed", "cancelled"}
    row.refresh_from_db()
    assert row.breaker == "open"
    assert Activity.objects.filter(action="connection.opened", entity_id=row.pk).count() == 1
    assert all(following(run) is not None for run in done)


def test_a_spent_quota_lets_all_wait_for_a_person_and_fails_nobody(
    carried, connect, hire, mock_llm
):
    row = connect(base_url=mock_llm.url)
    agent, colleague = hire(row), hire(row, name="Pit")
    (run,) = carried((agent, "[[mock:status=429;code=insufficient_quota]]"))
    waiting = wake(colleague, "Hello")
    assert (run.status, run.code) == ("failed", "quota_exhausted")
    row.refresh_from_db()
    assert (row.breaker, row.open_until) == ("open", None)
    again = following(run)
    assert again is not None
    assert not Hold.objects.exists()
    run.issue.refresh_from_db()
    assert run.issue.status == "todo"
    worker = factories.worker()
    assert list(runs.claim(worker_id=worker.pk, limit=10)) == []
    waiting.refresh_from_db()
    assert waiting.status == "queued"


def test_a_cancelled_call_leaves_no_probe_behind(during, connect, hire, mock_llm):
    row = connect(base_url=mock_llm.url)
    agent = hire(row)
    now = timezone.now()
    ProviderConnection.objects.filter(pk=row.pk).update(
        breaker="open",
        open_code="provider_overloaded",
        open_until=now - timedelta(seconds=1),
    )
    run = wake(agent, "[[mock:ttft=30]]")

    async def watch(shift: Any) -> None:
        await until(lambda: bool(mock_llm.state.posts))
        await until(
            lambda: (
                bool(
                    runs.cancel(run=run, actor=activity.SYSTEM) and True  # asked until it is heard
                )
                and HeartbeatRun.objects.filter(pk=run.pk, status="cancelled").exists()
            )
        )

    during(watch)
    assert providers.take(connection_id=row.pk, tokens=1) is None


def test_no_key_appears_in_any_row(carried, connect, hire, mock_llm):
    row = connect(base_url=mock_llm.url, key_secret="KEY")
    (run,) = carried((hire(row), "[[mock:status=401;msg=bad key sk-test-0001]]"))
    row.refresh_from_db()
    told = f"{run.message} {run.result} {words(run)} {row.last_errors}"
    assert "sk-test-0001" not in told
    assert row.last_errors[0]["code"] == "auth_failed"
