"""The engine of the settings: what it saves, and what it must not lose."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import psycopg
import pytest
from django.db import DataError, OperationalError, ProgrammingError, connection

from agents.meter_models import Counter
from paperclip.database import base
from tests.house.instance import database_address

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def kept(monkeypatch):
    """A connection of its own that is checked before use, as that of a request's thread."""
    mine = connection.copy()
    mine.settings_dict = {**mine.settings_dict, "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
    mine.inc_thread_sharing()
    mine.ensure_connection()
    yield mine
    mine.close()


def ask(mine, sql="SELECT pg_backend_pid()", params=None):
    with mine.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchone()[0]


def next_request(mine):
    mine.close_if_unusable_or_obsolete()


def test_a_kept_connection_is_not_asked_before_it_is_used(kept, monkeypatch):
    def refuse():
        raise AssertionError("the server was asked")

    pid = ask(kept)
    monkeypatch.setattr(kept, "is_usable", refuse)
    next_request(kept)

    assert ask(kept) == pid


def test_a_connection_that_its_server_has_ended_is_opened_again(kept):
    pid = ask(kept)
    with psycopg.connect(database_address(), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    next_request(kept)

    assert ask(kept) != pid


def test_a_connection_with_a_mere_notice_waiting_is_kept(kept):
    pid = ask(kept)
    ask(kept, "SELECT set_config('application_name', 'x', false)")
    with kept.cursor() as cursor:
        cursor.execute("LISTEN something")
    with psycopg.connect(database_address(), autocommit=True) as other:
        other.execute("NOTIFY something")
    next_request(kept)

    assert ask(kept) == pid


def test_moments_come_in_utc_with_all_their_digits(kept):
    moment = datetime(2026, 12, 1, 4, 5, 6, 789123, tzinfo=UTC)

    for _ in range(8):  # also once the statement is prepared
        found = ask(kept, "SELECT %s::timestamptz", [moment])
        assert found == moment
        assert found.tzinfo is UTC


def test_a_statement_that_comes_again_is_prepared_once(kept):
    for number in range(6):
        assert ask(kept, "SELECT %s::int + 1", [number]) == number + 1

    assert (
        ask(
            kept,
            "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s",
            ["SELECT $1::int + 1%"],
        )
        == 1
    )


def test_a_long_result_is_read_through_a_cursor_of_the_server(kept):
    with kept.chunked_cursor() as cursor:
        cursor.execute("SELECT n, now() FROM generate_series(1, %s) AS n", [10])
        rows = cursor.fetchall()

    assert [n for n, _ in rows] == list(range(1, 11))
    assert {at.tzinfo for _, at in rows} == {UTC}


def test_more_rows_than_one_statement_takes_are_written_in_several():
    """Parameters that are bound in the server are counted in sixteen bits."""
    count = base.MOST_PARAMETERS // 3 + 10  # a name, a label and a value each
    Counter.objects.bulk_create(Counter(name="test", label=str(n)) for n in range(count))

    assert Counter.objects.count() == count


def ask_in_a_thread(mine, *args):
    """As a request does: not in the main thread, which waits in another way."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask, mine, *args).result()


@pytest.mark.parametrize("where", [ask, ask_in_a_thread])
@pytest.mark.parametrize("times", [1, 6])
def test_errors_keep_their_kinds(kept, where, times):
    for _ in range(times):  # also once the statement is prepared
        with pytest.raises(DataError):
            where(kept, "SELECT 1 / %s::int", [0])
    with pytest.raises(DataError):  # psycopg's own: no text of PostgreSQL holds a NUL
        where(kept, "SELECT %s::text", ["\x00"])
    with pytest.raises(ProgrammingError):
        where(kept, "SELECT nothing_of_the_kind FROM companies_company WHERE name = %s", ["x"])
    with pytest.raises(ProgrammingError):
        where(kept, "SELECT %s::int + %s::int", [1])
    with pytest.raises(ProgrammingError):
        where(kept, "SELECT %(a)s::int + %(b)s::int", {"a": 1})


@pytest.mark.parametrize("where", [ask, ask_in_a_thread])
def test_a_server_that_goes_during_a_statement_is_an_operational_error(kept, where):
    with pytest.raises(OperationalError):
        where(kept, "SELECT pg_terminate_backend(pg_backend_pid()) FROM pg_sleep(%s)", [0])
    with pytest.raises(OperationalError):
        where(kept, "SELECT %s::int", [1])
    next_request(kept)

    assert where(kept, "SELECT %s::int", [1]) == 1


def test_other_threads_go_on_while_a_statement_waits(kept):
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(ask, kept, "SELECT 1 FROM pg_sleep(%s)", [0.5])
        turns = 0
        while not slow.done():
            time.sleep(0.01)
            turns += 1

    assert turns > 5


def test_a_signal_comes_through_to_the_main_thread_while_a_statement_waits(kept):
    def ring(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            ask(kept, "SELECT 1 FROM pg_sleep(%s)", [30])
    finally:
        signal.signal(signal.SIGALRM, before)

    assert ask(kept, "SELECT %s::int", [1]) == 1


def test_statements_by_place_by_name_and_without_parameters(kept):
    assert ask(kept, "SELECT %s || '%%'", ["a"]) == "a%"
    assert ask(kept, "SELECT %(a)s::int + %(b)s::int * %(a)s::int", {"b": 3, "a": 2}) == 8
    assert ask(kept, "SELECT '100%'") == "100%"
    assert ask(kept, "SELECT '100%%'", []) == "100%"
    assert ask(kept, "SELECT %b::int", [7]) == 7
    with kept.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE mine (n int); INSERT INTO mine VALUES (5)", [])
    assert ask(kept, "SELECT n FROM mine WHERE n > %s", [4]) == 5


def test_a_cursor_gives_its_rows_in_every_way(kept):
    with kept.cursor() as cursor:
        cursor.execute("SELECT n, 'x' AS word FROM generate_series(1, %s) AS n", [6])
        assert cursor.rowcount == 6
        assert [column.name for column in cursor.description] == ["n", "word"]
        assert cursor.fetchone() == (1, "x")
        assert cursor.fetchmany(2) == [(2, "x"), (3, "x")]
        assert cursor.fetchall() == [(4, "x"), (5, "x"), (6, "x")]
        assert cursor.fetchone() is None
        cursor.execute("CREATE TEMP TABLE mine (n int)")
        assert cursor.description is None
        cursor.executemany("INSERT INTO mine VALUES (%s)", [(1,), (2,)])
        assert cursor.rowcount == 2
        cursor.execute("UPDATE mine SET n = n + %s", [1])
        assert cursor.rowcount == 2
