"""What stands in the thread when a run is over: the agent's summary, or why it failed."""

from __future__ import annotations

from agents import outcomes
from agents.models import HeartbeatRun

MOST_CHARS = 100_000
MOST_FAILURE_CHARS = 2_000


def of(summary: str) -> str:
    """An agent's summary as a comment; '' for nothing to say."""
    return _clean(summary, MOST_CHARS)


def failed(run: HeartbeatRun, code: str, message: str) -> str:
    """One word of the system, when no further attempt follows."""
    detail = _clean(message, MOST_FAILURE_CHARS)
    return f"**{failure(run, code)}**" + (f"\n\n{detail}" if detail else "")


def failure(run: HeartbeatRun, code: str) -> str:
    """Who could not finish, why, and what to do, on one line. Said when no attempt follows."""
    title, advice = outcomes.of(code).title, outcomes.advice(code, repeats=False)
    return f"{run.agent.name} could not finish: {title}. {advice}"


def _clean(text: str, most: int) -> str:
    return text.replace("\x00", "").encode("utf-8", "replace").decode().strip()[:most]
