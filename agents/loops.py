"""When an agent goes round in circles: the same step again and again, or money far above its own
habit. What is found becomes a hold with its evidence, which a person releases.

These are the facts of runs; what happened to their issues is judged by `issues/progress.py`.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson
from django.db import connection

from agents import loop_limits, roster
from agents.adapters.base import AdapterError, Code, Step
from agents.loop_limits import Limits
from agents.models import Agent, HeartbeatRun, Hold
from companies import activity, live


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found: a word for programs, a sentence for people, the figures behind it."""

    kind: str  # same_step, step_rate, spend, no_progress, too_often, fan_out
    note: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Steps:
    """Watches the steps of one run, whichever adapter takes them."""

    def __init__(
        self, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits = limits or loop_limits.of_instance()
        self._clock = clock
        self._open: dict[str, tuple[str, bytes]] = {}
        self._latest: deque[str] = deque(maxlen=limits.among_steps)
        self._starts: deque[float] = deque(maxlen=limits.steps_a_minute + 1)

    def see(self, step: Step) -> None:
        """Take in the start or end of a step. Raises AdapterError(LOOP) when it is one too many."""
        if step.phase == "start":
            self._open[step.id] = (step.name, _canonical(step.input))
            if len(self._open) > 1_000:
                self._open.clear()
            self._rate()
            return
        name, given = self._open.pop(step.id, (step.name, _canonical(step.input)))
        if not given and not step.output:
            return  # an adapter that does not tell what it does
        text = b"\0".join((name.encode(), given, step.output.encode("utf-8", "replace")))
        self._latest.append(hashlib.sha256(text).hexdigest())
        same = Counter(self._latest)[self._latest[-1]]
        if same > self._limits.same_steps:
            shown = given.decode("utf-8", "replace")[:200]
            raise _stop(
                Finding(
                    "same_step",
                    f"{name}({shown}) was done {same} times with the same result.",
                    {"step": name[:100], "input": shown, "times": same},
                )
            )

    def _rate(self) -> None:
        now = self._clock()
        self._starts.append(now)
        most = self._limits.steps_a_minute
        if len(self._starts) > most and now - self._starts[0] < 60:
            raise _stop(
                Finding(
                    "step_rate",
                    f"More than {most} steps within a minute.",
                    {"steps": len(self._starts), "seconds": round(now - self._starts[0], 1)},
                )
            )


def _canonical(given: Mapping[str, Any] | None) -> bytes:
    if not given:
        return b""
    return orjson.dumps(
        dict(given), default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
    )


def _stop(finding: Finding) -> AdapterError:
    return AdapterError(Code.LOOP, finding.note, detail={"loop": finding.kind, **finding.details})


# --- money -----------------------------------------------------------------------------------

_HABIT = """
SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY cost_micros)
FROM (SELECT cost_micros FROM agents_heartbeatrun
      WHERE agent_id = %s AND id <> %s AND finished_at IS NOT NULL AND cost_micros > 0
      ORDER BY created_at DESC, id DESC LIMIT %s) recent
"""


def overspent(*, run: HeartbeatRun) -> Finding | None:
    """Has this run cost far more than the agent's runs usually do? Its habit is the median of
    its latest runs; without enough of them nothing is found."""
    limits = loop_limits.of(run.agent)
    if run.cost_micros <= limits.spend_floor_micros:
        return None
    with connection.cursor() as cursor:
        cursor.execute(_HABIT, [run.agent_id, run.pk, limits.spend_runs])
        count, median = cursor.fetchone()
    if count < limits.spend_runs_needed or run.cost_micros <= limits.spend_times * median:
        return None
    return Finding(
        "spend",
        f"A run has cost ${run.cost_micros / 1e6:,.2f}; the agent's runs usually cost "
        f"${median / 1e6:,.2f}.",
        {"costMicros": run.cost_micros, "medianMicros": int(median), "runs": count},
    )


def check_spend(*, run: HeartbeatRun) -> None:
    """Asked before each model call, so that the call that goes too far is the last. Raises
    AdapterError(LOOP)."""
    finding = overspent(run=run)
    if finding is not None:
        raise _stop(finding)


# --- what follows ------------------------------------------------------------------------------


def stopped(*, message: str, result: Mapping[str, Any]) -> Finding:
    """What a run that ended with `loop_detected` says of itself."""
    details = result.get("detail")
    known = dict(details) if isinstance(details, Mapping) else {}
    return Finding(str(known.pop("loop", "loop")), message, known)


def hold(*, agent: Agent, run: HeartbeatRun, finding: Finding, now: datetime) -> Hold:
    """Hold the agent with the evidence. The first finding stays, until a person releases it."""
    placed = roster.hold(
        agent=agent,
        reason=Hold.Reason.LOOP,
        note=finding.note,
        details={
            "kind": finding.kind,
            "runId": str(run.pk),
            "issueId": str(run.issue_id) if run.issue_id else None,
            **finding.details,
        },
        actor=activity.SYSTEM,
        now=now,
    )
    live.publish(agent.company_id, "inbox")
    return placed
