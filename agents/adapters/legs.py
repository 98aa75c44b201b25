"""The ways on which a run can reach a model, and the one it is on.

The next way is taken only before the first event of an answer, only for the causes that pass
elsewhere (too many requests, trouble of the provider, no connection), and never back. Read next:
`chat.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents.adapters.base import AdapterError, Brief, Code, Route, Throttled, Usage
from agents.adapters.line import Line
from agents.adapters.wire import ChatConfig, Wire

# A refusal, a spent quota or a bad request is no better elsewhere, or not ours to take there.
PASSES_ELSEWHERE = frozenset({Code.RATE_LIMITED, Code.PROVIDER_OVERLOADED, Code.CONNECT_FAILED})


@dataclass(frozen=True, slots=True)
class Leg:
    """One way: how it is spoken, the line, and the configuration with this way's model."""

    wire: Wire
    line: Line
    config: ChatConfig
    route: Route | None = None  # None: the configuration itself says where


def passes_elsewhere(error: AdapterError) -> bool:
    """Whether another provider may be asked after this failure."""
    if error.code not in PASSES_ELSEWHERE or error.acted:
        return False
    return error.diverts if isinstance(error, Throttled) else True


class Legs:
    """At least one leg, in the order in which they are tried."""

    def __init__(self, legs: Sequence[Leg], brief: Brief) -> None:
        self._legs = legs
        self._brief = brief
        self._at = 0
        self._because = ""

    @property
    def current(self) -> Leg:
        return self._legs[self._at]

    async def admit(self, tokens: int) -> None:
        """Wait for the provider's limits. Raises Throttled."""
        if self.current.route is not None:
            await self._brief.admit_call(self.current.route, tokens=tokens)

    def report(
        self, *, taken: int, usage: Usage | None, answered: bool, error: AdapterError | None
    ) -> None:
        """Tell how the admitted call ended."""
        if self.current.route is not None:
            used = usage.input_tokens + usage.output_tokens if usage else 0
            self._brief.report_call(
                self.current.route, taken=taken, tokens=used, answered=answered, error=error
            )

    async def divert(self, error: AdapterError) -> bool:
        """Go over to the next way that may be taken; False when the failure stands."""
        if not passes_elsewhere(error):
            return False
        for place in range(self._at + 1, len(self._legs)):
            route = self._legs[place].route
            if route is not None and await self._brief.divert(route, error):
                self._at, self._because = place, str(error.code)
                return True
        return False

    def facts(self) -> dict[str, Any]:
        """What the result says about a run that did not go its first way."""
        route = self.current.route
        if route is None or route.position == 0:
            return {}
        return {
            "fallback": {
                "connectionId": route.connection_id,
                "connection": route.name,
                "model": route.model,
                "because": self._because or "provider_open",
            }
        }
