"""One table says what every code means and whether waiting helps."""

from __future__ import annotations

import random

import pytest

from agents import outcomes
from agents.adapters.base import Code


@pytest.mark.parametrize("code", list(Code))
def test_every_code_is_explained(code):
    row = outcomes.of(code)
    assert row.code == code
    assert row.title
    assert row.meaning.endswith(".")
    assert row.remedy.endswith(".")


def test_a_code_of_a_newer_version_is_explained_in_general():
    assert outcomes.of("nonesuch").title == "Failed"


def test_waits_grow_and_end():
    rng = random.Random(1)
    waits = [
        outcomes.retry_in(Code.PROVIDER_OVERLOADED, attempt=attempt, rng=rng)
        for attempt in range(1, 7)
    ]
    for wait, least in zip(waits, (120, 600, 1800, 7200), strict=False):
        assert wait is not None
        assert least <= wait <= least * 1.2
    assert waits[4:] == [None, None]


def test_the_providers_wish_goes_before_the_table():
    wait = outcomes.retry_in(Code.RATE_LIMITED, attempt=1, retry_after=17)
    assert wait is not None
    assert 17 <= wait <= 17 * 1.2


def test_a_wish_for_longer_than_a_day_is_for_people():
    assert outcomes.retry_in(Code.RATE_LIMITED, attempt=1, retry_after=100_000) is None


def test_a_quota_is_waited_for_only_when_its_reset_is_known():
    assert outcomes.retry_in(Code.QUOTA_EXHAUSTED, attempt=1) is None
    assert outcomes.retry_in(Code.QUOTA_EXHAUSTED, attempt=1, retry_after=60) is not None


@pytest.mark.parametrize(
    "code",
    [Code.AUTH_FAILED, Code.BAD_REQUEST, Code.REFUSED, Code.EXIT_NONZERO, Code.LOST, Code.INTERNAL],
)
def test_what_waiting_does_not_cure_is_not_repeated(code):
    assert outcomes.retry_in(code, attempt=1) is None
