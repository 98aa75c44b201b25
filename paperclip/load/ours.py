"""This product under load: tasks by `POST /api/agent-tasks`, watched on the same connection."""

from __future__ import annotations

import time
from typing import Any

from paperclip.load import http
from paperclip.load.driver import Seen

AGENTS_A_COMPANY = 10


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
        client, asked_at = self._clients[user], time.monotonic()
        body = {"agentId": self._agents[user], "prompt": prompt}
        first: float | None = None
        failure = "the stream ended early"
        try:
            async for name, data in client.events("POST", "/api/agent-tasks", body):
                if name == "text" and first is None:
                    first = time.monotonic()
                elif name == "done":
                    failure = "" if data.get("status") == "succeeded" else f"run {data}"
        except (http.Unexpected, *http.BROKEN) as error:
            await client.close()
            failure = str(error) or type(error).__name__
        return Seen(asked_at, first, time.monotonic(), failure)

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
