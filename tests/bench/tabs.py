"""From an event to the screen while a hundred tabs are open, and what a day does to a tab."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from django.db import connection

from companies import live
from tests.bench import crowd
from tests.bench.browser import heap, signed_in
from tests.bench.client import Client
from tests.bench.pages import AGENTS, SWAP, session_cookie
from tests.bench.report import Table, quantiles
from tests.bench.world import World, world

TABS = 100
SAMPLES, SPACING_SECONDS = 20, 2.2
EVENTS, BATCH = 10_000, 50  # of a day of eight hours, told within a minute
SWAPS = 200

# Resolves with the moment at which the words have been painted.
_SEEN = """([place, words]) => new Promise((done) => {
  const look = () => {
    if (document.querySelector(place)?.textContent === words) {
      requestAnimationFrame(() => setTimeout(() => done(Date.now())));
    } else requestAnimationFrame(look);
  };
  look();
})"""
# A part of the page is fetched and put in its place as often as in a day.
_SWAP = """async (times) => {
  for (let n = 0; n < times; n += 1) {
    const settled = new Promise((done) =>
      document.addEventListener("htmx:afterSettle", done, { once: true }));
    document.body.dispatchEvent(new CustomEvent("live:all"));
    await settled;
  }
}"""


class Tabs:
    """Open streams of a company, as tabs hold them; those that look fetch the list on a change."""

    def __init__(self, the: World, looking: bool) -> None:
        self.the = the
        self.looking = looking
        self.fetched: list[float] = []
        self.open = 0
        self.prefix = f"/c/{the.company.issue_prefix}"

    async def one(self, cookie: str) -> None:
        stream, fetch = (Client(self.the.port, {"cookie": cookie}) for _ in range(2))
        address = f"/events?company={self.the.company.id}&topics=issues,runs,agents,inbox"
        self.open += 1
        try:
            async for _, topic, _ in stream.events(address):
                if topic == "issues" and self.looking:
                    answer = await fetch.request("GET", f"{self.prefix}/issues/", extra=SWAP)
                    assert answer.status == 200
                    self.fetched.append(time.time())
        finally:
            await stream.close()
            await fetch.close()

    async def all(self, cookie: str, count: int, ended: asyncio.Event) -> None:
        tasks = []
        for _ in range(count):
            tasks.append(asyncio.create_task(self.one(cookie)))
            await asyncio.sleep(0.01)
        await ended.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def tabs(the: World, count: int, *, looking: bool) -> Iterator[Tabs]:
    """So many tabs beside the browser's own, on a loop in a thread."""
    held, cookie = Tabs(the, looking), session_cookie(the)
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete, args=(held.all(cookie, count, ended),)
    )
    thread.start()
    try:
        time.sleep(count * 0.01 + 3)
        yield held
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(20)
        loop.close()


def connections() -> int:
    """How many connections the database has, the bench's own among them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        (count,) = cursor.fetchone()
    return int(count)


def rename(the: World, issue: uuid.UUID, words: str) -> float:
    """Change an issue over the API; the moment before the request."""
    time.sleep(0.05)
    begun = time.time()

    async def send() -> None:
        client = the.client()
        answer = await client.request("PATCH", f"/api/issues/{issue}", {"title": words})
        assert answer.status == 200, answer.body[:200]
        await client.close()

    asyncio.run(send())
    return begun


def see(the: World, page: Any, pool: ThreadPoolExecutor) -> list[float]:
    """Seconds until the first issue of the list reads as it was renamed, again and again."""
    from issues.models import Issue

    place = page.locator(".row-title").first.get_attribute("id")
    number = int(str(place).rpartition("-")[2])
    issue = Issue.objects.for_company(the.company.id).get(number=number)
    took = []
    for turn in range(SAMPLES):
        words = f"Renamed for the {turn + 1}. time at {time.time():.0f}"
        begun = pool.submit(rename, the, issue.id, words)
        seen = page.evaluate(_SEEN, [f"#{place}", words]) / 1000
        took.append(seen - begun.result())
        time.sleep(SPACING_SECONDS)
    return took


def tell(the: World) -> None:
    """A day's events: each about another thing, as many at once as a burst brings."""
    for number in range(0, EVENTS, BATCH):
        topics = ("issues", "issue", "run", "runs", "agents")
        live.publish_all(
            (the.company.id, topics[(number + n) % len(topics)], uuid.uuid4()) for n in range(BATCH)
        )
        time.sleep(0.12)
    live.flush()


def day(the: World, page: Any, path: str) -> tuple[str, str]:
    """Megabytes of scripts and nodes of a page before and after a day."""
    page.goto(f"/c/{the.company.issue_prefix}/{path}")
    page.wait_for_selector('[data-conn][data-state="live"]', state="attached")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.evaluate(_SWAP, 20)  # what is kept once and for all is kept by now
    before, nodes = heap(session)
    tell(the)
    page.evaluate(_SWAP, SWAPS)
    page.wait_for_timeout(2_000)
    after, left = heap(session)
    grown = f"{after - before:+.1f} MiB"
    return grown, f"{before:.1f} to {after:.1f} MiB, {nodes:,} to {left:,} nodes"


def bench() -> Table:
    table = Table(
        name="tabs",
        title=f"{TABS} open tabs",
        columns=("what", "samples", "p50 ms", "p95 ms", "p99 ms"),
        notes=[
            "From before the request that renames an issue to the frame that shows it in Chromium;"
            " the other tabs are event-stream clients. Browser, clients, server (two web workers)"
            " and database share the machine."
        ],
    )
    with world(agents=AGENTS, PAPERCLIP_SHIFTS="0", PAPERCLIP_WEB_WORKERS="2") as the:
        from django.utils import timezone

        crowd.fill(the.company, the.agents, now=timezone.now(), runs=20_000)
        with signed_in(the) as page, ThreadPoolExecutor(1) as pool:
            page.goto(f"/c/{the.company.issue_prefix}/issues/")
            page.wait_for_selector('[data-conn][data-state="live"]', state="attached")
            alone = connections()
            for looking in (False, True):
                with tabs(the, TABS - 1, looking=looking) as others:
                    held = connections()
                    took = see(the, page, pool)
                what = "all look at the same list" if looking else "the others look elsewhere"
                table.add(f"event to screen, {what}", len(took), *quantiles(took))
                table.notes.append(
                    f"Connections of the database: {alone} with one tab, {held} with"
                    f" {others.open + 1} ({what})."
                )
            for name, path in (("issues list", "issues/"), ("company home", "")):
                grown, detail = day(the, page, path)
                table.notes.append(
                    f"The {name} after {EVENTS:,} events and {SWAPS} refreshes of all its parts: "
                    f"{grown} of scripts ({detail})."
                )
                print("  ", table.notes[-1], flush=True)
    return table
