"""A company, watched: hints of what changed, coalesced, and a word when some were missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import orjson
import pytest
from django.db import connections

from companies import live
from companies.models import Company, User
from paperclip.streams import feeds
from paperclip.streams.hub import Hub
from tests.api.conftest import Caller
from tests.streams.viewing import in_thread, look, running_hub

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _no_connection_stays() -> Iterator[None]:
    yield
    live.flush()
    connections.close_all()


def test_a_hint_says_topic_and_entity(as_olga: Caller, acme: Company, olga: User) -> None:
    async def story() -> None:
        async with running_hub() as heart:
            await heart.connected.wait()
            viewer = look(f"/events?company={acme.id}&topics=issue,agents", token=as_olga.token)
            await viewer.until(lambda v: v.status == 200)

            def change() -> None:
                live.publish(acme.id, "costs")
                live.publish(acme.id, "issue", olga.id)

            await in_thread(change)
            await viewer.until(lambda v: bool(v.events()))
            assert [e["event"] for e in viewer.events()] == ["issue"]
            assert viewer.named("issue") == [{"topic": "issue", "id": str(olga.id)}]
            await viewer.leave()

    asyncio.run(story())


def test_a_burst_about_one_thing_is_one_hint(as_olga: Caller, acme: Company) -> None:
    async def story() -> None:
        async with running_hub() as heart:
            await heart.connected.wait()
            viewer = look("/events?company=ACM", token=as_olga.token)
            await viewer.until(lambda v: v.status == 200)

            def burst() -> None:
                for _ in range(50):
                    live.publish(acme.id, "issues")

            await in_thread(burst)
            await viewer.until(lambda v: bool(v.events()))
            assert len(viewer.named("issues")) <= 2
            await viewer.leave()

    asyncio.run(story())


def test_who_comes_back_hears_what_came_meanwhile(
    as_olga: Caller, acme: Company, olga: User
) -> None:
    async def story() -> None:
        async with running_hub() as heart:
            await heart.connected.wait()
            first = look(f"/events?company={acme.id}", token=as_olga.token)
            await first.until(lambda v: v.status == 200)
            await in_thread(lambda: live.publish(acme.id, "costs"))
            await first.until(lambda v: bool(v.events()))
            seen = first.events()[-1]["id"]
            await first.leave()

            await in_thread(lambda: live.publish(acme.id, "issue", olga.id))
            await until(lambda: len(heart.heard) == 2)
            again = look(f"/events?company={acme.id}", token=as_olga.token, last_event_id=seen)
            await again.until(lambda v: bool(v.named("issue")))

            assert again.named("issue") == [{"topic": "issue", "id": str(olga.id)}]
            assert not again.named("resync")
            await again.leave()

    asyncio.run(story())


def test_a_position_means_the_same_to_every_web_process(acme: Company, olga: User) -> None:
    """The moments are the database's, not those of the process that hears."""

    async def story() -> None:
        async with running_hub() as here:
            there = Hub()
            await there.start()
            try:
                await asyncio.gather(here.connected.wait(), there.connected.wait())
                for topic in ("issues", "costs", "runs"):
                    await in_thread(lambda topic=topic: live.publish(acme.id, topic))
                    await in_thread(live.flush)
                await until(lambda: len(here.heard) == len(there.heard) == 3)

                assert list(here.heard) == list(there.heard)
                moments = [moment for moment, *_ in here.heard]
                assert moments == sorted(moments)
                assert here.position_ms == there.position_ms == moments[-1]
            finally:
                await there.stop()

    asyncio.run(story())


def test_a_quiet_stream_tells_its_position(as_olga: Caller, acme: Company) -> None:
    async def story() -> None:
        async with running_hub() as heart:
            await heart.connected.wait()
            viewer = look(f"/events?company={acme.id}", token=as_olga.token)
            await viewer.until(lambda v: bool(v.body))
            assert viewer.body == b"id: %d\n\n" % heart.position_ms
            await viewer.leave()

    asyncio.run(story())


def test_who_was_away_for_too_long_is_told_to_read_anew(as_olga: Caller, acme: Company) -> None:
    async def story() -> None:
        async with running_hub():
            viewer = look(f"/events?company={acme.id}", token=as_olga.token, last_event_id="17")
            await viewer.until(lambda v: bool(v.named("resync")))
            await viewer.leave()

    asyncio.run(story())


def test_what_changed_between_the_page_and_its_stream_is_told(
    as_olga: Caller, acme: Company, globex: Company, olga: User
) -> None:
    """A page is read first and watched a moment later: that moment must not be lost."""

    async def story() -> None:
        async with running_hub() as heart:
            await heart.connected.wait()

            def before() -> None:
                live.publish(acme.id, "agents")

            def between() -> None:
                live.publish(acme.id, "issue", olga.id)
                live.publish(acme.id, "costs")
                live.publish(globex.id, "issue", olga.id)

            await in_thread(before)
            await until(lambda: len(heart.heard) == 1)
            shown_at = time.time_ns() // 1_000_000 + 1
            await asyncio.sleep(0.002)
            await in_thread(between)
            await until(lambda: len(heart.heard) == 4)
            viewer = look(
                f"/events?company={acme.id}&topics=issue,agents&since={shown_at}",
                token=as_olga.token,
            )
            await viewer.until(lambda v: bool(v.events()))
            assert [(e["event"], e["data"]["id"]) for e in viewer.events()] == [
                ("issue", str(olga.id))
            ]
            await viewer.leave()

    asyncio.run(story())


