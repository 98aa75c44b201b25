"""The streams over HTTP: a bare ASGI application.

    GET  /api/heartbeat-runs/{id}/stream   one run: its events, then `done`
    GET  /events?company=…&topics=a,b      a company: hints of what changed
    POST /api/agent-tasks                  start a task and watch it to its end

Read next: `hub.py` for where events come from.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import orjson

from companies import live, wire
from paperclip.bridge import Receive, Scope, Send
from paperclip.streams import hub as hubs
from paperclip.streams import sse, viewers
from paperclip.streams.feeds import RunFeed, encode, resync
from paperclip.streams.viewers import Denied, Proof

log = logging.getLogger(__name__)

RECHECK_SECONDS = 60.0
RETRY_GRACE_SECONDS = 3.0
MAX_TASK_BODY = 64 * 1024
BODY_SECONDS = 20.0
# Batches in one millisecond count on from it: whoever comes back hears a second twice, not nothing.
SLACK_MS = 1_000
RETRIED = frozenset({"failed", "timed_out", "lost"})
_RUN_PATH = re.compile(r"/api/heartbeat-runs/([^/]+)/stream")

Chunks = AsyncIterator[bytes]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one stream until it ends, the viewer leaves or their right does."""
    with contextlib.ExitStack() as stack:
        try:
            hub = hubs.current()
            stack.enter_context(hub.place(viewers.token_of_agent(scope)))
        except hubs.Unavailable:
            full = Denied(503, "too_many_streams", "Too many streams; try again soon.")
            await _refuse(send, full)
            return
        await _serve(hub, scope, receive, send)


async def _serve(hub: hubs.Hub, scope: Scope, receive: Receive, send: Send) -> None:
    try:
        chunks = await _route(hub, scope, receive, send)
        if chunks is not None:
            await _pump(chunks, receive, send)
    except Denied as denied:
        await _refuse(send, denied)
    except hubs.Unavailable:
        await _refuse(send, Denied(503, "database_away", "The database does not answer."))


async def _route(hub: hubs.Hub, scope: Scope, receive: Receive, send: Send) -> Chunks | None:
    """What to stream; None when the answer has been given already."""
    query = parse_qs(scope["query_string"].decode("latin-1"))
    if scope["method"] == "POST":
        return await _task(hub, scope, receive, send)
    proof = Proof.of(scope)
    if match := _RUN_PATH.fullmatch(scope["path"]):
        may_watch = partial(viewers.may_watch_run, proof, match[1])
        run_id = await hub.threads.run(may_watch)
        after = _last_event_id(scope) or _asked_number(query.get("after", ["0"])[0])
        return follow_run(hub, run_id, after=after, check=may_watch)
    company = query.get("company", [""])[0]
    topics = _topics(query.get("topics", [""])[0])
    check = partial(viewers.may_watch_company, proof, company)
    company_id = await hub.threads.run(check)
    since = query.get("since", [""])[0]
    last = _header(scope, b"last-event-id")
    if last is not None:  # what came meanwhile; a position of any process means the same here
        since = last if _is_moment(last) else "0"
    slack_ms = 0 if last is None else SLACK_MS
    return follow_company(hub, company_id, topics, check=check, since=since, slack_ms=slack_ms)


# --- what is streamed ------------------------------------------------------------------------


