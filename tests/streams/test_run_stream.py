"""One run, watched: everything once, in order, to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from django.conf import settings
from django.db import InterfaceError, connection, connections, transaction

from agents.models import AgentKey, HeartbeatRun, RunEvent
from companies import live
from companies.models import Company, User
from paperclip.streams import feeds, hub, service
from tests.api.conftest import Caller
from tests.streams.viewing import end, in_thread, look, running_hub, write

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _no_connection_stays() -> Iterator[None]:
    yield
    live.flush()
    connections.close_all()


def path(run: HeartbeatRun) -> str:
    return f"/api/heartbeat-runs/{run.id}/stream"


def test_a_viewer_gets_what_was_and_what_comes(as_olga: Caller, adas_run: HeartbeatRun) -> None:
    write(adas_run, 1, 2, 3)

    async def story() -> None:
        async with running_hub():
            viewer = look(path(adas_run), token=as_olga.token)
            await viewer.until(lambda v: v.seqs() == [1, 2, 3])
            await in_thread(lambda: write(adas_run, 4, 5))
            await viewer.until(lambda v: v.seqs() == [1, 2, 3, 4, 5])
            await in_thread(lambda: end(adas_run))
            await viewer.until_end()
            assert viewer.status == 200
            assert viewer.headers[b"x-accel-buffering"] == b"no"
            assert viewer.named("text")[0]["text"] == "piece 1"
            assert viewer.named("done")[0]["status"] == "succeeded"
            assert viewer.named("done")[0]["costMicros"] == 42

    asyncio.run(story())


def test_last_event_id_resumes_without_gap_or_double(
    as_olga: Caller, adas_run: HeartbeatRun
) -> None:
    write(adas_run, *range(1, 11))

    async def story() -> None:
        async with running_hub():
            first = look(path(adas_run), token=as_olga.token)
            await first.until(lambda v: len(v.seqs()) == 10)
            await first.leave()
            await in_thread(lambda: write(adas_run, *range(11, 16)))
            again = look(path(adas_run), token=as_olga.token, last_event_id="10")
            await again.until(lambda v: len(v.seqs()) == 5)
            await in_thread(lambda: write(adas_run, 16))
            await again.until(lambda v: len(v.seqs()) == 6)
            assert first.seqs() + again.seqs() == list(range(1, 17))
            await again.leave()

    asyncio.run(story())


def test_a_run_that_has_ended_is_told_whole(as_olga: Caller, adas_run: HeartbeatRun) -> None:
    write(adas_run, *range(1, 701))
    end(adas_run, "failed", "exit_nonzero")

    async def story() -> None:
        async with running_hub():
            viewer = await look(path(adas_run), token=as_olga.token).until_end()
            assert viewer.seqs() == list(range(1, 701))
            assert viewer.named("done")[0]["code"] == "exit_nonzero"

    asyncio.run(story())


@pytest.mark.fault("T40", "many viewers join while a run writes")
def test_many_viewers_who_join_while_it_writes_all_see_all(
    as_olga: Caller, adas_run: HeartbeatRun
) -> None:
    async def story() -> None:
        async with running_hub():
            viewers = []
            for start in range(1, 401, 20):
                viewers.append(look(path(adas_run), token=as_olga.token))
                await in_thread(lambda s=start: write(adas_run, *range(s, s + 20)))
            await in_thread(lambda: end(adas_run))
            for viewer in viewers:
                await viewer.until_end()
                assert viewer.seqs() == list(range(1, 401))

    asyncio.run(story())


def test_who_falls_behind_the_shared_tail_reads_the_table(
    as_olga: Caller, adas_run: HeartbeatRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "TAIL_EVENTS", 8)

    async def story() -> None:
        async with running_hub() as heart:
            viewer = look(path(adas_run), token=as_olga.token)
            await viewer.until(lambda v: v.status == 200)
            await in_thread(lambda: write(adas_run, *range(1, 301)))
            await in_thread(lambda: end(adas_run))
            await viewer.until_end()
            assert viewer.seqs() == list(range(1, 301))
            assert all(len(feed.frames) <= 8 for feed in heart.runs.values())

    asyncio.run(story())


def test_a_lost_notice_is_made_good_by_the_poll(as_olga: Caller, adas_run: HeartbeatRun) -> None:
    async def story() -> None:
        async with running_hub():
            viewer = look(path(adas_run), token=as_olga.token)
            await viewer.until(lambda v: v.status == 200)
            await in_thread(lambda: write(adas_run, 1, publish=False))
            await viewer.until(lambda v: v.seqs() == [1])
            await viewer.leave()

    asyncio.run(story())


@pytest.mark.fault("T40", "the listener of all streams is killed")
def test_the_listener_comes_back_after_its_connection_is_killed(
    as_olga: Caller, adas_run: HeartbeatRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "POLL_SECONDS", 3600.0)  # only notices can bring news

    async def story() -> None:
        async with running_hub() as heart:
            await heart.connected.wait()
            viewer = look(path(adas_run), token=as_olga.token)
            await viewer.until(lambda v: v.status == 200)
            await in_thread(lambda: write(adas_run, 1))
            await viewer.until(lambda v: v.seqs() == [1])
            # Its look at what was there and the notice may come one after the other: once both are
            # over only the news of the reconnect can bring what follows.
            await in_thread(live.flush)
            await asyncio.sleep(0.5)
            killed = heart.listener_pid

            def write_in_the_gap() -> None:
                # The commit comes right after the kill, before anybody can be connected again.
                with transaction.atomic(), connection.cursor() as cursor:
                    write(adas_run, 2, publish=False)
                    cursor.execute("SELECT pg_terminate_backend(%s)", [killed])

            await in_thread(write_in_the_gap)
            await viewer.until(lambda v: v.seqs() == [1, 2])
            assert heart.listener_pid != killed
            await in_thread(lambda: write(adas_run, 3))
            await viewer.until(lambda v: v.seqs() == [1, 2, 3])
            await viewer.leave()

    asyncio.run(story())


def test_a_viewer_who_leaves_costs_nothing_any_more(
    as_olga: Caller, adas_run: HeartbeatRun
) -> None:
    async def story() -> None:
        async with running_hub() as heart:
            viewer = look(path(adas_run), token=as_olga.token)
            await viewer.until(lambda v: v.status == 200)
            await viewer.leave()
            assert heart.streams == 0
            assert heart.runs == {}

    asyncio.run(story())


def test_strangers_and_bad_tokens_see_nothing(
    as_oscar: Caller, as_spy: Caller, adas_run: HeartbeatRun
) -> None:
    async def story() -> None:
        async with running_hub():
            for token, expected in (
                ("", 401),
                ("pcb_nonsense", 401),
                (as_oscar.token, 404),
                (as_spy.token, 404),
            ):
                viewer = await look(path(adas_run), token=token).until_end()
                assert viewer.status == expected
                assert b'"code"' in viewer.body
            bad = await look("/api/heartbeat-runs/x/stream", token=as_oscar.token).until_end()
            assert bad.status == 400

    asyncio.run(story())


def test_a_session_cookie_opens_a_stream(olga: User, acme: Company, adas_run: HeartbeatRun) -> None:
    browser = Caller()
    browser.force_login(olga)
    cookie = "; ".join(f"{name}={m.value}" for name, m in browser.cookies.items())
    end(adas_run)

    async def story() -> None:
        async with running_hub():
            viewer = await look(path(adas_run), cookie=cookie).until_end()
            assert viewer.status == 200
            stranger = cookie[:-2] + "xx"
            assert (await look(path(adas_run), cookie=stranger).until_end()).status == 401

    asyncio.run(story())


def test_cookies_of_other_programs_on_the_host_do_not_hide_the_session(
    olga: User, acme: Company, adas_run: HeartbeatRun
) -> None:
    """Cookies know no ports, and what others write into theirs follows no standard."""
    browser = Caller()
    browser.force_login(olga)
    own = f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"
    end(adas_run)

    async def story() -> None:
        async with running_hub():
            for foreign in ('prefs={"tab": 1}', "path=/here", "a b=c", "version"):
                viewer = await look(path(adas_run), cookie=f"{foreign}; {own}").until_end()
                assert viewer.status == 200, foreign

    asyncio.run(story())


def test_a_stream_leaves_the_session_its_key_when_the_secret_key_is_new(
    olga: User, acme: Company, adas_run: HeartbeatRun, settings: Any
) -> None:
    """The browser would not hear of another one, and be signed out."""
    browser = Caller()
    browser.force_login(olga)
    cookie = "; ".join(f"{name}={m.value}" for name, m in browser.cookies.items())
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another one"
    end(adas_run)

    async def story() -> None:
        async with running_hub():
            viewer = await look(path(adas_run), cookie=cookie).until_end()
            assert viewer.status == 200

    asyncio.run(story())
    assert browser.get("/c/ACM/").status_code == 200


def test_a_connection_that_is_lost_at_the_check_is_no_fault_of_the_viewers(
    as_olga: Caller, adas_run: HeartbeatRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(token: str) -> None:
        raise InterfaceError("the connection is closed")

    monkeypatch.setattr("agents.auth.principal_for_token", lost)

    async def story() -> None:
        async with running_hub():
            viewer = await look(path(adas_run), token=as_olga.token).until_end()
            assert (viewer.status, viewer.headers[b"retry-after"]) == (503, b"2")

    asyncio.run(story())


def test_a_revoked_key_ends_the_stream(
    as_ada: Caller, adas_run: HeartbeatRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RECHECK_SECONDS", 0.0)

    async def story() -> None:
        async with running_hub():
            viewer = look(path(adas_run), token=as_ada.token)
            await viewer.until(lambda v: v.status == 200)
            await in_thread(lambda: AgentKey.objects.update(revoked_at=adas_run.created_at))
            await in_thread(lambda: write(adas_run, 1))
            await viewer.until_end()
            assert viewer.named("done") == []

    asyncio.run(story())


def test_beyond_the_limit_a_viewer_is_asked_to_come_back(
    as_olga: Caller, adas_run: HeartbeatRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "MAX_STREAMS", 1)

    async def story() -> None:
        async with running_hub():
            first = look(path(adas_run), token=as_olga.token)
            await first.until(lambda v: v.status == 200)
            second = await look(path(adas_run), token=as_olga.token).until_end()
            assert (second.status, second.headers[b"retry-after"]) == (503, b"2")
            await first.leave()

    asyncio.run(story())


def test_one_agent_cannot_take_all_places(
    as_ada: Caller, as_olga: Caller, adas_run: HeartbeatRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "MAX_STREAMS_AN_AGENT", 2)

    async def story() -> None:
        async with running_hub() as heart:
            first, second = (look(path(adas_run), token=as_ada.token) for _ in range(2))
            await first.until(lambda v: v.status == 200)
            await second.until(lambda v: v.status == 200)
            spelled = {"authorization": f"bearer  {as_ada.token}"}
            third = await look(path(adas_run), **spelled).until_end()
            assert (third.status, third.headers[b"retry-after"]) == (503, b"2")
            people = [look(path(adas_run), token=as_olga.token) for _ in range(3)]
            for viewer in people:
                await viewer.until(lambda v: v.status == 200)
            await first.leave()
            fourth = await look(path(adas_run), token=as_ada.token).until(lambda v: v.status != 0)
            assert fourth.status == 200
            for viewer in (second, fourth, *people):
                await viewer.leave()
            assert (heart.streams, heart.of_agents) == (0, {})

    asyncio.run(story())


def test_an_idle_stream_says_that_it_lives(
    as_olga: Caller, adas_run: HeartbeatRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "BEAT_SECONDS", 0.0)
    monkeypatch.setattr(hub, "POLL_SECONDS", 0.05)

    async def story() -> None:
        async with running_hub():
            viewer = look(path(adas_run), token=as_olga.token)
            await viewer.until(lambda v: b": keep-alive\n\n" in v.body)
            await viewer.leave()

    asyncio.run(story())


def test_the_output_of_another_run_stays_out(as_olga: Caller, adas_run: HeartbeatRun) -> None:
    write(adas_run, 1)
    RunEvent.objects.filter(run_id=adas_run.id).update(run_id=adas_run.agent_id)
    end(adas_run)

    async def story() -> None:
        async with running_hub():
            viewer = await look(path(adas_run), token=as_olga.token).until_end()
            assert viewer.seqs() == []

    asyncio.run(story())


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "9" * 30])
def test_a_place_that_is_none_is_refused(
    as_olga: Caller, adas_run: HeartbeatRun, after: str
) -> None:
    async def story() -> None:
        async with running_hub():
            path = f"/api/heartbeat-runs/{adas_run.id}/stream?after={after}"
            viewer = look(path, token=as_olga.token)
            await viewer.until(lambda v: bool(v.body))
            assert viewer.status == 400
            (issue,) = orjson.loads(viewer.body)["details"]["issues"]
            assert issue["path"] == ["after"]

    asyncio.run(story())
