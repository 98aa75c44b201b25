"""The loop breaker's limits as fields of a form, in plain words and people's units.

What is empty is as the instance has it. The rules are in `loop_limits.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from decimal import Decimal
from typing import Any

from django import forms

from agents import loop_limits

DOLLAR = 1_000_000  # micro-dollars
MONEY = frozenset({"spend_floor_micros"})
WORDS = {
    "same_steps": ("Same step with the same result", "So often at most …"),
    "among_steps": ("… among so many steps", "The steps in a row that are looked at."),
    "steps_a_minute": ("Steps a minute", ""),
    "idle_runs": ("Runs in a row without a result", "They succeed and leave nothing behind."),
    "runs_an_hour": ("Runs an hour for one reason", "While the issue keeps its status."),
    "issues_a_run": ("New issues from one run", ""),
    "spend_times": ("Cost of a run, times the usual", "Of the agent's own runs."),
    "spend_floor_micros": ("Cost that is never too much ($)", "Of one run."),
    "spend_runs": ("Runs that make the usual cost", "The latest ones."),
    "spend_runs_needed": ("Runs before cost is judged", "A new agent has no usual cost yet."),
}
PREFIX = "limit_"
NAMES = tuple(PREFIX + name for name in WORDS)


def fields() -> dict[str, forms.Field]:
    """A field for each limit; its placeholder is what holds without it."""
    instance = loop_limits.of_instance()
    return {PREFIX + name: _field(name, getattr(instance, name)) for name in WORDS}


def _field(name: str, usual: int) -> forms.Field:
    label, help_text = WORDS[name]
    common: dict[str, Any] = {"label": label, "help_text": help_text, "required": False}
    if name in MONEY:
        widget = forms.NumberInput(attrs={"step": "any", "placeholder": f"{usual / DOLLAR:g}"})
        most = Decimal(loop_limits.MOST) / DOLLAR
        return forms.DecimalField(
            min_value=Decimal(1) / DOLLAR, max_value=most, decimal_places=6, widget=widget, **common
        )
    widget = forms.NumberInput(attrs={"placeholder": str(usual)})
    return forms.IntegerField(min_value=1, max_value=loop_limits.MOST, widget=widget, **common)


def shown(limits: object) -> dict[str, Any]:
    """Initial values of an agent's own limits; what this version does not know is left out."""
    known = limits if isinstance(limits, Mapping) else {}
    return {
        PREFIX + name: Decimal(value) / DOLLAR if name in MONEY else value
        for name, value in known.items()
        if not loop_limits.problem({name: value})
    }


def taken(data: MutableMapping[str, Any]) -> dict[str, int]:
    """Take the limits that were entered out of the form's cleaned `data`."""
    found = {name: data.pop(PREFIX + name, None) for name in WORDS}
    return {
        name: int(value * DOLLAR) if name in MONEY else value
        for name, value in found.items()
        if value is not None
    }
