"""A run that meets a limit is tried again when the limit is lifted, and not much later."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agents import breaker, outcomes
from agents.adapters.base import Code
from agents.models import Agent, HeartbeatRun
from companies.models import Company
from issues.models import Issue
from tests import factories
from tests.engine.test_sessions import carry

pytestmark = pytest.mark.django_db(transaction=True)

FAKE = Path(__file__).parents[1] / "adapters" / "cli" / "fake_claude.py"
DAY = 24 * 3600


@pytest.fixture
def limited(during: Any, acme: Company, pia: Agent, tmp_path: Path) -> Any:
    """Lets Claude Code meet a limit; returns the failed run and the one that follows."""

    def meet(do: str, **env: str) -> tuple[HeartbeatRun, HeartbeatRun]:
        command = tmp_path / "claude"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{FAKE}" "$@"\n')
        command.chmod(0o755)
        pia.adapter_type = "claude_local"
        log = {"FAKE_LOG": str(tmp_path / "calls.jsonl"), "FAKE_DO": do, **env}
        pia.adapter_config = {"command": str(command), "env": log}
        pia.save()
        issue: Issue = factories.issue(acme, "Count the boats", assignee=pia)
        failed = carry(during, pia, issue)
        return failed, HeartbeatRun.objects.get(agent=pia, status="queued")

    return meet


def waited(failed: HeartbeatRun, following: HeartbeatRun) -> float:
    assert failed.finished_at is not None
    return (following.not_before - failed.finished_at).total_seconds()


def test_a_reset_in_63_seconds_is_waited_for(limited: Any) -> None:
    failed, following = limited("limit 63")

    assert (failed.status, failed.code) == ("failed", Code.QUOTA_EXHAUSTED)
    assert (following.reason, following.attempt) == ("transient_failure_retry", 2)
    assert 60 <= waited(failed, following) <= 93  # it was said up to three seconds before the end


def test_a_time_in_another_zone_is_waited_for(limited: Any) -> None:
    failed, following = limited("excuse 429 You've hit your limit · resets 4 a.m. (Asia/Tokyo)")

    four = datetime.now(UTC).replace(hour=19, minute=0, second=0, microsecond=0)
    late = following.not_before - four
    if late > timedelta(hours=1):
        late -= timedelta(days=1)
    assert timedelta(0) <= late <= timedelta(seconds=outcomes.LONGEST_JITTER_SECONDS)
    assert failed.code == Code.QUOTA_EXHAUSTED


def test_a_time_that_is_nonsense_leaves_the_table(limited: Any) -> None:
    failed, following = limited("excuse 429 Too many requests, resets 25pm (Mars/Base)")

    assert failed.code == Code.RATE_LIMITED
    assert 119 <= waited(failed, following) <= 145


def test_a_quota_is_waited_for_up_to_a_week_and_not_much_longer() -> None:
    waits = [
        outcomes.retry_in(Code.QUOTA_EXHAUSTED, attempt=1, retry_after=wait)
        for wait in (3 * DAY, 400 * DAY)
    ]
    late = outcomes.LONGEST_JITTER_SECONDS
    assert 3 * DAY <= (waits[0] or 0) <= 3 * DAY + late
    assert 7 * DAY <= (waits[1] or 0) <= 7 * DAY + late


def test_a_connection_whose_quota_comes_back_in_days_stays_closed_until_then(acme: Company) -> None:
    row = factories.provider(acme)
    now = datetime.now(UTC)
    for asked, days in ((3 * DAY, 3), (400 * DAY, 7)):
        breaker.failed(connection_id=row.pk, code=Code.QUOTA_EXHAUSTED, retry_after=asked, now=now)
        row.refresh_from_db()
        assert row.open_until == now + timedelta(days=days)
