"""Token buckets: exact, shared, refilled by the clock."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connections as databases

from agents import buckets, connections, providers
from companies.activity import SYSTEM


@pytest.mark.django_db
def test_a_bucket_gives_a_minutes_requests_and_then_says_how_long_to_wait(connect, now):
    row = connect(requests_per_minute=3)
    taken = [buckets.take(connection_id=row.pk, tokens=10, now=now) for _ in range(4)]
    assert taken[:3] == [None, None, None]
    seconds, why = taken[3]
    assert why == "requests"
    assert seconds == pytest.approx(20, abs=1.5)


@pytest.mark.django_db
def test_it_refills_steadily_and_never_above_a_minute(connect, now):
    row = connect(requests_per_minute=60)
    full = now + timedelta(minutes=1)
    for _ in range(60):
        assert buckets.take(connection_id=row.pk, tokens=0, now=full) is None
    assert buckets.take(connection_id=row.pk, tokens=0, now=full) is not None
    later = full + timedelta(seconds=5)
    taken = [buckets.take(connection_id=row.pk, tokens=0, now=later) for _ in range(6)]
    assert taken.count(None) == 5
    left, _ = buckets.left(connection_id=row.pk, now=now + timedelta(hours=9))
    assert left == 60


@pytest.mark.django_db
def test_tokens_count_beside_requests_and_what_was_not_used_comes_back(connect, now):
    row = connect(tokens_per_minute=1000)
    assert buckets.take(connection_id=row.pk, tokens=900, now=now) is None
    seconds, why = buckets.take(connection_id=row.pk, tokens=400, now=now)
    assert (why, round(seconds)) == ("tokens", 18)
    buckets.give_back(connection_id=row.pk, tokens=700)
    assert buckets.take(connection_id=row.pk, tokens=400, now=now) is None


@pytest.mark.django_db
def test_a_call_larger_than_the_bucket_waits_for_a_full_one_and_is_paid_back(connect, now):
    row = connect(tokens_per_minute=1000)
    later = now + timedelta(minutes=2)
    assert buckets.take(connection_id=row.pk, tokens=3000, now=later) is None
    _, tokens = buckets.left(connection_id=row.pk, now=later)
    assert tokens == -2000
    seconds, _ = buckets.take(connection_id=row.pk, tokens=10, now=later)
    assert seconds > 120


@pytest.mark.django_db
def test_a_clock_that_goes_back_refills_nothing(connect, now):
    row = connect(requests_per_minute=1)
    assert buckets.take(connection_id=row.pk, tokens=0, now=now + timedelta(seconds=60)) is None
    assert buckets.take(connection_id=row.pk, tokens=0, now=now) is not None


@pytest.mark.django_db
def test_without_limits_nothing_is_counted(connect, now):
    row = connect()
    assert all(
        providers.take(connection_id=row.pk, tokens=10**6, now=now) is None for _ in range(5)
    )
    assert buckets.left(connection_id=row.pk) == (None, None)


@pytest.mark.django_db
def test_a_new_limit_begins_full_and_a_lower_one_takes_the_rest(connect, now):
    row = connect()
    row = connections.update(row=row, changes={"requests_per_minute": 10}, actor=SYSTEM, now=now)
    assert buckets.left(connection_id=row.pk)[0] == 10
    row = connections.update(row=row, changes={"requests_per_minute": 2}, actor=SYSTEM, now=now)
    assert buckets.left(connection_id=row.pk)[0] == 2


@pytest.mark.django_db(transaction=True)
def test_racing_instances_take_exactly_what_is_there(connect, now):
    rows = [connect("One", requests_per_minute=20), connect("Two", requests_per_minute=7)]
    moment = now + timedelta(minutes=1)  # full, and it does not refill while they race
    start = threading.Barrier(8)
    got: dict[str, int] = {"One": 0, "Two": 0}
    lock = threading.Lock()

    def instance() -> None:
        try:
            start.wait(10)
            for _ in range(10):
                for row in rows:
                    if providers.take(connection_id=row.pk, tokens=1, now=moment) is None:
                        with lock:
                            got[row.name] += 1
        finally:
            databases.close_all()

    threads = [threading.Thread(target=instance) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == {"One": 20, "Two": 7}
