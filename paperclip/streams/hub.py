"""One listener a process, one reader for all viewers.

The hub keeps ONE connection that listens on `paperclip_live` and a pool of a few for reading. A
notice says only which run or topic has news; the hub then reads the new events of all such runs in
one statement and hands them to the feeds. A lost notice costs a second (the poll), a lost
connection the time to reconnect, after which everything is read again: rows are the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from agents import meters
from companies import live
from paperclip.database.address import conninfo
from paperclip.streams.feeds import ENDED, RESYNC, CompanyFeed, RunFeed
from paperclip.streams.viewers import Threads

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
READ_SPACING_SECONDS = 0.04
HINT_SPACING_SECONDS = 0.1
BEAT_SECONDS = 15.0
ROWS_A_RUN = 200
MAX_BACKOFF_SECONDS = 10.0
MAX_STREAMS = 2_000
MAX_STREAMS_AN_AGENT = 100  # by one credential: an agent cannot take the places of people
HINTS_REMEMBERED = 4_096

_RUN = """
SELECT id, company_id, agent_id, issue_id, created_at, status, code, message, summary, attempt,
       started_at, finished_at, cost_micros, unpriced_calls, input_tokens, cached_tokens,
       output_tokens
FROM agents_heartbeatrun WHERE id = ANY(%s)
"""
# The lateral join lets PostgreSQL look only into the partition that a run's events lie in.
_EVENTS = """
SELECT e.run_id, e.seq, e.kind, e.text, e.data, e.at
FROM unnest(%s::uuid[], %s::timestamptz[], %s::int[]) AS w (run_id, created_at, after)
CROSS JOIN LATERAL (
    SELECT run_id, seq, kind, text, data, at FROM agents_runevent
    WHERE run_id = w.run_id AND run_created_at = w.created_at AND seq > w.after
    ORDER BY seq LIMIT %s
) AS e
"""
_LAST = """
SELECT coalesce(max(seq), 0) AS seq FROM agents_runevent
WHERE run_id = %s AND run_created_at = %s
"""
_RETRY = """
SELECT id FROM agents_heartbeatrun WHERE retry_of_id = %s ORDER BY created_at, id LIMIT 1
"""


async def _moment_ms(connection: psycopg.AsyncConnection[Any]) -> int:
    """The database's clock, in milliseconds since 1970."""
    cursor = await connection.execute(
        "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


class Unavailable(Exception):
    """The hub cannot serve now; try again."""


class Hub:
    """The streams' heart. Made and used on one event loop."""

    def __init__(self) -> None:
        self.runs: dict[uuid.UUID, RunFeed] = {}
        self.companies: dict[str, CompanyFeed] = {}
        self.streams = 0
        self.of_agents: dict[str, int] = {}
        self.beat = 0
        self.listener_pid: int | None = None
        self.connected = asyncio.Event()
        self.threads = Threads()
        # What was heard last, of all companies, as (ms, company, topic, entity). All moments are
        # the database's, so that they mean the same to every web process.
        self.heard: deque[tuple[int, str, str, str | None]] = deque(maxlen=HINTS_REMEMBERED)
        self._heard_from_ms: int | None = None
        self._latest_ms = 0
        self._dirty: set[uuid.UUID] = set()
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._pool: AsyncConnectionPool[Any] | None = None

    # --- life ---

    async def start(self) -> None:
        self._pool = AsyncConnectionPool(
            conninfo(),
            min_size=1,
            max_size=4,
            open=False,
            timeout=5,
            kwargs={"autocommit": True, "row_factory": dict_row, "prepare_threshold": None},
            name="streams",
        )
        await self._pool.open(wait=False)
        for work in (self._listen, self._read, self._poll, self._hints):
            self._tasks.append(asyncio.create_task(work(), name=f"hub{work.__name__}"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._pool is not None:
            await self._pool.close()
            self._pool = None
        await self.threads.close()

    def facts(self) -> dict[str, float]:
        """Figures of this hub, for who watches."""
        pool = self._pool.get_stats() if self._pool is not None else {}
        return {
            "streams_open": self.streams,
            "feeds": len(self.runs) + len(self.companies),
            "listening": int(self.connected.is_set()),
            "pool_connections": pool.get("pool_size", 0),
            "pool_available": pool.get("pool_available", 0),
            "pool_waiting": pool.get("requests_waiting", 0),
        }

    # --- viewers ---

    @contextlib.contextmanager
    def place(self, agent: str | None) -> Iterator[None]:
        """A place among the streams; `agent` is an agent's token, None for people. Raises
        Unavailable when there is none left."""
        held = self.of_agents.get(agent, 0) if agent else 0
        if self.streams >= MAX_STREAMS or held >= MAX_STREAMS_AN_AGENT:
            raise Unavailable
        self.streams += 1
        if agent:
            self.of_agents[agent] = held + 1
        try:
            yield
        finally:
            self.streams -= 1
            if agent and self.of_agents[agent] > 1:
                self.of_agents[agent] -= 1
            elif agent:
                del self.of_agents[agent]

    @contextlib.asynccontextmanager
    async def follow_run(self, run_id: uuid.UUID) -> Any:
        """The shared feed of a run, for as long as somebody looks. Raises LookupError."""
        feed = self.runs.get(run_id)
        if feed is None:
            feed = await self._open(run_id)
        feed.viewers += 1
        try:
            yield feed
        finally:
            feed.viewers -= 1
            if feed.viewers == 0 and self.runs.get(run_id) is feed:
                del self.runs[run_id]

    @contextlib.contextmanager
    def follow_company(self, company_id: str) -> Any:
        """The shared hints of a company."""
        feed = self.companies.setdefault(company_id, CompanyFeed(company_id))
        feed.viewers += 1
        try:
            yield feed
        finally:
            feed.viewers -= 1
            if feed.viewers == 0 and self.companies.get(company_id) is feed:
                del self.companies[company_id]

    @property
    def position_ms(self) -> int:
        """How far this process has heard, by the database's clock."""
        return max(self._latest_ms, self._heard_from_ms or 0)

    def hints_since(
        self, company_id: str, topics: frozenset[str], since_ms: int, *, slack_ms: int = 0
    ) -> list[tuple[str, str | None]] | None:
        """Topic and entity of what a company's viewer would have heard from a moment of the
        database's clock on (all topics when none are named), and a little from before; None when
        nobody remembers that far back."""
        start = self._heard_from_ms
        full = len(self.heard) == HINTS_REMEMBERED
        if start is None or since_ms < start or (full and since_ms <= self.heard[0][0]):
            return None
        found: dict[tuple[str, str | None], None] = {}
        for at_ms, company, topic, entity_id in reversed(self.heard):
            if at_ms < since_ms - slack_ms:
                break
            if company == company_id and (not topics or topic in topics):
                found[topic, entity_id] = None
        return list(found)

    async def _open(self, run_id: uuid.UUID) -> RunFeed:
        rows = await self._rows(_RUN, [[run_id]])
        if not rows:
            raise LookupError(run_id)
        run = rows[0]
        # Noted down before its end is looked up: what comes in between rings for it already.
        feed = RunFeed(run_id, run["company_id"], run["created_at"], floor=0, last=0)
        (last,) = await self._rows(_LAST, [run_id, run["created_at"]])
        feed.floor = feed.last = last["seq"]
        feed = self.runs.setdefault(run_id, feed)
        self._mark(run_id)
        return feed

    async def events(self, feed: RunFeed, after: int) -> list[dict[str, Any]]:
        """Rows from the table, for a viewer who stands before the feed's tail."""
        return await self._rows(_EVENTS, [[feed.run_id], [feed.created_at], [after], ROWS_A_RUN])

    async def retry_of(self, run_id: uuid.UUID) -> uuid.UUID | None:
        rows = await self._rows(_RETRY, [run_id])
        return rows[0]["id"] if rows else None

    async def run(self, run_id: uuid.UUID) -> dict[str, Any] | None:
        rows = await self._rows(_RUN, [[run_id]])
        return rows[0] if rows else None

    async def _rows(self, statement: str, parameters: list[Any]) -> list[dict[str, Any]]:
        if self._pool is None:
            raise Unavailable
        try:
            async with self._pool.connection() as connection:
                cursor = await connection.execute(statement, parameters)
                return await cursor.fetchall()
        except (psycopg.OperationalError, psycopg.InterfaceError, TimeoutError) as error:
            raise Unavailable from error

    # --- work ---

    def _mark(self, run_id: uuid.UUID) -> None:
        self._dirty.add(run_id)
        self._news.set()

    def _mark_all(self) -> None:
        self._dirty.update(id for id, feed in self.runs.items() if feed.ending is None)
        if self._dirty:
            self._news.set()

    async def _listen(self) -> None:
        """Hear notices for ever; after every reconnect tell all to read again."""
        failures = 0
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    conninfo(direct=True), autocommit=True
                ) as connection:
                    await connection.execute(f"LISTEN {live.LIVE_CHANNEL}")
                    self.listener_pid = connection.info.backend_pid
                    self._heard_from_ms = await _moment_ms(connection)
                    self._mark_all()
                    if failures:
                        self._missed()
                    failures = 0
                    self.connected.set()
                    async for notice in connection.notifies():
                        self._latest_ms = max(self._latest_ms, live.sent_at_ms(notice.payload))
                        for company_id, topic, entity_id in live.decode(notice.payload):
                            self._hear(company_id, topic, entity_id)
                raise psycopg.OperationalError("the listening connection ended")
            except (psycopg.Error, OSError) as error:
                self.connected.clear()
                self._heard_from_ms = None
                if failures == 0:
                    log.warning("streams: listener lost: %s", error)
                failures += 1
            wait = min(MAX_BACKOFF_SECONDS, 0.1 * 2 ** min(failures, 8))
            await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311

    def _hear(self, company_id: str, topic: str, entity_id: str | None) -> None:
        if topic == "run" and entity_id is not None:
            with contextlib.suppress(ValueError):
                run_id = uuid.UUID(entity_id)
                if run_id in self.runs:
                    self._mark(run_id)
        self.heard.append((self._latest_ms, company_id, topic, entity_id))
        feed = self.companies.get(company_id)
        if feed is not None:
            feed.note(topic, entity_id)

    def _missed(self) -> None:
        for feed in self.companies.values():
            feed.note(RESYNC, None)

    async def _read(self) -> None:
        """Read what is new of all marked runs, in one statement, a few times a second."""
        while True:
            await self._news.wait()
            self._news.clear()
            marked, self._dirty = self._dirty, set()
            feeds = [self.runs[id] for id in marked if id in self.runs]
            if feeds:
                try:
                    await self._read_feeds(feeds)
                except Unavailable:
                    self._dirty |= marked  # the poll comes back to them
                except Exception:
                    log.exception("streams: reading failed")
            await asyncio.sleep(READ_SPACING_SECONDS)

    async def _read_feeds(self, feeds: list[RunFeed]) -> None:
        # The status first: a run that had ended then writes no more, so the events that follow
        # are all of them.
        runs = {row["id"]: row for row in await self._rows(_RUN, [[f.run_id for f in feeds]])}
        rows = await self._rows(
            _EVENTS,
            [
                [feed.run_id for feed in feeds],
                [feed.created_at for feed in feeds],
                [feed.last for feed in feeds],
                ROWS_A_RUN,
            ],
        )
        by_run: dict[uuid.UUID, list[dict[str, Any]]] = {}
        for row in rows:
            by_run.setdefault(row["run_id"], []).append(row)
        for feed in feeds:
            new = by_run.get(feed.run_id, [])
            feed.add(new)
            if new:
                _meter(new[0])
            run = runs.get(feed.run_id)
            if len(new) == ROWS_A_RUN:
                self._mark(feed.run_id)
            elif run is None:
                feed.ending = {"status": "deleted"}
            elif run["status"] in ENDED and feed.ending is None:
                feed.ending = run
            if new or feed.ending is not None:
                feed.bell.ring()

    async def _poll(self) -> None:
        """The net under lost notices, and the clock of the keep-alives."""
        next_beat = time.monotonic() + BEAT_SECONDS
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self._mark_all()
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + BEAT_SECONDS
                self.beat += 1
                for bell in [feed.bell for feed in self._feeds()]:
                    bell.ring()

    def _feeds(self) -> list[RunFeed | CompanyFeed]:
        return [*self.runs.values(), *self.companies.values()]

    async def _hints(self) -> None:
        while True:
            await asyncio.sleep(HINT_SPACING_SECONDS)
            for feed in list(self.companies.values()):
                feed.flush(self._latest_ms)


def _meter(row: dict[str, Any]) -> None:
    """How old the first piece of news was when it came; the last one is younger."""
    meters.observe(meters.STREAM_LAG, time.time() - row["at"].timestamp())


_hub: Hub | None = None


def current() -> Hub:
    """The hub of this process. Raises Unavailable before `start` and after `stop`."""
    if _hub is None:
        raise Unavailable
    return _hub


async def start() -> None:
    """Begin to listen; called once, when the web server starts."""
    global _hub
    _hub = Hub()
    await _hub.start()


async def stop() -> None:
    """Let go of all connections."""
    global _hub
    if _hub is not None:
        hub, _hub = _hub, None
        await hub.stop()