class Recheck:
    """Asks once a minute whether the viewer still may. Raises Denied when not."""

    def __init__(self, hub: hubs.Hub, check: Any) -> None:
        self._hub = hub
        self._check = check
        self._next = time.monotonic() + RECHECK_SECONDS

    async def __call__(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + RECHECK_SECONDS
            try:
                await self._hub.threads.run(self._check)
            except Denied as denied:
                if denied.status != 503:  # not knowing is no reason to cut a live stream
                    raise


async def follow_run(hub: hubs.Hub, run_id: uuid.UUID, *, after: int, check: Any) -> Chunks:
    """A run's events from `after` on, then `done`."""
    still_may = Recheck(hub, check)
    async with hub.follow_run(run_id) as feed:
        async for chunk in _events(hub, feed, after, still_may):
            yield chunk
        yield sse.frame("done", outcome(feed.ending))


async def _events(hub: hubs.Hub, feed: RunFeed, seen: int, still_may: Recheck) -> Chunks:
    """All events after `seen`, to the run's end; keep-alives in between.

    The feed is joined before the table is read, so nothing falls between the two.
    """
    beat = hub.beat
    while True:
        await still_may()
        bell = feed.bell.listen()
        if seen < feed.floor:
            rows = await hub.events(feed, seen)
            if rows:
                seen = rows[-1]["seq"]
                yield b"".join(encode(row) for row in rows)
            else:
                seen = feed.floor
            continue
        chunk, seen = feed.after(seen)
        if chunk:
            yield chunk
        elif feed.ending is not None:
            return
        elif hub.beat != beat:
            beat = hub.beat
            yield sse.KEEP_ALIVE
        else:
            await bell.wait()


async def follow_company(
    hub: hubs.Hub,
    company_id: str,
    topics: frozenset[str],
    *,
    check: Any,
    since: str,
    slack_ms: int = 0,
) -> Chunks:
    """Hints of a company. `since`: when the viewer read what they show, by the database's clock in
    milliseconds since 1970; empty when they have read nothing yet."""
    still_may = Recheck(hub, check)
    beat = hub.beat
    with hub.follow_company(company_id) as feed:
        seen = feed.token
        if since:
            yield _opening(hub, company_id, topics, since, slack_ms)
        else:
            yield sse.position(hub.position_ms)
        while True:
            await still_may()
            bell = feed.bell.listen()
            chunk, seen = feed.after(seen, topics)
            if chunk:
                yield chunk
            elif hub.beat != beat:
                beat = hub.beat
                yield sse.KEEP_ALIVE
            else:
                await bell.wait()


def _opening(
    hub: hubs.Hub, company_id: str, topics: frozenset[str], since: str, slack_ms: int
) -> bytes:
    """What changed between the reading and the stream; `resync` when that is not known."""
    position = hub.position_ms
    since_ms = int(since) if _is_moment(since) else 0
    hints = hub.hints_since(company_id, topics, since_ms, slack_ms=slack_ms)
    if hints is None:
        return resync(position)
    frames = (sse.frame(topic, {"topic": topic, "id": id}, position) for topic, id in hints)
    return b"".join(frames) or sse.position(position)


def _is_moment(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15


async def follow_task(hub: hubs.Hub, task: dict[str, Any], *, check: Any) -> Chunks:
    """A task from its queued run to the end of its last retry."""
    still_may = Recheck(hub, check)
    run_id: uuid.UUID | None = uuid.UUID(task["runId"])
    queued = task
    while run_id is not None:
        yield sse.frame("queued", queued)
        started = False
        async with hub.follow_run(run_id) as feed:
            async for chunk in _events(hub, feed, 0, still_may):
                if not started and chunk is not sse.KEEP_ALIVE:
                    started = True
                    yield sse.frame("started", {"runId": run_id})
                yield chunk
            ending = feed.ending or {}
        before, run_id = run_id, await _retry(hub, run_id, ending)
        if run_id is None:
            yield sse.frame("done", outcome(ending))
            return
        queued = {
            **task,
            "runId": str(run_id),
            "retryOfRunId": str(before),
            "streamUrl": f"/api/heartbeat-runs/{run_id}/stream",
        }


async def _retry(hub: hubs.Hub, run_id: uuid.UUID, ending: dict[str, Any]) -> uuid.UUID | None:
    """The run that repeats this one, if there is to be one."""
    if ending.get("status") not in RETRIED:
        return None
    deadline = time.monotonic() + RETRY_GRACE_SECONDS
    while time.monotonic() < deadline:
        again = await hub.retry_of(run_id)
        if again is not None:
            return again
        await asyncio.sleep(0.25)
    return None


def outcome(run: dict[str, Any] | None) -> dict[str, Any]:
    """The data of `done`."""
    run = run or {"status": "unknown"}
    unpriced = run.get("unpriced_calls") or 0
    cost = wire.known(run["cost_micros"], unpriced) if "cost_micros" in run else None
    return {
        "runId": run.get("id"),
        "issueId": run.get("issue_id"),
        "agentId": run.get("agent_id"),
        "status": WIRE_STATUS.get(run["status"], run["status"]),
        "code": run.get("code") or None,
        "message": run.get("message") or None,
        "summary": run.get("summary") or None,
        "attempt": run.get("attempt"),
        "startedAt": run.get("started_at"),
        "finishedAt": run.get("finished_at"),
        "inputTokens": run.get("input_tokens"),
        "cachedInputTokens": run.get("cached_tokens"),
        "outputTokens": run.get("output_tokens"),
        "costMicros": cost,
        "costCents": wire.cents(cost),
        "unpricedCalls": unpriced,
    }


WIRE_STATUS = {"lost": "interrupted", "unknown": "interrupted"}


# --- the task call ---------------------------------------------------------------------------


async def _task(hub: hubs.Hub, scope: Scope, receive: Receive, send: Send) -> Chunks | None:
    body = await _read(receive)
    status, headers, content = await hub.threads.run(partial(viewers.ask_django, scope, body))
    if status != 202:
        await _send_whole(send, status, headers, content)
        return None
    task = orjson.loads(content)
    check = partial(viewers.may_watch_run, Proof.of(scope), task["runId"])
    if (b"idempotent-replayed", b"true") in headers:  # who may was asked back then
        await hub.threads.run(check)
    return follow_task(hub, task, check=check)


async def _read(receive: Receive) -> bytes:
    """The body; whoever sends it too slowly would keep a stream's place from others."""
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Denied(400, "invalid", "The body could not be read.")
                body += message.get("body", b"")
                if len(body) > MAX_TASK_BODY:
                    raise Denied(413, "body_too_large", "The body is larger than 64 kB.")
                if not message.get("more_body", False):
                    return body
    except TimeoutError:
        raise Denied(408, "body_too_slow", "The body did not arrive in time.") from None


# --- plumbing --------------------------------------------------------------------------------


async def _pump(chunks: Chunks, receive: Receive, send: Send) -> None:
    """Send until the stream ends or the viewer leaves."""

    async def deliver() -> None:
        await send({"type": "http.response.start", "status": 200, "headers": sse.HEADERS})
        async with contextlib.aclosing(chunks) as opened:  # type: ignore[type-var]
            async for chunk in opened:
                if chunk:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    sending, leaving = asyncio.ensure_future(deliver()), asyncio.ensure_future(leave())
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
        ended = await asyncio.gather(sending, leaving, return_exceptions=True)
    error = ended[0]
    if isinstance(error, Denied | hubs.Unavailable | LookupError):
        # The head is out: all that is left is to end the stream; the viewer reconnects and hears.
        with contextlib.suppress(Exception):
            await send({"type": "http.response.body", "body": b""})
    elif isinstance(error, Exception) and not leaving.done():
        log.error("a stream failed", exc_info=error)


async def _refuse(send: Send, denied: Denied) -> None:
    details = {}
    if denied.field:
        found = {"path": [denied.field], "code": denied.code, "message": str(denied)}
        details = {"issues": [found]}
    body = wire.dumps({"error": str(denied), "code": denied.code, "details": details})
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    if denied.status == 503:
        headers.append((b"retry-after", b"2"))
    if denied.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    with contextlib.suppress(Exception):
        await _send_whole(send, denied.status, headers, body)


async def _send_whole(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    headers = [*(h for h in headers if h[0] != b"content-length")]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _header(scope: Scope, name: bytes) -> str | None:
    return next((v.decode("latin-1") for n, v in scope["headers"] if n == name), None)


def _last_event_id(scope: Scope) -> int:
    return _number(_header(scope, b"last-event-id") or "0")


def _topics(text: str) -> frozenset[str]:
    topics = frozenset(topic for topic in text.split(",") if topic)
    if topics - live.TOPICS:  # it would be silent for ever
        known = ", ".join(sorted(live.TOPICS))
        raise Denied(400, "invalid", f"topics are some of {known}.", field="topics")
    return topics


def _asked_number(text: str) -> int:
    if _number(text) == 0 and text.strip("0"):
        raise Denied(400, "invalid", "after is the seq of an event.", field="after")
    return _number(text)


def _number(text: str) -> int:
    """A seq, or 0 for what is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
