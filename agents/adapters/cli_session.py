"""A CLI's conversation that goes on in the next run: when to resume it and when to begin anew.

What is kept is plain data: `id`, `cwd`, `fingerprint`, `usage` (booked so far, for programs that
count over the whole conversation), `runs`, `startedAt`, `contextTokens` and `note` (last words).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from agents.adapters.cli_reader import Reader, Tokens, count

MAX_RUNS = 50
MAX_AGE_SECONDS = 14 * 24 * 3600
MAX_CONTEXT_TOKENS = 150_000
NOTE_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about the session: resume `id`, or ("") begin anew for `reason`."""

    id: str = ""
    reason: str = ""  # why a kept session is not resumed, for the log
    note: str = ""  # the last words of the session that is left behind
    kept: Mapping[str, Any] = field(default_factory=dict)

    @property
    def usage(self) -> Tokens:
        return Tokens.from_dict(self.kept.get("usage")) if self.id else Tokens()

    def afresh(self, reason: str) -> Plan:
        return Plan(reason=reason, note=str(self.kept.get("note") or "")[:NOTE_CHARS])


def fingerprint(*parts: Any) -> str:
    """Of what must be the same for a session to go on."""
    return hashlib.sha256(orjson.dumps(parts, default=str)).hexdigest()[:16]


def plan(
    kept: Mapping[str, Any],
    *,
    id_pattern: re.Pattern[str],
    cwd: str,
    mark: str,
    now: float,
    max_context_tokens: int = MAX_CONTEXT_TOKENS,
) -> Plan:
    """Whether to go on with the kept session. `now` is in seconds since the epoch."""
    id_ = kept.get("id")
    if not id_:
        return Plan()
    found = Plan(id=str(id_), kept=kept)
    if not id_pattern.fullmatch(str(id_)):
        return found.afresh("its id is not one of this program")
    if kept.get("cwd") and kept["cwd"] != cwd:
        return found.afresh("the folder is another one")
    if kept.get("fingerprint") and kept["fingerprint"] != mark:
        return found.afresh("the configuration changed")
    if count(kept.get("contextTokens")) > max_context_tokens:
        return found.afresh("it has grown too long")
    if count(kept.get("runs")) >= MAX_RUNS:
        return found.afresh(f"it went on for {MAX_RUNS} runs")
    started = count(kept.get("startedAt"))
    if started and now - started > MAX_AGE_SECONDS:
        return found.afresh("it is too old")
    return found


def keep(plan_: Plan, reader: Reader, *, cwd: str, mark: str, now: float) -> dict[str, Any]:
    """What the next run needs to go on; empty when the program named no session."""
    if not reader.session_id:
        return {}
    went_on = plan_.kept if plan_.id == reader.session_id else {}
    return {
        "id": reader.session_id,
        "cwd": cwd,
        "fingerprint": mark,
        "usage": reader.session_usage().as_dict(),
        "runs": count(went_on.get("runs")) + 1,
        "startedAt": count(went_on.get("startedAt")) or int(now),
        "contextTokens": reader.context_tokens,
        "note": reader.answer.strip()[:NOTE_CHARS],
    }
