"""The live wire: notices leave after the commit, folded, and never with a payload too large."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection, transaction

from companies import live


@pytest.fixture
def listener(transactional_db: None) -> Iterator[psycopg.Connection]:
    """A connection of its own that hears all channels."""
    parameters = connection.get_connection_params()
    wanted = {k: parameters[k] for k in ("dbname", "user", "host", "port") if k in parameters}
    with psycopg.connect(**wanted, autocommit=True) as heard:
        for channel in (live.WAKE_CHANNEL, live.CANCEL_CHANNEL, live.LIVE_CHANNEL):
            heard.execute(f"LISTEN {channel}")
        yield heard


def collect(listener: psycopg.Connection) -> list[psycopg.Notify]:
    assert live.flush()
    return list(listener.notifies(timeout=0.5))


def test_a_wake_is_heard_after_the_commit(listener: psycopg.Connection) -> None:
    with transaction.atomic():
        live.wake()
        assert list(listener.notifies(timeout=0.1)) == []
    assert [n.channel for n in collect(listener)] == [live.WAKE_CHANNEL]


def test_a_rolled_back_change_is_not_announced(listener: psycopg.Connection) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        live.publish(uuid.uuid4(), "issues")
        raise RuntimeError
    assert collect(listener) == []


def test_a_burst_is_folded_into_few_notices(listener: psycopg.Connection) -> None:
    company = uuid.uuid4()
    for _ in range(500):
        live.publish(company, "issues")
    notices = collect(listener)
    assert 1 <= len(notices) < 50
    assert all(live.decode(n.payload) == [(str(company), "issues", None)] for n in notices)
    sent = [live.sent_at_ms(n.payload) for n in notices]
    assert sent == sorted(sent)
    assert sent[0] > 1_700_000_000_000


def test_many_topics_are_packed_below_the_limit_and_none_is_lost() -> None:
    notices = [(str(uuid.uuid4()), "run", str(uuid.uuid4())) for _ in range(1_000)]
    payloads = live.encode(notices)
    assert max(len(p.encode()) for p in payloads) < 8_000
    assert [n for p in payloads for n in live.decode(p)] == notices


@pytest.mark.parametrize("payload", ["", "{", "[1]", '[["a"]]', "null", "7"])
def test_an_unreadable_payload_is_nobodys_notice(payload: str) -> None:
    assert live.decode(payload) == []


def test_the_wire_mends_itself_after_its_connection_was_cut(listener: psycopg.Connection) -> None:
    live.wake()
    collect(listener)
    listener.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND query LIKE '%pg_notify%' "
        "AND pid <> pg_backend_pid()"
    )
    for _ in range(3):  # the first may be lost; that is what polls are for
        live.wake()
        heard = collect(listener)
    assert [n.channel for n in heard] == [live.WAKE_CHANNEL]
