"""When an agent's regular heartbeat is due: slots on the wall clock, never "so long after the
last one", so that neither a restart nor another wake moves them.

An interval agent has a phase from a low-discrepancy sequence (golden-ratio steps by its number in
the instance): agents with the same interval spread evenly and keep their place when others come
and go. A cron agent follows its expression in its own time zone; on daylight-saving days each
slot comes once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from agents.models import Agent

_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def phase(number: int, interval_seconds: int) -> timedelta:
    """Where in its interval the agent with this number has its place. Exact to a microsecond."""
    fraction = (number * _GOLDEN) % 2**64
    return ((fraction * interval_seconds * 1_000_000) >> 64) * _MICROSECOND


def next_slot(agent: Agent, after: datetime) -> datetime:
    """The agent's first slot later than `after`, in UTC. Raises CronSimError, ZoneInfo errors."""
    if agent.cron:
        local = after.astimezone(ZoneInfo(agent.timezone))
        return next(CronSim(agent.cron, local)).astimezone(UTC)
    interval = timedelta(seconds=agent.interval_seconds)
    offset = _EPOCH + phase(agent.number, agent.interval_seconds)
    return offset + ((after - offset) // interval + 1) * interval


def due_slot(agent: Agent, now: datetime) -> datetime:
    """The latest slot that has passed, given that `next_beat_at` has: after an outage the missed
    ones before it are not made up for."""
    slot = agent.next_beat_at or now
    if agent.cron:
        # Catching up by steps would take long after a long outage of a frequent expression.
        start = max(slot, now - timedelta(days=1))
        if start > slot:
            slot = _first_or(slot, agent, start)
        while (following := next_slot(agent, slot)) <= now:
            slot = following
        return slot
    interval = timedelta(seconds=agent.interval_seconds)
    return max(slot, next_slot(agent, now) - interval)


def _first_or(slot: datetime, agent: Agent, start: datetime) -> datetime:
    following = next_slot(agent, start)
    return slot if following > start + timedelta(days=1) else following


def problem(cron: str, timezone: str) -> str:
    """What is wrong with an expression and its zone, in words; empty when nothing is."""
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        return f"There is no time zone {timezone[:60]!r}."
    if not cron:
        return ""
    if len(cron.split()) != 5:
        return "A cron expression has five fields: minute, hour, day, month, weekday."
    try:
        next(CronSim(cron, _EPOCH.astimezone(ZoneInfo(timezone))))
    except CronSimError as error:
        return f"The cron expression does not work: {error}"
    except StopIteration:
        return "The cron expression never comes due."
    return ""
