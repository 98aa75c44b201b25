"""POST /api/agent-tasks with Accept: text/event-stream: from the prompt to the end."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from agents.models import Agent, HeartbeatRun
from companies import live
from companies.models import User
from issues.models import Issue
from paperclip.streams import service
from tests import factories
from tests.api.conftest import Caller
from tests.streams.viewing import end, in_thread, look, running_hub, write

pytestmark = pytest.mark.django_db(transaction=True)
PATH = "/api/agent-tasks"


@pytest.fixture(autouse=True)
def _no_connection_stays() -> Iterator[None]:
    yield
    live.flush()
    connections.close_all()


def body(agent: Agent, **extra: str) -> bytes:
    return json.dumps({"agentId": str(agent.id), "prompt": "Forge ten anvils.", **extra}).encode()


def start_run(run_id: str) -> HeartbeatRun:
    run = HeartbeatRun.objects.get(id=run_id)
    HeartbeatRun.objects.filter(id=run_id).update(
        status="running", started_at=run.created_at, epoch=1
    )
    run.refresh_from_db()
    write(run, 1, kind="status")
    write(run, 2)
    return run


def test_the_stream_goes_from_queued_to_done(as_olga: Caller, ada: Agent) -> None:
    async def story() -> None:
        async with running_hub():
            viewer = look(
                PATH, method="POST", token=as_olga.token, body=body(ada),
                accept="text/event-stream", content_type="application/json",
            )  # fmt: skip
            await viewer.until(lambda v: bool(v.named("queued")))
            run_id = viewer.named("queued")[0]["runId"]
            run = await in_thread(lambda: start_run(run_id))
            await viewer.until(lambda v: bool(v.named("text")))
            await in_thread(lambda: end(run))
            await viewer.until_end()
            names = [event["event"] for event in viewer.events()]
            assert names == ["queued", "started", "status", "text", "done"]
            assert viewer.named("done")[0]["status"] == "succeeded"

    asyncio.run(story())
    assert Issue.objects.get().description == "Forge ten anvils."


def test_the_stream_follows_a_retry(as_olga: Caller, ada: Agent) -> None:
    def lose(run_id: str) -> uuid.UUID:
        run = start_run(run_id)
        end(run, "lost", "lost")
        again = factories.run(ada, run.issue, retry_of=run, attempt=2)
        start_run(str(again.id))
        end(again)
        return again.id

    async def story() -> None:
        async with running_hub():
            viewer = look(
                PATH, method="POST", token=as_olga.token, body=body(ada),
                accept="text/event-stream", content_type="application/json",
            )  # fmt: skip
            await viewer.until(lambda v: bool(v.named("queued")))
            again = await in_thread(lambda: lose(viewer.named("queued")[0]["runId"]))
            await viewer.until_end()
            assert viewer.named("queued")[1]["runId"] == str(again)
            assert [done["runId"] for done in viewer.named("done")] == [str(again)]

    asyncio.run(story())


def test_an_answer_from_the_store_is_streamed_only_to_who_still_belongs_there(
    as_olga: Caller, olga: User, ada: Agent
) -> None:
    async def story() -> None:
        async with running_hub():
            headers = {
                "accept": "text/event-stream",
                "content_type": "application/json",
                "idempotency_key": "a",
            }
            first = look(PATH, method="POST", token=as_olga.token, body=body(ada), **headers)
            await first.until(lambda v: bool(v.named("queued")))
            again = look(PATH, method="POST", token=as_olga.token, body=body(ada), **headers)
            await again.until(lambda v: bool(v.named("queued")))
            assert again.named("queued") == first.named("queued")
            await first.leave()
            await again.leave()

            await in_thread(lambda: olga.memberships.all().delete())
            late = look(PATH, method="POST", token=as_olga.token, body=body(ada), **headers)
            await late.until(lambda v: v.status != 0)
            assert late.status == 404
            await late.until_end()

    asyncio.run(story())


def test_a_refusal_is_plain_json_and_leaves_nothing(as_olga: Caller, ada: Agent) -> None:
    async def story() -> None:
        async with running_hub():
            for given, expected in (
                (body(ada, prompt="short"), 400),
                (b"{", 400),
                (json.dumps({"agentId": str(uuid.uuid4()), "prompt": "x" * 20}).encode(), 404),
            ):
                viewer = await look(
                    PATH, method="POST", token=as_olga.token, body=given,
                    accept="text/event-stream", content_type="application/json",
                ).until_end()  # fmt: skip
                assert viewer.status == expected
                assert b'"error"' in viewer.body

    asyncio.run(story())
    assert not Issue.objects.exists()


def test_a_browser_needs_its_csrf_token(olga: User, ada: Agent) -> None:
    browser = Caller()
    browser.force_login(olga)
    cookie = "; ".join(f"{name}={m.value}" for name, m in browser.cookies.items())

    async def story() -> None:
        async with running_hub():
            viewer = await look(
                PATH, method="POST", body=body(ada), cookie=cookie,
                accept="text/event-stream", content_type="application/json",
            ).until_end()  # fmt: skip
            assert viewer.status == 403

    asyncio.run(story())
    assert not Issue.objects.exists()


def test_a_body_without_end_is_cut_off(as_olga: Caller) -> None:
    async def story() -> None:
        async with running_hub():
            viewer = await look(
                PATH, method="POST", token=as_olga.token, body=b"x" * 100_000,
                accept="text/event-stream",
            ).until_end()  # fmt: skip
            assert viewer.status == 413

    asyncio.run(story())


def test_a_body_that_never_ends_keeps_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "BODY_SECONDS", 0.05)
    sent: list[dict[str, Any]] = []
    pieces = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> dict[str, Any]:
        if pieces:
            return pieces.pop()
        return await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async def story() -> int:
        async with running_hub() as hub:
            scope = {"type": "http", "method": "POST", "path": PATH, "headers": [],
                     "query_string": b""}  # fmt: skip
            async with asyncio.timeout(10):
                await service.app(scope, receive, send)
            return hub.streams

    assert asyncio.run(story()) == 0
    assert sent[0]["status"] == 408
