"""Cancellations that meet the hand-over of a run, or its result."""

from __future__ import annotations

import pytest

from agents import runs
from agents.models import Agent, HeartbeatRun
from companies.activity import SYSTEM
from issues.models import Issue
from tests import factories
from tests.races.threads import one_inside_the_other

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def posted(ada: Agent, issue: Issue) -> HeartbeatRun:
    return factories.running(ada, issue)


def test_who_is_asked_to_stop_first_hands_nothing_over(posted: HeartbeatRun) -> None:
    answers = one_inside_the_other(
        lambda: runs.cancel(run=posted, actor=SYSTEM),
        lambda: runs.go_external(run_id=posted.pk, epoch=posted.epoch, session={}),
    )

    assert answers == ["running", False]
    posted.refresh_from_db()
    assert posted.lease_expires_at is None


def test_who_is_handed_over_first_ends_at_once(posted: HeartbeatRun) -> None:
    answers = one_inside_the_other(
        lambda: runs.go_external(run_id=posted.pk, epoch=posted.epoch, session={}),
        lambda: runs.cancel(run=posted, actor=SYSTEM),
    )

    assert answers == [True, "cancelled"]
    posted.refresh_from_db()
    assert (posted.status, posted.lease_expires_at) == ("cancelled", None)
