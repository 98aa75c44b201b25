"""This product under load: tasks by `POST /api/agent-tasks`, watched on the same connection."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from paperclip.load import http, provider
from paperclip.load.driver import Seen

AGENTS_A_COMPANY = 10
ATTEMPTS = 8


@dataclass(slots=True)
class _Watched:
    """What one task's events have told so far."""

    first_token_at: float | None = None
    done_at: float = 0.0
    failure: str = ""

    async def follow(self, events: AsyncIterator[tuple[str, Any]]) -> None:
        """Reads to the end of the run. Raises Unexpected when the stream ends before."""
        text = ""
        async for name, data in events:
            if name == "text":
                self.first_token_at = self.first_token_at or time.monotonic()
                text += data["text"]
            elif name == "done":
                whole = text == provider.ANSWER
                self.failure = "" if whole else f"{len(text)} characters of the answer arrived"
                if data["status"] != "succeeded":
                    self.failure = f"{data['status']} ({data['code']})"
                self.done_at = time.monotonic()
        if not self.done_at:
            raise http.Unexpected("the stream ended early")


class Paperclip:
    """A driver that speaks the JSON API with an operator's key."""

    def __init__(self, *, url: str, key: str) -> None:
        self._url = url
        self._headers = {"authorization": f"Bearer {key}"}
        self._companies: list[str] = []
        self._agents: list[str] = []
        self._clients: list[http.Client] = []

    def _client(self) -> http.Client:
        return http.Client(self._url, self._headers)

    async def prepare(self, *, users: int, provider_url: str) -> None:
        while len(self._agents) < users:
            if len(self._agents) % AGENTS_A_COMPANY == 0:
                self._companies.append(await self._company(len(self._companies) + 1))
            number = len(self._agents) + 1
            agent = {
                "name": f"Worker {number}",
                "adapterType": "openai",
                # Without tools the answer itself is the result.
                "adapterConfig": {"baseUrl": provider_url, "model": "load", "tools": False},
                "onFinish": "done",
            }
            path = f"/api/companies/{self._companies[-1]}/agents"
            self._agents.append((await self._call("POST", path, agent))["id"])
            self._clients.append(self._client())

    async def _company(self, number: int) -> str:
        made = await self._call("POST", "/api/companies", {"name": f"Load {number}"})
        room = {"maxConcurrentAgents": AGENTS_A_COMPANY}
        await self._call("PATCH", f"/api/companies/{made['id']}", room)
        return str(made["id"])

    async def task(self, *, user: int, prompt: str) -> Seen:
        """As a careful client does: a broken call is made again under the same key, and the answer
        is followed from its beginning."""
        asked_at = time.monotonic()
        watched = _Watched()
        again = {"idempotency-key": secrets.token_hex(16)}
        body = {"agentId": self._agents[user], "prompt": prompt}
        for attempt in range(ATTEMPTS):
            try:
                events = self._clients[user].events("POST", "/api/agent-tasks", body, again)
                await watched.follow(events)
                break
            except (http.Unexpected, *http.BROKEN) as error:
                await self._clients[user].close()
                watched.failure = str(error) or type(error).__name__
                await asyncio.sleep(0.2 * (attempt + 1))
        done_at = watched.done_at or time.monotonic()
        return Seen(asked_at, watched.first_token_at, done_at, watched.failure)

    async def clean_up(self) -> None:
        for client in self._clients:
            await client.close()
        for company in self._companies:
            await self._call("POST", f"/api/companies/{company}/archive", {})

    async def _call(self, method: str, path: str, data: object) -> Any:
        # A new connection each time: the server closes one that idles through a stage.
        office = self._client()
        try:
            answer = await office.request(method, path, data)
        finally:
            await office.close()
        if answer.status not in (200, 201):
            text = answer.body[:300].decode(errors="replace")
            raise http.Unexpected(f"{method} {path}: {answer.status} {text}")
        return answer.json()
