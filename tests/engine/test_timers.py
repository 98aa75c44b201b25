"""Slots on the wall clock: even, steady, right on daylight-saving days."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from agents import timers
from agents.models import Agent

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def agent(number: int = 1, **fields) -> Agent:
    return Agent(number=number, **{"interval_seconds": 300, **fields})


def slots(one: Agent, start: datetime, count: int) -> list[datetime]:
    found = [timers.next_slot(one, start)]
    while len(found) < count:
        found.append(timers.next_slot(one, found[-1]))
    return found


def test_slots_are_an_interval_apart_and_later():
    first, second, third = slots(agent(), NOON, 3)
    assert NOON < first <= NOON + timedelta(seconds=300)
    assert second - first == third - second == timedelta(seconds=300)


def test_an_agents_place_does_not_move():
    one = agent(7)
    later = NOON + timedelta(days=400, seconds=17)
    drift = (timers.next_slot(one, later) - timers.next_slot(one, NOON)) % timedelta(seconds=300)
    assert drift == timedelta(0)


@pytest.mark.parametrize("first", [1, 1_000, 123_456])
@pytest.mark.fault("T19", "fifty agents on one interval start spread")
def test_fifty_agents_on_one_interval_spread_so_that_no_ten_seconds_hold_more_than_four(first):
    starts = sorted(
        timers.next_slot(agent(number), NOON).timestamp() for number in range(first, first + 50)
    )
    wrapped = starts + [start + 300 for start in starts]
    for index in range(50):
        assert sum(1 for s in wrapped if 0 <= s - wrapped[index] < 10) <= 4


def test_a_spread_survives_agents_that_leave():
    numbers = [n for n in range(1, 101) if n % 2]
    starts = sorted(timers.next_slot(agent(n), NOON).timestamp() for n in numbers)
    assert max(b - a for a, b in itertools.pairwise(starts)) < 30


def test_after_an_outage_only_the_last_slot_counts():
    one = agent(3)
    one.next_beat_at = timers.next_slot(one, NOON)
    back = NOON + timedelta(hours=5)
    slot = timers.due_slot(one, back)
    assert back - timedelta(seconds=300) < slot <= back
    assert (slot - one.next_beat_at) % timedelta(seconds=300) == timedelta(0)


def test_an_outage_of_a_cron_agent_costs_its_missed_slots():
    one = agent(cron="*/5 * * * *")
    one.next_beat_at = datetime(2026, 11, 1, tzinfo=UTC)
    assert timers.due_slot(one, NOON + timedelta(minutes=7)) == NOON + timedelta(minutes=5)


def test_a_slot_that_is_due_is_its_own_slot():
    one = agent(cron="0 9 * * *")
    one.next_beat_at = datetime(2026, 11, 30, 9, tzinfo=UTC)
    assert timers.due_slot(one, NOON) == one.next_beat_at


def test_a_rare_cron_agent_keeps_its_slot_after_a_long_outage():
    one = agent(cron="0 9 1 * *")
    one.next_beat_at = datetime(2026, 11, 1, 9, tzinfo=UTC)
    assert timers.due_slot(one, NOON) == one.next_beat_at


def test_cron_follows_its_own_zone():
    one = agent(cron="0 9 * * *", timezone="America/New_York")
    assert timers.next_slot(one, NOON) == datetime(2026, 11, 30, 14, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "day"),
    [
        ("30 2 * * *", datetime(2026, 3, 29, tzinfo=UTC)),  # 02:30 does not exist in Berlin
        ("30 2 * * *", datetime(2026, 10, 25, tzinfo=UTC)),  # 02:30 comes twice
    ],
)
@pytest.mark.fault("T18", "days of 23 and 25 hours: each slot once")
def test_daylight_saving_days_have_each_daily_slot_once(cron, day):
    one = agent(cron=cron, timezone="Europe/Berlin")
    start = day - timedelta(days=1)
    found = [
        s for s in slots(one, start, 4) if day - timedelta(hours=2) <= s < day + timedelta(hours=22)
    ]
    assert len(found) == 1


@pytest.mark.parametrize(
    ("cron", "zone", "word"),
    [
        ("* * * * *", "UTC", ""),
        ("", "Europe/Berlin", ""),
        ("* * * *", "UTC", "five fields"),
        ("61 * * * *", "UTC", "does not work"),
        ("0 0 30 2 *", "UTC", "cron"),
        ("* * * * *", "Mars/Olympus", "time zone"),
        ("* * * * *", "../../etc/passwd", "time zone"),
    ],
)
def test_what_cannot_work_is_said_in_words(cron, zone, word):
    said = timers.problem(cron, zone)
    assert (word in said) if word else said == ""
