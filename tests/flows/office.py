"""A running instance as its operator meets it: one key, HTTP, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from tests.house.instance import Instance, manage

EMAIL = "olga@example.com"
PASSWORD = "correct horse battery"
ENDED = ("succeeded", "failed", "timed_out", "interrupted", "cancelled")

# US dollars for a million tokens; `set_prices` makes them the company's own.
PRICES = {
    "gpt-4o-mini": {"input": 0.15, "cache_read": 0.075, "output": 0.6},
    "claude-haiku-4-5": {"input": 1.0, "cache_read": 0.1, "cache_write": 1.25, "output": 5.0},
}
_PRICES_SCRIPT = """
import json, os
from django.utils import timezone
from billing import prices
from companies.activity import SYSTEM
from companies.models import Company
company = Company.objects.get(id=os.environ["OFFICE_COMPANY"])
for model, rates in json.loads(os.environ["OFFICE_PRICES"]).items():
    pico = {f"{name}_pico": round(usd * 1_000_000) for name, usd in rates.items()}
    prices.set_price(
        company=company, model=model, actor=SYSTEM, now=timezone.now(), **pico
    )
"""


@dataclass(frozen=True, slots=True)
class Reached:
    """Where an issue came to, and how."""

    issue: dict[str, Any]
    runs: list[dict[str, Any]]
    comments: list[dict[str, Any]]
    cost_micros: int | None
    unpriced: int

    @property
    def words(self) -> list[str]:
        """What agents said, oldest first."""
        return [one["body"] for one in self.comments if one["authorType"] == "agent"]


class Office:
    """One company of an instance, by its owner's key."""

    def __init__(self, instance: Instance, name: str = "Acme", prefix: str = "ACM") -> None:
        self.instance = instance
        self.key = self._key()
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{instance.port}/api",
            headers={"authorization": f"Bearer {self.key}"},
            timeout=20,
            trust_env=False,
        )
        made = self.post("/companies", name=name, issuePrefix=prefix)
        self.company: str = made["id"]
        self.http.patch(f"/companies/{self.company}", json={"maxConcurrentAgents": 100})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def _key(self) -> str:
        done = manage("operator_key", "--email", EMAIL, env=self.instance.env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def set_prices(self) -> None:
        """Give the company its own prices: a model on this machine has none of its own."""
        env = self.instance.env | {
            "OFFICE_COMPANY": self.company,
            "OFFICE_PRICES": json.dumps(PRICES),
        }
        done = manage("shell", "-v", "0", "-c", _PRICES_SCRIPT, env=env)
        assert done.returncode == 0, done.stderr

    # --- requests ----------------------------------------------------------------------------

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.json()

    def post(self, path: str, **body: Any) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code in (200, 201, 202), (path, answer.status_code, answer.text)
        return answer.json()

    def hire(self, name: str, adapter: str, config: dict[str, Any], **fields: Any) -> str:
        """A new agent's id."""
        made = self.post(
            f"/companies/{self.company}/agents",
            name=name,
            adapterType=adapter,
            adapterConfig=config,
            **fields,
        )
        return str(made["id"])

    def give(self, agent: str, title: str, description: str = "") -> dict[str, Any]:
        """A new issue for an agent, which wakes it."""
        made: dict[str, Any] = self.post(
            f"/companies/{self.company}/issues",
            title=title,
            description=description,
            assigneeAgentId=agent,
            status="todo",
        )
        return made

    # --- watching ----------------------------------------------------------------------------

    def run_of(self, issue: dict[str, Any]) -> str:
        """The id of the issue's run, as soon as there is one."""
        runs = until(lambda: self.get(f"/issues/{issue['id']}/runs"), what="a run")
        return str(runs[0]["id"])

    def see_through(self, issue: dict[str, Any], *, seconds: float = 30) -> Reached:
        """Wait until every run about the issue has ended; where it came to."""

        def ended() -> bool:
            runs = self.get(f"/issues/{issue['id']}/runs")
            return bool(runs) and all(run["status"] in ENDED for run in runs)

        until(ended, seconds=seconds, what=f"the end of {issue['identifier']}")
        return self.reached(issue)

    def reached(self, issue: dict[str, Any]) -> Reached:
        costs = self.get(f"/issues/{issue['id']}/cost-summary")
        return Reached(
            issue=self.get(f"/issues/{issue['id']}"),
            runs=self.get(f"/issues/{issue['id']}/runs"),
            comments=self.get(f"/issues/{issue['id']}/comments", order="asc"),
            cost_micros=costs["costMicros"],
            unpriced=costs["unpricedEvents"],
        )


def until(condition: Callable[[], Any], *, seconds: float = 30, what: str) -> Any:
    """Wait for something true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def instance(folder: Path, **env: str) -> Iterator[Instance]:
    """A whole instance in a folder that others may pass through."""
    os.chmod(folder, 0o711)
    operator = {"PAPERCLIP_ADMIN_EMAIL": EMAIL, "PAPERCLIP_ADMIN_PASSWORD": PASSWORD}
    made = Instance(folder / "data", **operator | env)
    try:
        yield made.start()
    finally:
        if made.process is not None:
            try:
                made.stop()
            finally:
                made.process.kill()  # all others end with it
                made.process.wait(10)