@pytest.mark.parametrize("since", ["1000", "-5", "x", "9" * 30])
def test_a_page_older_than_the_memory_is_told_to_read_anew(
    as_olga: Caller, acme: Company, since: str
) -> None:
    async def story() -> None:
        async with running_hub() as heart:
            await heart.connected.wait()
            viewer = look(f"/events?company={acme.id}&since={since}", token=as_olga.token)
            await viewer.until(lambda v: bool(v.named("resync")))
            await viewer.leave()

    asyncio.run(story())


async def until(seen: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not seen():
            await asyncio.sleep(0.01)


def test_hints_of_another_company_stay_out(as_olga: Caller, acme: Company, globex: Company) -> None:
    async def story() -> None:
        async with running_hub() as heart:
            await heart.connected.wait()
            viewer = look(f"/events?company={acme.id}", token=as_olga.token)
            await viewer.until(lambda v: v.status == 200)

            def change() -> None:
                live.publish(globex.id, "issues")
                live.publish(acme.id, "runs")

            await in_thread(change)
            await viewer.until(lambda v: bool(v.events()))
            assert [e["event"] for e in viewer.events()] == ["runs"]
            await viewer.leave()

    asyncio.run(story())


def test_a_page_that_is_current_is_not_told_to_read_anew(as_olga: Caller, acme: Company) -> None:
    async def story() -> None:
        async with running_hub() as heart:
            await heart.connected.wait()
            shown_at = time.time_ns() // 1_000_000 + 1
            viewer = look(
                f"/events?company={acme.id}&topics=issues&since={shown_at}", token=as_olga.token
            )
            await viewer.until(lambda v: v.status == 200)
            await in_thread(lambda: live.publish(acme.id, "issues"))
            await viewer.until(lambda v: bool(v.named("issues")))
            assert not viewer.named("resync")
            await viewer.leave()

    asyncio.run(story())


def test_a_stranger_hears_nothing(as_oscar: Caller, acme: Company) -> None:
    async def story() -> None:
        async with running_hub():
            viewer = await look(f"/events?company={acme.id}", token=as_oscar.token).until_end()
            assert viewer.status == 404
            nobody = await look("/events", token=as_oscar.token).until_end()
            assert nobody.status == 404

    asyncio.run(story())


def test_a_viewer_who_missed_batches_gets_one_resync() -> None:
    feed = feeds.CompanyFeed("acme")
    for number in range(feeds.BATCHES_KEPT + 5):
        feed.note("issues", None)
        feed.flush(1_000 + number)

    chunk, seen = feed.after(1_001, frozenset())

    assert chunk == feeds.resync(feed.token)
    assert seen == feed.token


def test_a_flood_says_topics_only() -> None:
    feed = feeds.CompanyFeed("acme")
    for number in range(feeds.MANY_NOTICES + 1):
        feed.note("issue", str(number))

    feed.flush(1_000)

    chunk, _ = feed.after(0, frozenset())
    assert chunk.count(b"event: ") == 1


def test_tokens_grow_even_when_the_clock_stands() -> None:
    feed = feeds.CompanyFeed("acme")
    for _ in range(2):
        feed.note("issues", None)
        feed.flush(1_000)

    assert [token for token, _ in feed.batches] == [1_000, 1_001]


def test_a_removed_member_hears_nothing_any_more(
    as_vera: Caller, vera: User, acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paperclip.streams.service.RECHECK_SECONDS", 0.0)

    async def story() -> None:
        async with running_hub() as heart:
            await heart.connected.wait()
            viewer = look(f"/events?company={acme.id}", token=as_vera.token)
            await viewer.until(lambda v: v.status == 200)

            def leave() -> None:
                vera.memberships.all().delete()
                live.publish(acme.id, "issues")

            await in_thread(leave)
            await viewer.until_end()

    asyncio.run(story())


def test_resync_passes_every_choice_of_topics() -> None:
    feed = feeds.CompanyFeed("acme")
    feed.note(feeds.RESYNC, None)
    feed.flush(1_000)

    assert b"event: resync" in feed.after(0, frozenset({"issues"}))[0]


@pytest.mark.parametrize("query", ["topics=bananas", "topics=issue,bananas", "topics=ISSUES"])
def test_a_wish_that_nothing_can_meet_is_refused(
    as_olga: Caller, acme: Company, query: str
) -> None:
    async def story() -> None:
        async with running_hub():
            viewer = look(f"/events?company={acme.id}&{query}", token=as_olga.token)
            await viewer.until(lambda v: bool(v.body))
            assert viewer.status == 400
            (issue,) = orjson.loads(viewer.body)["details"]["issues"]
            assert issue["path"] == ["topics"]
            await viewer.leave()

    asyncio.run(story())
