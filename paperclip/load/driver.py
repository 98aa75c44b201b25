"""What the load needs of a product. Another product is measured by a class of these methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Seen:
    """A task as its user saw it; moments in seconds of `time.monotonic`."""

    asked_at: float
    first_token_at: float | None
    done_at: float
    failure: str = ""  # empty: the result has landed


class Driver(Protocol):
    """One product under load. `users` are numbered from 0."""

    async def prepare(self, *, users: int, provider_url: str) -> None:
        """Makes an agent for each user; all talk to the provider. Raises what went wrong."""

    async def task(self, *, user: int, prompt: str) -> Seen:
        """Gives the user's agent a task and watches it to its end. Never raises for a task that
        failed."""

    async def clean_up(self) -> None:
        """Puts away what `prepare` made, as far as the product can."""
