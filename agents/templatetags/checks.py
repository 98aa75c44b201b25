"""`{% load checks %}`: what the lines of a test come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django import template

from agents.adapters.base import Check

register = template.Library()

# An answer proves what any other check only makes likely.
PROOF = "Answer"


@dataclass(frozen=True, slots=True)
class Verdict:
    words: str
    tone: str
    icon: str

    @property
    def works(self) -> bool:
        return self.tone != "bad"


WORKS = Verdict("Works", "ok", "circle-check")
WITH_A_REMARK = Verdict("Works, with a remark", "warn", "triangle-alert")
WORKS_NOT = Verdict("Does not work", "bad", "circle-x")


@register.filter
def verdict(checks: Sequence[Check]) -> Verdict:
    """One verdict for all lines: what fails beside an answer that came is a remark."""
    if all(check.ok for check in checks):
        return WITH_A_REMARK if any(check.hint for check in checks) else WORKS
    answered = any(check.ok and check.name == PROOF for check in checks)
    return WITH_A_REMARK if answered else WORKS_NOT
