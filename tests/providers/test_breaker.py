"""The circuit breaker: its transitions, one probe, Retry-After, quotas."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connections as databases

from agents import breaker, connections, providers
from agents.adapters.base import AdapterError, Code
from companies.activity import SYSTEM
from companies.models import Activity

pytestmark = pytest.mark.django_db


def fail(row, code=Code.PROVIDER_OVERLOADED, *, times=1, now, retry_after=None):
    for _ in range(times):
        breaker.failed(connection_id=row.pk, code=code, retry_after=retry_after, now=now)
    row.refresh_from_db()
    return row


def may(row, now):
    return providers.take(connection_id=row.pk, tokens=1, now=now)


@pytest.mark.parametrize(
    "code",
    [Code.RATE_LIMITED, Code.PROVIDER_OVERLOADED, Code.CONNECT_FAILED, Code.IDLE],
)
def test_five_failures_within_a_minute_open_it_for_30_seconds(connect, now, code):
    row = connect()
    assert fail(row, code, times=4, now=now).breaker == "closed"
    assert fail(row, code, now=now).breaker == "open"
    assert row.open_until == now + timedelta(seconds=30)
    wait = may(row, now)
    assert (wait.why, wait.seconds) == ("open", 30)


def test_five_failures_in_more_than_a_minute_do_not(connect, now):
    row = connect()
    for second in (0, 16, 32, 48, 64):
        fail(row, now=now + timedelta(seconds=second))
    assert row.breaker == "closed"


def test_failures_among_successes_do_not(connect, now):
    row = connect()
    for _ in range(20):
        fail(row, now=now)
        breaker.answered(connection_id=row.pk, now=now)
    assert row.breaker == "closed"


@pytest.mark.parametrize(
    "code",
    [Code.BAD_REQUEST, Code.AUTH_FAILED, Code.REFUSED, Code.CONTEXT_TOO_LONG, Code.BUDGET],
)
def test_what_is_the_requests_fault_does_not_count(connect, now, code):
    row = connect()
    for _ in range(9):
        error = AdapterError(code, "no")
        providers.note(
            connection_id=row.pk, taken=0, tokens=0, answered=False, error=error, now=now
        )
    row.refresh_from_db()
    assert row.breaker == "closed"


def test_after_its_time_one_probe_goes_out_and_no_second(connect, now):
    row = fail(connect(), times=5, now=now)
    later = now + timedelta(seconds=31)
    assert may(row, later) is None
    wait = may(row, later)
    assert wait.why == "probe"
    row.refresh_from_db()
    assert row.breaker == "half_open"


def test_an_answer_to_the_probe_closes_it(connect, now):
    row = fail(connect(), times=5, now=now)
    later = now + timedelta(seconds=31)
    may(row, later)
    providers.note(connection_id=row.pk, taken=5, tokens=5, answered=True, error=None, now=later)
    row.refresh_from_db()
    assert (row.breaker, row.failed_at, row.open_count) == ("closed", [], 0)
    assert may(row, later) is None
    told = Activity.objects.filter(entity_id=row.pk).exclude(action="connection.created")
    assert [one.action for one in told.order_by("occurred_at", "id")] == [
        "connection.opened",
        "connection.closed",
    ]


def test_a_failed_probe_opens_it_for_twice_as_long_up_to_five_minutes(connect, now):
    row = fail(connect(), times=5, now=now)
    spans = []
    for _ in range(6):
        now = row.open_until
        assert may(row, now) is None
        fail(row, Code.STREAM_BROKEN, now=now)
        spans.append((row.open_until - now).total_seconds())
    assert spans == [60, 120, 240, 300, 300, 300]


def test_a_probe_that_died_makes_room_for_another(connect, now):
    row = fail(connect(), times=5, now=now)
    later = now + timedelta(seconds=31)
    assert may(row, later) is None
    assert may(row, later + breaker.PROBE - timedelta(seconds=1)) is not None
    assert may(row, later + breaker.PROBE) is None


def test_a_probe_that_was_cancelled_makes_room_at_once(connect, now):
    row = fail(connect(), times=5, now=now)
    later = now + timedelta(seconds=31)
    assert may(row, later) is None
    providers.note(connection_id=row.pk, taken=1, tokens=0, answered=False, error=None, now=later)
    assert may(row, later) is None


def test_a_refusal_of_the_probe_shows_that_the_provider_works(connect, now):
    row = fail(connect(), times=5, now=now)
    later = now + timedelta(seconds=31)
    may(row, later)
    error = AdapterError(Code.BAD_REQUEST, "no")
    providers.note(connection_id=row.pk, taken=0, tokens=0, answered=False, error=error, now=later)
    row.refresh_from_db()
    assert row.breaker == "closed"


def test_a_probe_that_the_limits_do_not_let_out_is_none(connect, now):
    row = connect(requests_per_minute=1)
    assert may(row, now) is None
    row = fail(row, Code.RATE_LIMITED, retry_after=1, now=now)
    wait = may(row, now + timedelta(seconds=2))
    assert wait.why == "requests"
    row.refresh_from_db()
    assert row.breaker == "open"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [(120, 120), (0, 1), (99_999_999, 24 * 3600), (63, 63)],
)
def test_a_retry_after_opens_it_at_once_for_as_long_within_reason(connect, now, asked, seconds):
    row = fail(connect(), Code.RATE_LIMITED, retry_after=asked, now=now)
    assert row.open_until == now + timedelta(seconds=seconds)


def test_late_failures_of_calls_on_their_way_do_not_make_it_longer(connect, now):
    row = fail(connect(), times=5, now=now)
    until = row.open_until
    assert fail(row, times=5, now=now + timedelta(seconds=3)).open_until == until


def test_a_spent_quota_stays_open_until_a_person_closes_it(connect, now):
    row = fail(connect(), Code.QUOTA_EXHAUSTED, now=now)
    wait = may(row, now + timedelta(days=30))
    assert (wait.seconds, wait.code, wait.diverts) == (None, Code.QUOTA_EXHAUSTED, False)
    connections.reset(row=row, actor=SYSTEM, now=now)
    assert may(row, now) is None


def test_a_quota_with_a_reset_opens_until_then(connect, now):
    row = fail(connect(), Code.QUOTA_EXHAUSTED, retry_after=63, now=now)
    assert row.open_until == now + timedelta(seconds=63)


def test_a_spent_quota_closes_every_connection_with_the_same_key(connect, globex, now):
    one = connect("One", key_secret="KEY")
    two = connect("Two", key_secret="KEY")
    other_key = connect("Three", key_secret="OTHER")
    rival = connect("Four", key_secret="KEY", company=globex)
    fail(one, Code.QUOTA_EXHAUSTED, now=now)
    states = []
    for row in (one, two, other_key, rival):
        row.refresh_from_db()
        states.append(row.breaker)
    assert states == ["open", "open", "closed", "closed"]


def test_another_key_is_another_account(connect, now):
    row = fail(connect(key_secret="KEY"), Code.QUOTA_EXHAUSTED, now=now)
    row = connections.update(row=row, changes={"key_secret": ""}, actor=SYSTEM, now=now)
    assert row.breaker == "closed"


def test_the_last_errors_are_kept_newest_first_and_without_keys(connect, now):
    row = connect()
    for number in range(12):
        breaker.failed(
            connection_id=row.pk,
            code=Code.AUTH_FAILED,
            message=f"{number}: the key sk-abcdefgh12345678 is wrong",
            now=now,
        )
    row.refresh_from_db()
    assert len(row.last_errors) == 10
    assert row.last_errors[0]["message"] == "11: the key [redacted] is wrong"


@pytest.mark.django_db(transaction=True)
def test_of_many_instances_one_alone_sends_the_probe(connect, now):
    row = fail(connect(), times=5, now=now)
    later = now + timedelta(seconds=31)
    start = threading.Barrier(8)
    let_out: list[int] = []

    def instance(number: int) -> None:
        try:
            start.wait(10)
            if may(row, later) is None:
                let_out.append(number)
        finally:
            databases.close_all()

    threads = [threading.Thread(target=instance, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(let_out) == 1
