"""The demo company: labelled, complete, made once."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from agents import adapters
from agents.models import HeartbeatRun, RunEvent
from billing.models import CostEvent
from companies.models import Activity, Company, User
from issues.models import Checkout, Comment, Interaction, Issue
from paperclip.demo import stage, story
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def demo(olga: User, now: datetime) -> Company:
    return stage.play(owner=olga, now=now)


def test_it_is_labelled_and_owned(demo: Company, olga: User) -> None:
    assert demo.is_demo
    assert demo.name.endswith("(demo)")
    assert demo.memberships.get().role == "owner"
    assert Issue.objects.filter(identifier="ACM-1").exists()


def test_every_status_is_there_and_numbers_follow_the_story(demo: Company) -> None:
    count = Counter(Issue.objects.values_list("status", flat=True))
    assert set(count) == set(Issue.Status.values)
    assert sum(count.values()) == len(story.TALES)
    assert Issue.objects.filter(parent__isnull=False).exists()


def test_no_agent_costs_anything_or_hides_that_it_plays(demo: Company) -> None:
    for agent in demo.agents.all():
        assert adapters.get(agent.adapter_type).simulated
        adapters.validate(agent.adapter_type, agent.adapter_config)
    for comment in Comment.objects.filter(author_agent__isnull=False):
        assert comment.body.startswith(story.SAYS)
    for event in CostEvent.objects.all():
        assert (event.provider, event.model, event.note) == ("simulated",) * 2 + (stage.NOTE,)


def test_the_past_is_over(demo: Company, now: datetime) -> None:
    ended = HeartbeatRun.objects.exclude(status="queued")
    assert ended.count() > 20
    assert not ended.filter(status="running").exists()
    assert not ended.filter(finished_at__gt=now).exists()
    assert not Checkout.objects.filter(released_at=None).exists()
    assert {run.company_id for run in ended} == {demo.id}
    for run in ended[:5]:
        kinds = (
            RunEvent.objects.filter(run_id=run.id).order_by("seq").values_list("kind", flat=True)
        )
        assert kinds[0] == kinds[len(kinds) - 1] == "status"


def test_it_has_a_question_a_failure_a_blocker_and_reviews(demo: Company) -> None:
    assert Interaction.objects.get().status == "pending"
    assert HeartbeatRun.objects.filter(status="failed", code="simulated_failure").exists()
    assert demo.agents.exclude(error_code="").get().name == "Quinn"
    waits = Issue.objects.get(title="Document the update")
    assert (waits.status, waits.blocked_by.count()) == ("blocked", 1)


def test_something_starts_before_the_newcomers_eyes(demo: Company) -> None:
    queued = HeartbeatRun.objects.filter(status="queued")
    assert queued.count() == sum(tale.now == "starts" for tale in story.TALES)
    assert {run.issue.status for run in queued if run.issue} == {"todo"}
    assert demo.agents.filter(heartbeat_enabled=True, next_beat_at__isnull=False).count() == 2


def test_the_activity_reaches_back_and_lies_in_partitions(demo: Company, now: datetime) -> None:
    moments = Activity.objects.filter(company=demo).values_list("occurred_at", flat=True)
    assert (now - min(moments)).days == stage.DAYS
    assert max(moments) <= now
    with connection.cursor() as cursor:
        for table in ("companies_activity", "agents_runevent", "billing_costevent"):
            cursor.execute(f"SELECT count(*) FROM {table}_default")
            assert cursor.fetchone() == (0,)


def test_the_prefix_gives_way(acme: Company, olga: User, now: datetime) -> None:
    demo = stage.play(owner=olga, now=now)
    assert demo.issue_prefix == "ACM2"


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, settings):  # type: ignore[no-untyped-def]
    settings.DATABASE_URL = "given"  # the tests' own server runs already

    def run(**options: object) -> str:
        out = StringIO()
        call_command("demo", stdout=out, **options)
        return out.getvalue()

    return run


def test_the_command_makes_it_once(olga: User, command) -> None:  # type: ignore[no-untyped-def]
    assert "is ready" in command()
    assert "already" in command()
    assert Company.objects.count() == 1


def test_a_second_operator_becomes_an_owner_too(olga: User, command) -> None:  # type: ignore[no-untyped-def]
    command()
    oscar = factories.user("Oscar")
    command(email="OSCAR@example.com")
    assert Company.objects.get().memberships.get(user=oscar).role == "owner"


def test_if_empty_leaves_a_filled_instance_alone(acme: Company, command) -> None:  # type: ignore[no-untyped-def]
    command(if_empty=True)
    assert list(Company.objects.all()) == [acme]


def test_without_an_operator_it_says_so(command) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CommandError, match="no operator"):
        command()
    with pytest.raises(CommandError, match=r"nobody@example\.com"):
        command(email="nobody@example.com")
