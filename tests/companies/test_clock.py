"""What time it is, when this machine and the database disagree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from companies import clock


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    clock.agree(timezone.now())


def off_by() -> float:
    return abs((clock.now() - timezone.now()).total_seconds())


def test_a_clock_that_is_hours_off_follows_the_database():
    clock.agree(timezone.now() - timedelta(hours=2))
    assert off_by() == pytest.approx(7_200, abs=5)
    assert clock.now() < timezone.now()


def test_a_small_difference_changes_nothing():
    assert clock.agree(timezone.now() + timedelta(seconds=1)) == timedelta(0)
    assert off_by() < 1


def test_a_clock_that_was_set_right_is_believed_again():
    clock.agree(timezone.now() - timedelta(hours=2))
    assert clock.agree(timezone.now()) == timedelta(0)
    assert off_by() < 1
