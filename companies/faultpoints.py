"""Named places where a test can hurt the process that passes them.

A no-op unless PAPERCLIP_FAULT_POINTS says otherwise when the process starts, and always one in the
production profile. The variable is `place=action[@n]`, several with commas: `kill` (SIGKILL to
oneself), `raise`, `sleep:SECONDS` (the thread stands still), `note:PATH` (append a line); `@n`
means the n-th time only. The places are listed in docs/faults.md; `tests/faults` drives them.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass

VARIABLE = "PAPERCLIP_FAULT_POINTS"


class Injected(RuntimeError):
    """The fault that `raise` asks for."""


@dataclass(frozen=True, slots=True)
class Action:
    """What happens at a place: the verb, its word, and at which passing (0: at each)."""

    verb: str
    word: str = ""
    nth: int = 0


def parse(text: str) -> dict[str, Action]:
    """The plan in `text`. Raises ValueError for a verb that there is not."""
    plan = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        place, _, what = part.partition("=")
        what, _, nth = what.partition("@")
        verb, _, word = what.partition(":")
        if verb not in ("kill", "raise", "sleep", "note"):
            raise ValueError(f"{VARIABLE}: there is no action {verb!r}")
        plan[place] = Action(verb, word, int(nth or 0))
    return plan


def _from_environment() -> dict[str, Action]:
    if os.environ.get("PAPERCLIP_PROFILE") == "production":
        return {}
    return parse(os.environ.get(VARIABLE, ""))


_plan = _from_environment()
_passed: Counter[str] = Counter()
_counting = threading.Lock()


def reach(place: str, what: object = "") -> None:
    """The process passes `place`, about `what` (an id, for notes)."""
    if _plan:
        _act(place, what)


def _act(place: str, what: object) -> None:
    action = _plan.get(place)
    if action is None:
        return
    with _counting:
        _passed[place] += 1
        if action.nth and _passed[place] != action.nth:
            return
    if action.verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action.verb == "raise":
        raise Injected(f"the fault asked for at {place}")
    elif action.verb == "sleep":
        time.sleep(float(action.word))
    else:
        line = f"{time.time():.6f} {os.getpid()} {place} {what}\n".encode()
        descriptor = os.open(action.word, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
