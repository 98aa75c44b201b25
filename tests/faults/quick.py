"""An adapter for fault tests: one granted and metered model call of a few milliseconds, no model.

It is safe to repeat and acts on nothing, so that every loss must lead to a new attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, ClassVar

from pydantic import Field

from agents import adapters
from agents.adapters.base import (
    Brief,
    Check,
    Config,
    ConfigClass,
    Done,
    Event,
    Started,
    Text,
    Usage,
)

PROVIDER, MODEL = "openrouter", "made-up-1"
COST_MICROS = 7


class QuickConfig(Config):
    """`seconds` of each of `words` words; `metered`: the call is granted and its cost booked."""

    seconds: float = Field(0.005, ge=0, le=600)
    words: int = Field(1, ge=1, le=10_000)
    metered: bool = False


class Quick:
    type: ClassVar[str] = "quick"
    label: ClassVar[str] = "Quick"
    description: ClassVar[str] = "For fault tests."
    Config: ClassVar[ConfigClass] = QuickConfig
    retry_safe: ClassVar[bool] = True
    uses_tools: ClassVar[bool] = True
    needs_folder: ClassVar[bool] = False
    simulated: ClassVar[bool] = True

    async def run(self, brief: Brief) -> AsyncGenerator[Event, None]:
        config = QuickConfig.model_validate(dict(brief.config))
        yield Started(model=MODEL)
        if config.metered:
            await brief.grant_call(
                provider=PROVIDER, model=MODEL, input_tokens=10, max_output_tokens=10
            )
        for number in range(config.words):
            yield Text(f"word{number} ")
            await asyncio.sleep(config.seconds)
        if config.metered:
            yield Usage(
                call=1,
                provider=PROVIDER,
                model=MODEL,
                input_tokens=10,
                output_tokens=5,
                cost_micros=COST_MICROS,
            )
        yield Done(summary="All done.", status="done")

    async def test(self, config: Any, secrets: Mapping[str, str]) -> list[Check]:
        return []

    async def aclose(self) -> None:
        return None


def register() -> None:
    """Make it known to this process."""
    adapters._ADAPTERS["quick"] = Quick()
