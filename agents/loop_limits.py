"""How often is too often: the limits of the loop breaker, of the instance and of single agents.

`PAPERCLIP_LOOP_LIMITS` changes the instance's (`same_steps=12,idle_runs=5`), an agent's
`loop_limits` its own. Who looks and what follows is in `loops.py` and `issues/progress.py`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from agents.models import Agent

MOST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Each is the last number that passes."""

    same_steps: int = 8  # with the same arguments and the same result …
    among_steps: int = 24  # … among so many steps in a row
    steps_a_minute: int = 240
    spend_times: int = 10  # the agent's own median
    spend_floor_micros: int = 1_000_000  # and at least a dollar
    spend_runs: int = 20  # the runs that make the median
    spend_runs_needed: int = 5
    idle_runs: int = 3  # that succeed and leave nothing behind at their issue
    runs_an_hour: int = 5  # for one reason, without another status of the issue
    issues_a_run: int = 50  # that one run creates


NAMES = tuple(field.name for field in dataclasses.fields(Limits))


def problem(given: object) -> str:
    """What is wrong with limits that somebody wrote, in words; empty when nothing is."""
    if not isinstance(given, Mapping):
        return "Limits are an object of names and numbers."
    for name, value in given.items():
        if name not in NAMES:
            return f"There is no limit {str(name)[:60]!r}; there are {', '.join(NAMES)}."
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
            return f"{name} is a whole number from 1 to {MOST:,}."
    return ""


def of_instance() -> Limits:
    """The defaults with what PAPERCLIP_LOOP_LIMITS says. Raises ImproperlyConfigured."""
    return _of_instance(tuple(sorted(settings.LOOP_LIMITS.items())))


@functools.cache
def _of_instance(given: tuple[tuple[str, int], ...]) -> Limits:
    wrong = problem(dict(given))
    if wrong:
        raise ImproperlyConfigured(f"PAPERCLIP_LOOP_LIMITS: {wrong}")
    return Limits(**dict(given))


def of(agent: Agent) -> Limits:
    """An agent's own. What is stored but not understood (by an older version) is left out."""
    own: Mapping[str, Any] = agent.loop_limits if isinstance(agent.loop_limits, Mapping) else {}
    if not own:
        return of_instance()
    known = {name: value for name, value in own.items() if not problem({name: value})}
    return dataclasses.replace(of_instance(), **known)
